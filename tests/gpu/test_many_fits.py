"""On a GPU: a process that trains many times keeps compiling, whatever the shapes were before."""

import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest

from callbacks.performance.compile import Compile
from tests.support.small_runs import small_ppo, snake_data, trainer

pytestmark = pytest.mark.gpu


class Watched(Compile):
    """Compiles, and keeps the form of the phases in the last iteration."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.forms = [pl_module.phases["update"].execution_mode, trainer.datamodule.collector.phase.execution_mode]


def test_ten_captured_fits_of_other_shapes_are_all_compiled(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*the run continues without it")
        for number in range(10):
            lightning.seed_everything(1, verbose=False)
            data = snake_data(num_envs=16 + 8 * number, total_env_steps=1280 * (1 + number))
            model = small_ppo(data)
            watched = Watched("graph")
            trainer(tmp_path, watched, accelerator="cuda").fit(model, datamodule=data)

            assert watched.forms == ["compiled, one CUDA graph"] * 2
