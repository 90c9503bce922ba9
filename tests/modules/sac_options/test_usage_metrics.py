import pytest
import torch

from modules.sac_options.option_record import OptionRecord
from modules.sac_options.usage_metrics import OptionStatistics

Run = tuple[OptionRecord, torch.Tensor, torch.Tensor]


def running(
    option: list[int], episode_start: list[int], valid: list[int] | None = None, started: list[int] | None = None
) -> Run:
    """One row from its options: what begins where the option changes or an episode does, unless `started` says so."""
    previous, ages = [0, *option[:-1]], [0]
    starts = [now != before or new for now, before, new in zip(option, previous, episode_start, strict=True)]
    for start in starts if started is None else started:
        ages.append(1 if start else ages[-1] + 1)
    ran = [0 if new else age for new, age in zip(episode_start, ages, strict=False)]
    columns = [option, previous, starts if started is None else started, ran, episode_start, valid or [1] * len(option)]
    tensors = [torch.tensor(column).unsqueeze(1) for column in columns]
    return OptionRecord(*tensors[:2], tensors[2].bool(), tensors[3]), tensors[4].bool(), tensors[5].bool()


def counted(*runs: Run, options: int = 2, max_duration: int = 0) -> dict[str, float]:
    statistics = OptionStatistics(options, torch.full((options,), max_duration))
    for run in runs:
        statistics.count(*run)
    return statistics.log()


def test_shares_lengths_and_rates_of_a_row_counted_by_hand():
    values = counted(running([0, 0, 0, 1, 1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 1, 0, 0]))

    assert (values["usage_0"], values["usage_1"], values["usage_min"]) == (0.8, 0.2, 0.2)
    assert (values["select_0"], values["select_1"]) == (0.75, 0.25)
    assert (values["length_mean"], values["length_p50"], values["length_p95"]) == (pytest.approx(7 / 3), 2, 3)
    assert values["term_rate"] == values["switch_rate"] == 2 / 8


def test_an_option_chosen_again_ended_without_a_switch_and_a_forced_end_is_no_decision():
    again = running([0, 0, 0, 0], [1, 0, 0, 0], started=[1, 0, 1, 0])

    assert counted(again)["term_rate"] == 1 / 3
    assert counted(again)["switch_rate"] == 0.0
    assert counted(again, max_duration=2)["term_rate"] == 0.0


def test_phantom_steps_count_for_nothing():
    values = counted(running([0, 0, 1, 0, 0], [1, 0, 1, 1, 0], valid=[1, 1, 0, 1, 1]))

    assert (values["usage_0"], values["length_mean"]) == (1.0, 2.0)


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_lengths_go_on_from_one_rollout_to_the_next(first: int):
    executed, episode_start, valid = running([0, 0, 0, 1, 1], [1, 0, 0, 0, 1])
    parts = [
        (OptionRecord(*(column[t] for column in executed)), episode_start[t], valid[t])
        for t in (slice(first), slice(first, 5))
    ]

    together = counted((executed, episode_start, valid))

    assert counted(*parts) == together and together["length_mean"] == 2.0


def test_one_option_is_always_used_as_evenly_as_can_be():
    assert counted(running([0, 0], [1, 0]), options=1)["usage_entropy"] == 1.0


def test_before_any_option_is_over_there_are_no_lengths():
    assert "length_mean" not in counted(running([0, 0], [1, 0]))
    assert OptionStatistics(2, torch.zeros(2, dtype=torch.int64)).log() == {}


def test_what_was_counted_survives_a_checkpoint_and_begins_anew_at_a_log():
    first, second = (OptionStatistics(2, torch.zeros(2, dtype=torch.int64)) for _ in range(2))
    first.count(*running([0, 1, 1], [1, 0, 0]))

    second.import_state(first.export_state())

    assert first.log() == second.log() != {}
    assert first.log() == {}


def test_recent_steps_of_row_0_are_kept_up_to_the_window():
    statistics = OptionStatistics(2, torch.zeros(2, dtype=torch.int64), window=4)
    executed, episode_start, _ = running([0, 1, 1], [1, 0, 0])

    for reward in (1.0, 2.0):
        statistics.keep(executed, episode_start, torch.full((3, 1), reward), torch.zeros(3, 1, 5))

    assert statistics.recent["option"].tolist() == [1, 0, 1, 1]
    assert statistics.recent["reward"].tolist() == [1.0, 2.0, 2.0, 2.0]
    assert statistics.recent["obs"].shape == (4, 5)
