"""Schedules at their ends, in between, and beyond."""

import pytest

from modules.functional.schedules import Schedule, scaled_learning_rate, schedule_value, warmup_factor


@pytest.mark.parametrize(
    ("kind", "start", "middle", "end"),
    [("constant", 2.0, 2.0, 2.0), ("linear", 2.0, 1.5, 1.0), ("cosine", 2.0, 1.5, 1.0)],
)
def test_schedule_passes_through_its_values(kind: Schedule, start: float, middle: float, end: float) -> None:
    values = [schedule_value(kind, 2.0, progress, end=1.0) for progress in (0.0, 0.5, 1.0)]

    assert values == pytest.approx([start, middle, end], rel=1e-12)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_progress_beyond_the_run_counts_as_its_end(kind: Schedule) -> None:
    assert schedule_value(kind, 1e-3, 1.01) == pytest.approx(0.0, abs=1e-18)
    assert schedule_value(kind, 1e-3, -0.01) == 1e-3


def test_cosine_starts_flat_where_linear_does_not() -> None:
    assert schedule_value("cosine", 1.0, 0.1) > 0.97 > schedule_value("linear", 1.0, 0.1)


def test_unknown_schedule_is_refused() -> None:
    with pytest.raises(ValueError, match="use constant, linear or cosine"):
        schedule_value("exponential", 1.0, 0.5)  # type: ignore[arg-type]


def test_a_learning_rate_grows_with_the_square_root_of_the_batch_up_to_its_maximum() -> None:
    assert scaled_learning_rate(1e-3, 32_768, None) == 1e-3
    assert scaled_learning_rate(1e-3, 32_768, 2_048) == pytest.approx(4e-3)
    assert scaled_learning_rate(1e-3, 512, 2_048) == pytest.approx(5e-4)
    assert scaled_learning_rate(1e-3, 32_768, 2_048, 3e-3) == 3e-3


def test_a_warm_up_rises_linearly_to_one_and_is_none_without_a_share() -> None:
    assert [warmup_factor(progress, 0.2) for progress in (0.05, 0.1, 0.2, 0.9)] == pytest.approx([0.25, 0.5, 1.0, 1.0])
    assert warmup_factor(0.0, 0.0) == 1.0
