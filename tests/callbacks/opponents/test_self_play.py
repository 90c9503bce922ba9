"""Past checkpoints of a run as its opponents."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from callbacks.opponents.self_play import SelfPlay
from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.tensor_files import load_tensors
from datamodules.rollout import RolloutDataModule
from modules.opponents.checkpoint_pool import CheckpointPool
from modules.ppo.ppo import PPO
from tests.support.small_runs import small_ppo, trainer

POOL = partial(CheckpointPool, size=2)


def carball(iterations: int, **changes: Any) -> RolloutDataModule:
    settings: dict[str, Any] = {"policy_group": [0, 1], "opponents": [POOL]}
    settings["env_kwargs"] = {"mode": "1v1", "time_limit": 100}
    steps = {"num_envs": 4, "rollout_length": 8, "total_env_steps": 32 * iterations, "eval_episodes": 2}
    return RolloutDataModule("Carball-v0", **{**settings, **steps, **changes})


def fit(root: Path, iterations: int, self_play: SelfPlay, ckpt_path: Path | None = None) -> tuple[PPO, CheckpointPool]:
    torch.manual_seed(0)
    data = carball(iterations)
    model = small_ppo(data, learning_rate_schedule="constant")
    trainer(root, RunCheckpoint(), self_play).fit(model, datamodule=data, ckpt_path=ckpt_path)
    (pool,) = data.agents.opponents(torch.device("cpu"))
    assert isinstance(pool, CheckpointPool)
    return model, pool


def weights(path: Path) -> dict[str, torch.Tensor]:
    return load_tensors(path, cure="")["state_dict"]


def numbers(root: Path) -> list[int]:
    """The iterations of the checkpoints in a run's pool."""
    return sorted(int(path.stem.partition("=")[2]) for path in (root / "checkpoints" / "pool").glob("*.ckpt"))


def same(module: torch.nn.Module, state: dict[str, torch.Tensor]) -> bool:
    own = module.state_dict()
    return own.keys() == state.keys() and all(torch.equal(own[name], state[name]) for name in own)


def test_the_newest_checkpoints_play(tmp_path: Path) -> None:
    _, pool = fit(tmp_path, 5, SelfPlay(every_n_iterations=2))

    saved = sorted(tmp_path.rglob("pool/*.ckpt"))
    assert [path.stem for path in saved] == [f"iteration={number:07d}" for number in (0, 2, 4)]
    assert same(pool.policies[0], weights(saved[1])) and same(pool.policies[1], weights(saved[2]))
    assert not same(pool.policies[0], weights(saved[0]))


def test_an_evaluation_during_the_fit_leaves_the_opponents_alone(tmp_path: Path) -> None:
    data = carball(3)
    model, self_play = small_ppo(data), SelfPlay(every_n_iterations=100)
    trainer(tmp_path, RunCheckpoint(), self_play, val_check_interval=1).fit(model, datamodule=data)

    (pool,), (saved,) = data.agents.opponents(torch.device("cpu")), tmp_path.rglob("pool/*.ckpt")
    assert isinstance(pool, CheckpointPool) and same(pool.policies[0], weights(saved))


@pytest.mark.parametrize("verb", ["validate", "test", "predict"])
def test_outside_of_a_fit_the_weights_of_the_checkpoint_play(tmp_path: Path, verb: str) -> None:
    fit(tmp_path, 2, SelfPlay())
    (last,) = tmp_path.rglob("last.ckpt")
    data = carball(1)

    getattr(trainer(tmp_path, SelfPlay()), verb)(small_ppo(data), datamodule=data, ckpt_path=last)

    (pool,) = data.agents.opponents(torch.device("cpu"))
    assert isinstance(pool, CheckpointPool) and same(pool.policies[0], weights(last))


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    fit(tmp_path, 5, SelfPlay(every_n_iterations=1, keep=2))

    assert [path.stem[-1] for path in sorted(tmp_path.rglob("pool/*.ckpt"))] == ["4", "5"]


def test_a_resumed_run_has_the_opponents_and_the_weights_of_one_without_a_break(tmp_path: Path) -> None:
    whole, pool = fit(tmp_path / "whole", 6, SelfPlay(every_n_iterations=2))
    fit(tmp_path / "half", 3, SelfPlay(every_n_iterations=2))
    (last,) = (tmp_path / "half").rglob("last.ckpt")

    resumed, again = fit(tmp_path / "rest", 6, SelfPlay(every_n_iterations=2), last)

    assert same(resumed, whole.state_dict()) and same(again, pool.state_dict())


def test_a_run_resumed_twice_has_the_opponents_and_the_weights_of_one_without_a_break(tmp_path: Path) -> None:
    whole, pool = fit(tmp_path / "whole", 8, SelfPlay(every_n_iterations=3))
    fit(tmp_path / "first", 4, SelfPlay(every_n_iterations=3))
    fit(tmp_path / "second", 5, SelfPlay(every_n_iterations=3), tmp_path / "first/checkpoints/last.ckpt")
    shutil.rmtree(tmp_path / "first")

    last = tmp_path / "second/checkpoints/last.ckpt"
    resumed, again = fit(tmp_path / "third", 8, SelfPlay(every_n_iterations=3), last)

    assert numbers(tmp_path / "second") == [0, 3] and numbers(tmp_path / "third") == [0, 3, 6]
    assert same(resumed, whole.state_dict()) and same(again, pool.state_dict())


def test_a_run_resumes_from_a_checkpoint_of_the_pool(tmp_path: Path) -> None:
    whole, pool = fit(tmp_path / "whole", 5, SelfPlay(every_n_iterations=2))
    past = tmp_path / "whole/checkpoints/pool/iteration=0000002.ckpt"

    resumed, again = fit(tmp_path / "rest", 5, SelfPlay(every_n_iterations=2), past)

    assert numbers(tmp_path / "rest") == [0, 2, 4], "without checkpoint 4 of the earlier run"
    assert same(resumed, whole.state_dict()) and same(again, pool.state_dict())


def test_a_resumed_run_leaves_the_checkpoints_of_the_earlier_run_alone(tmp_path: Path) -> None:
    fit(tmp_path / "half", 3, SelfPlay(every_n_iterations=1, keep=3))
    before = sorted((tmp_path / "half/checkpoints/pool").iterdir())

    last = tmp_path / "half/checkpoints/last.ckpt"
    fit(tmp_path / "rest", 6, SelfPlay(every_n_iterations=1, keep=2), last)

    assert sorted((tmp_path / "half/checkpoints/pool").iterdir()) == before
    assert numbers(tmp_path / "rest") == [5, 6]


def test_the_opponents_change_what_is_learned(tmp_path: Path) -> None:
    often, _ = fit(tmp_path / "often", 4, SelfPlay(every_n_iterations=1))
    never, _ = fit(tmp_path / "never", 4, SelfPlay(every_n_iterations=100))

    assert not same(often, never.state_dict())


def test_bad_settings_are_refused(tmp_path: Path) -> None:
    for name in ("every_n_iterations", "keep"):
        with pytest.raises(ConfigurationError, match=f"^SelfPlay has {name} 0; choose at least 1"):
            SelfPlay(**{name: 0})
    with pytest.raises(ConfigurationError, match="keeps 1 checkpoint, and the pool plays 2"):
        fit(tmp_path, 1, SelfPlay(keep=1))
    data = carball(1, policy_group=None, opponents=None)
    with pytest.raises(ConfigurationError, match="SelfPlay has no opponents"):
        trainer(tmp_path, RunCheckpoint(), SelfPlay()).fit(small_ppo(data), datamodule=data)
    data = carball(1)
    with pytest.raises(ConfigurationError, match=r"needs callbacks\.SelfPlay"):
        trainer(tmp_path).fit(small_ppo(data), datamodule=data)
