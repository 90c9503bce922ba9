"""A long run holds as much memory at its end as near its beginning."""

import resource
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback

from tests.training import small_ppo, snake_data, trainer


class PeakMemory(Callback):
    """The most memory that the process ever held, in MiB, as of some iterations."""

    def __init__(self, *iterations: int):
        self.iterations, self.mib = iterations, list[float]()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step in self.iterations:
            self.mib.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_thousand_iterations_do_not_add_up_in_memory(tmp_path: Path) -> None:
    memory, data = PeakMemory(2_000, 10_000), snake_data(num_envs=4, horizon=2, total_env_steps=80_000)

    trainer(tmp_path, memory).fit(small_ppo(data, passes=1, minibatches=2), datamodule=data)

    begun, ended = memory.mib
    assert ended - begun < 4
