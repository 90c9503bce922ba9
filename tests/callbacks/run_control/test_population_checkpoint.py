"""The best and the last checkpoint of every member of a population."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger

import leyden
from app.monitor.curves import Curves
from callbacks.run_control.checkpoint import PopulationCheckpoint, RunCheckpoint
from datamodules.core.files.run_checkpoints import checkpoint_in
from modules.ppo.population import PPOPopulation
from modules.ppo.ppo import PPO
from tests.support.small_runs import snake_data, trainer

SEEDS = [4, 2]


def fitted(root: Path, **settings: Any) -> PPOPopulation:
    lightning.seed_everything(1, verbose=False)
    data = snake_data(total_env_steps=768)
    model = PPOPopulation(data.spaces, SEEDS, update_epochs=1, num_minibatches=4, learning_rate=1e-2)
    callback = PopulationCheckpoint(RunCheckpoint(**settings))
    logger = TensorBoardLogger(root, "", "")
    trainer(root, callback, logger=logger, val_check_interval=2).fit(model, datamodule=data)
    return model


def evaluations(folder: Path, tag: str) -> list[float]:
    curves = Curves(folder)
    curves.refresh()
    return [value for _, value in curves.by_tag[tag].points]


def test_the_last_checkpoint_has_the_weights_of_its_member_and_loads_as_ppo(tmp_path: Path) -> None:
    population = fitted(tmp_path)

    for index, seed in enumerate(SEEDS):
        path = tmp_path / f"seed_{seed}" / "checkpoints" / "last.ckpt"
        member = PPO.load_from_checkpoint(path)
        for own, members in zip(member.parameters(), population.parameters(), strict=True):
            assert torch.equal(own, members[index].cpu())
        assert type(leyden.load(path).module) is PPO and member.env_steps == 768 and "seeds" not in member.hparams


@pytest.mark.parametrize(
    "settings", [{}, {"mode": "min"}, {"monitor": "eval/length_mean"}, {"save_top_k": 2}, {"save_top_k": 0}]
)
def test_the_best_is_chosen_for_each_member_by_the_settings(tmp_path: Path, settings: dict[str, Any]) -> None:
    fitted(tmp_path, **settings)

    monitor, kept = settings.get("monitor", "eval/return_mean"), settings.get("save_top_k", 1)
    for seed in SEEDS:
        folder = tmp_path / f"seed_{seed}"
        values = sorted(evaluations(folder, monitor), reverse=settings.get("mode") != "min")
        names = [path.name for path in (folder / "checkpoints").glob("best*.ckpt")]
        name = monitor.rpartition("/")[2]
        assert sorted(names) == sorted(
            next(n for n in names if n.endswith(f"{name}={v:.2f}.ckpt")) for v in values[:kept]
        )
        if kept == 1:
            assert checkpoint_in(folder).name == names[0]


def test_settings_of_the_callback_given_do_not_change(tmp_path: Path) -> None:
    settings = RunCheckpoint()
    callback = PopulationCheckpoint(settings)
    data = snake_data()
    trainer(tmp_path, callback).fit(PPOPopulation(data.spaces, SEEDS, num_minibatches=1), datamodule=data)

    assert settings.dirpath is None and not settings.best_model_path and callback.members[0].save_weights_only


def test_the_values_of_an_evaluation_are_copied_once_for_all_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = []
    candidates = RunCheckpoint._monitor_candidates
    monkeypatch.setattr(RunCheckpoint, "_monitor_candidates", lambda *given: copies.append(1) or candidates(*given))
    model = fitted(tmp_path)

    assert len(copies) == model.trainer.global_step // 2
