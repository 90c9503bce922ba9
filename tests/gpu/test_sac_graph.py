"""On a GPU: captured and compiled updates of soft actor-critic equal eager ones."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from callbacks.performance.compile import Compile
from modules.sac.curiosity import Curiosity
from modules.sac.sac import SAC
from modules.sac_options.sac_options import SACOptions
from tests.oracles.sac import box_data, choice_data, small_sac
from tests.support.small_runs import Told, trainer

pytestmark = pytest.mark.gpu


def run(root: Path, mode: Any, make: Any, **settings: Any) -> tuple[SAC, str]:
    """What was trained, and the forms of its phases."""
    lightning.seed_everything(1, verbose=False)
    torch.set_float32_matmul_precision("highest")
    data = make()
    model, told = small_sac(data, **settings), Told()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*cannot be.*")  # a fall-back is a failure here
        trainer(root, Compile(mode), told, accelerator="cuda").fit(model, datamodule=data)
    return model, told.forms["phases"]


@pytest.mark.parametrize("mode", ["default", "graph"])
@pytest.mark.parametrize("make", [box_data, choice_data])
def test_compiled_and_captured_runs_equal_eager_ones(tmp_path: Path, mode: str, make: Any) -> None:
    settings = {"normalize_obs": True, "max_grad_norm": 1.0}

    (eager, _), (fast, forms) = (run(tmp_path, each, make, **settings) for each in ("off", mode))

    pairs = zip(eager.parameters(), fast.parameters(), strict=True)
    assert max(float((a - b).abs().max().detach()) for a, b in pairs) < 1e-3
    assert (eager.env_steps, eager.updates) == (fast.env_steps, fast.updates)
    assert "update compiled, one CUDA graph" in forms or mode == "default"


@pytest.mark.parametrize(("kind", "make"), [(SAC, box_data), (SAC, choice_data), (SACOptions, box_data)])
def test_captured_runs_with_curiosity_equal_eager_ones(tmp_path: Path, kind: type[SAC], make: Any) -> None:
    """The reward is added in `prepare`, its scale falls between two replays, its models learn in `update`."""
    settings = {"kind": kind, "normalize_obs": True, "curiosity": partial(Curiosity, scale=1.0, anneal_env_steps=240)}
    single = partial(make, n_step=1, priority_alpha=0.0, total_env_steps=160)

    (eager, _), (graph, forms) = (run(tmp_path, mode, single, **settings) for mode in ("off", "graph"))

    pairs = zip(eager.parameters(), graph.parameters(), strict=True)
    assert max(float((one - other).abs().max().detach()) for one, other in pairs) < 1e-3
    assert eager.updates == graph.updates > 0
    assert eager.last_logged["curiosity/scale"] == graph.last_logged["curiosity/scale"] < 1
    assert "prepare eager" not in forms and "update eager" not in forms
