"""A long run holds as much memory at its end as near its beginning."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback

from tests.datamodules.buffers.test_storage import own_memory
from tests.modules.sac_options.test_sac_options_runs import rooms, small
from tests.oracles.sac import box_data, small_sac
from tests.support.replay_fixtures import replay_data, small_dqn
from tests.support.small_runs import small_ppo, snake_data, trainer

STEPS: dict[str, Any] = {"total_env_steps": 80_000}
REPLAY: dict[str, Any] = {"train_freq": 1, "batch_size": 16, "capacity": 4096, **STEPS}
RUNS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "ppo": (
        partial(snake_data, num_envs=4, rollout_length=2, **STEPS),
        partial(small_ppo, update_epochs=1, num_minibatches=2),
    ),
    "dqn": (partial(replay_data, priority_alpha=0.0, **REPLAY), small_dqn),
    "dqn_by_priority": (partial(replay_data, **REPLAY), small_dqn),
    "sac": (partial(box_data, num_envs=8, n_step=1, **REPLAY), small_sac),
    "sac_options": (partial(rooms, **STEPS), small),
}
"""10,000 iterations each, of one or two updates; replays are full, and overwritten, long before the end."""


class Memory(Callback):
    """What the process holds after some iterations, in MiB."""

    def __init__(self, *iterations: int):
        self.iterations, self.mib = iterations, list[float]()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step in self.iterations:
            self.mib.append(own_memory() / 2**20)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", RUNS)
def test_ten_thousand_iterations_do_not_add_up_in_memory(tmp_path: Path, name: str) -> None:
    (make_data, make_model), memory = RUNS[name], Memory(2_000, 10_000)
    data = make_data()

    trainer(tmp_path, memory).fit(make_model(data), datamodule=data)

    begun, ended = memory.mib
    assert ended - begun < 4
