"""On a GPU: options learn in one captured graph what they learn eagerly."""

import warnings
from pathlib import Path

import pytest
import torch

from callbacks.performance.compile import Compile
from modules.sac_options.sac_options import SACOptions
from tests.modules.sac_options.test_sac_options_runs import fitted

pytestmark = pytest.mark.gpu


def run(root: Path, mode: str) -> SACOptions:
    torch.set_float32_matmul_precision("highest")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*cannot be.*")  # a fall-back is a failure here
        return fitted(root, Compile(mode), accelerator="cuda", data={"total_env_steps": 80})  # type: ignore[arg-type]


def test_captured_updates_equal_eager_ones(tmp_path: Path):
    eager, graph = run(tmp_path / "eager", "off"), run(tmp_path / "graph", "graph")

    pairs = zip(eager.parameters(), graph.parameters(), strict=True)
    assert max(float((one - other).abs().max().detach()) for one, other in pairs) < 1e-4
    assert eager.updates == graph.updates > 0
