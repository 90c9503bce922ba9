"""On a GPU: auxiliary losses, compiled and captured, equal eager ones, and wait for nothing."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from callbacks.performance.compile import Compile
from modules.ppo.ppo import PPO
from tests.gpu.test_graph import NoSynchronisation, difference
from tests.support.auxiliary_runs import RECURRENT, every_loss, fit
from tests.support.small_runs import snake_data

pytestmark = pytest.mark.gpu
NETWORKS = pytest.mark.parametrize("network", [{}, RECURRENT], ids=["plain", "recurrent"])


def run(root: Path, mode: Any, network: dict[str, Any], *callbacks: Callback, **changes: Any) -> PPO:
    torch.set_float32_matmul_precision("highest")
    losses, data = every_loss(root), snake_data(num_envs=64, total_env_steps=64 * 8 * 12)
    settings = {"trainer_accelerator": "cuda", **network, **changes}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*cannot be.*")  # a fall-back is a failure here
        return fit(root, Compile(mode), *callbacks, data=data, losses=losses, **settings)


@NETWORKS
@pytest.mark.parametrize("mode", ["default", "graph"])
def test_compiled_and_captured_runs_equal_eager_ones(tmp_path: Path, mode: str, network: dict[str, Any]) -> None:
    eager, fast = run(tmp_path, "off", network), run(tmp_path, mode, network)
    assert difference(eager, fast) < 1e-4
    assert eager.last_logged["kickstart/share"] == fast.last_logged["kickstart/share"] < 1


@NETWORKS
@pytest.mark.parametrize("mode", ["off", "graph"])
def test_an_iteration_does_not_wait_for_the_device(tmp_path: Path, mode: str, network: dict[str, Any]) -> None:
    model = run(tmp_path, mode, network, NoSynchronisation(), trainer_log_every_n_steps=1000)
    assert model.global_step == 12
