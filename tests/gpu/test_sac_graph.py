"""On a GPU: captured and compiled updates of soft actor-critic equal eager ones."""

import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from callbacks.compile import Compile
from modules.sac import SAC
from tests.soft import box_data, choice_data, small_sac
from tests.training import trainer

pytestmark = pytest.mark.gpu


def run(root: Path, mode: Any, make: Any, **settings: Any) -> SAC:
    lightning.seed_everything(1, verbose=False)
    torch.set_float32_matmul_precision("highest")
    data = make()
    model = small_sac(data, **settings)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*cannot be.*")  # a fall-back is a failure here
        trainer(root, Compile(mode), accelerator="cuda").fit(model, datamodule=data)
    return model


@pytest.mark.parametrize("mode", ["default", "graph"])
@pytest.mark.parametrize("make", [box_data, choice_data])
def test_compiled_and_captured_runs_equal_eager_ones(tmp_path: Path, mode: str, make: Any) -> None:
    settings = {"normalize_obs": True, "max_grad_norm": 1.0}

    eager, fast = run(tmp_path, "off", make, **settings), run(tmp_path, mode, make, **settings)

    pairs = zip(eager.parameters(), fast.parameters(), strict=True)
    assert max(float((a - b).abs().max().detach()) for a, b in pairs) < 1e-3
    assert (eager.env_steps, eager.updates) == (fast.env_steps, fast.updates)
    assert "graph" in fast.joints["update"].in_force or mode == "default"
