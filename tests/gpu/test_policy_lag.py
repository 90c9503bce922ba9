"""Collecting ahead on a GPU: on a stream of its own, captured or not, the same run."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from callbacks.performance.compile import Compile
from tests.support.small_runs import Told, cartpole_data, fitted, snake_data, weights_hash

pytestmark = pytest.mark.gpu

LONG = {"policy_lag": 1, "num_envs": 256, "rollout_length": 16, "total_env_steps": 256 * 16 * 20}


class Watched(Callback):
    """Lets no update wait for the device, once all phases have taken their form."""

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        torch.cuda.set_sync_debug_mode("error" if 3 <= trainer.global_step < 9 else "default")

    def on_train_batch_end(self, *_: Any) -> None:
        torch.cuda.set_sync_debug_mode("default")


def trained(root: Path, data: Any, *callbacks: Callback, **changes: Any) -> Any:
    return fitted(root, data, *callbacks, accelerator="cuda", **changes)


@pytest.mark.parametrize("mode", ["off", "graph"])
def test_a_run_repeats_exactly_whichever_stream_is_faster(tmp_path: Path, mode: Any) -> None:
    runs = [weights_hash(trained(tmp_path, snake_data(**LONG), Compile(mode))) for _ in range(3)]

    assert len(set(runs)) == 1


def test_captured_equals_eager(tmp_path: Path) -> None:
    told = Told()
    eager = trained(tmp_path, snake_data(**LONG), Compile("off"))
    captured = trained(tmp_path, snake_data(**LONG), Compile("graph"), told)

    assert "collect compiled, one CUDA graph" in told.forms["phases"]
    pairs = zip(eager.parameters(), captured.parameters(), strict=True)
    assert max(float((a - b).abs().max()) for a, b in pairs) < 1e-3
    assert captured.last_logged["rollout/policy_lag"] == 1


def test_an_iteration_never_waits_for_the_device(tmp_path: Path) -> None:
    trained(tmp_path, snake_data(**LONG), Compile("graph"), Watched())


@pytest.mark.parametrize("backend", ["pool", "vector"])
def test_environments_of_the_host_feed_it(tmp_path: Path, backend: Any) -> None:
    settings = {
        "policy_lag": 1,
        "backend": backend,
        "num_envs": 16,
        "rollout_length": 32,
        "total_env_steps": 16 * 32 * 10,
    }
    told = Told()
    data = cartpole_data(**settings)
    model = trained(tmp_path, data, Compile("graph"), told, val_check_interval=3)

    assert "graph" in told.forms["acting"]
    assert model.env_steps >= data.total_env_steps and "eval/return_mean" in model.last_logged


def test_a_run_that_is_stopped_early_lets_go_of_its_graphs(tmp_path: Path) -> None:
    settings = {"policy_lag": 1, "backend": "pool", "num_envs": 8, "rollout_length": 64, "total_env_steps": 8 * 64 * 50}
    model = trained(tmp_path, cartpole_data(**settings), Compile("graph"), max_steps=5)

    assert model.global_step == 5
