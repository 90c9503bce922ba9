"""On a GPU: compiled and captured runs equal eager ones, wait for nothing, and leave nothing behind."""

import math
import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from callbacks.performance.compile import Compile
from modules.networks import LSTM
from modules.ppo.ppo import PPO
from tests.support.small_runs import small_ppo, snake_data, trainer

pytestmark = pytest.mark.gpu
RECURRENT: dict[str, Any] = {"network": lambda shape: LSTM(shape, hidden=16, encoder=(16,)), "share_torso": True}


def run(root: Path, mode: Any, *callbacks: Callback, settings: dict[str, Any] | None = None, **changes: Any) -> PPO:
    lightning.seed_everything(1, verbose=False)
    torch.set_float32_matmul_precision("highest")
    data = snake_data(num_envs=64, total_env_steps=64 * 8 * 12)
    model = small_ppo(data, **(settings or {}))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*cannot be.*")  # a fall-back is a failure here
        trainer(root, Compile(mode), *callbacks, accelerator="cuda", **changes).fit(model, datamodule=data)
    return model


def difference(one: PPO, other: PPO) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).abs().max().detach()) for a, b in pairs)


@pytest.mark.parametrize("settings", [{}, {"minibatch_order": "strided"}, RECURRENT], ids=["plain", "strided", "lstm"])
@pytest.mark.parametrize("mode", ["default", "graph"])
def test_compiled_and_captured_runs_equal_eager_ones(tmp_path: Path, mode: str, settings: dict[str, Any]) -> None:
    eager, fast = run(tmp_path, "off", settings=settings), run(tmp_path, mode, settings=settings)
    assert difference(eager, fast) < 1e-4
    assert eager.env_steps == fast.env_steps and eager.updates == fast.updates


def test_the_first_iteration_of_a_captured_run_is_the_eager_one(tmp_path: Path) -> None:
    settings = {"update_epochs": 1, "num_minibatches": 1}
    eager, graph = (run(tmp_path, mode, settings=settings, limit_train_batches=1) for mode in ("off", "graph"))
    assert difference(eager, graph) < 1e-6


def test_target_kl_and_schedules_act_in_a_captured_run(tmp_path: Path) -> None:
    settings = {"update_epochs": 6, "target_kl": 1e-7, "clip_range_schedule": "linear"}
    eager, graph = run(tmp_path, "off", settings=settings), run(tmp_path, "graph", settings=settings)
    assert graph.updates == eager.updates < 12 * 6 * 4
    assert float(graph.clip_range_tensor) == pytest.approx(0.2 / 12)


class NoSynchronisation(Callback):
    """From the sixth iteration on, whatever waits for the device is an error; the last one logs, and may."""

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if 5 <= trainer.global_step < 11:
            torch.cuda.set_sync_debug_mode("error")

    def on_train_batch_end(self, *_: Any) -> None:
        torch.cuda.set_sync_debug_mode("default")

    def on_exception(self, *_: Any) -> None:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("mode", ["off", "graph"])
def test_an_iteration_does_not_wait_for_the_device(tmp_path: Path, mode: str) -> None:
    model = run(tmp_path, mode, NoSynchronisation(), log_every_n_steps=1000)
    assert model.global_step == 12


class Memory(Callback):
    """Memory in use after every iteration."""

    def __init__(self) -> None:
        self.used: list[int] = []

    def on_train_batch_end(self, *_: Any) -> None:
        self.used.append(torch.cuda.memory_allocated())


def test_memory_does_not_grow(tmp_path: Path) -> None:
    memory = Memory()
    run(tmp_path, "graph", memory)
    assert memory.used[-1] == memory.used[5]


def test_bf16_mixed_is_captured_and_learns(tmp_path: Path) -> None:
    model = run(tmp_path, "graph", precision="bf16-mixed")
    assert model.last_logged["train/approx_kl"] > 1e-7


def test_16_mixed_learns_without_a_captured_update_and_says_so(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="update is not captured as a CUDA graph"):
        model = run(tmp_path, "graph", precision="16-mixed")

    assert not model.phases["update"].capturable
    assert model.last_logged["train/approx_kl"] > 1e-7 and math.isfinite(model.last_logged["train/grad_norm"])
    assert model.optim.scaler is not None and model.optim.scaler.get_scale() > 1
