"""On a GPU: a process that trains many times keeps compiling, whatever the shapes were before."""

import warnings
from pathlib import Path

import lightning
import pytest

from callbacks.compile import Compile
from tests.training import small_ppo, snake_data, trainer

pytestmark = pytest.mark.gpu


def test_ten_captured_fits_of_other_shapes_are_all_compiled(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*it goes on without")
        for number in range(10):
            lightning.seed_everything(1, verbose=False)
            data = snake_data(num_envs=16 + 8 * number, total_env_steps=1280 * (1 + number))
            model = small_ppo(data)
            trainer(tmp_path, Compile("graph"), accelerator="cuda").fit(model, datamodule=data)

            assert model.joints["update"].compiled
            assert data.collector is not None and data.collector.joint.compiled
