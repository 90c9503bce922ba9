"""Updates of an iteration: the replay ratio is exact, of windows and of sequences."""

import pytest

from datamodules.buffers.replay_ratio import updates_per_iteration
from datamodules.core.errors import ConfigurationError


@pytest.mark.parametrize(
    ("num_envs", "train_freq", "batch_size", "ratio", "updates"),
    [(1, 10, 128, 12.8, 1), (64, 1, 512, 8, 1), (8, 32, 64, 32, 128), (3, 10, 30, 0.1, None), (10, 10, 1, 0.1, 10)],
)
def test_the_ratio_is_kept_exactly_or_refused(
    num_envs: int, train_freq: int, batch_size: int, ratio: float, updates: int | None
) -> None:
    if updates is None:
        with pytest.raises(ConfigurationError, match=r"makes 3 samples.*not a multiple of data.batch_size 30.*\[100\]"):
            updates_per_iteration(num_envs, train_freq, batch_size, ratio)
    else:
        assert updates_per_iteration(num_envs, train_freq, batch_size, ratio) == updates


def test_the_learned_steps_of_a_sequence_count_as_windows() -> None:
    assert updates_per_iteration(8, 16, 32, 32, learned_steps=16) == 8
    with pytest.raises(ConfigurationError, match=r"data\.batch_size 30 times 16 learned steps"):
        updates_per_iteration(8, 16, 30, 32, learned_steps=16)
