"""On a GPU: a captured population equals an eager one and the runs with its seeds, and waits for nothing."""

import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from callbacks.performance.compile import Compile
from modules.ppo.population import PPOPopulation
from modules.ppo.ppo import PPO
from tests.gpu.test_graph import NoSynchronisation
from tests.support.small_runs import snake_data, trainer

pytestmark = pytest.mark.gpu

SEEDS = [1, 2, 3]


def run(root: Path, mode: Any, seeds: list[int] | int, *callbacks: Callback, **changes: Any) -> Any:
    lightning.seed_everything(seeds if isinstance(seeds, int) else 0, verbose=False)
    torch.set_float32_matmul_precision("highest")
    data = snake_data(num_envs=64, total_env_steps=64 * 8 * 12)
    settings: dict[str, Any] = {"update_epochs": 2, "num_minibatches": 4, "learning_rate": 1e-3}
    model = PPO(data.spaces, **settings) if isinstance(seeds, int) else PPOPopulation(data.spaces, seeds, **settings)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*cannot be.*")  # a fall-back is a failure here
        trainer(root, Compile(mode), *callbacks, accelerator="cuda", **changes).fit(model, datamodule=data)
    return model


@pytest.mark.parametrize("mode", ["off", "graph"])
def test_members_equal_the_runs_with_their_seeds(tmp_path: Path, mode: str) -> None:
    population = run(tmp_path, mode, SEEDS, limit_train_batches=4, val_check_interval=2)

    for index, seed in enumerate(SEEDS):
        alone = run(tmp_path, mode, seed, limit_train_batches=4, val_check_interval=2)
        for one, members in zip(alone.parameters(), population.parameters(), strict=True):
            torch.testing.assert_close(members[index], one, atol=1e-4, rtol=1e-4)


def test_an_iteration_does_not_wait_for_the_device(tmp_path: Path) -> None:
    assert run(tmp_path, "graph", SEEDS, NoSynchronisation(), log_every_n_steps=1000).global_step == 12
