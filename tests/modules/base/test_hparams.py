"""Checkpoints described as plain data: made again as they were, and never a way to run code."""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.cli import instantiate_module
from torch import nn

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec
from datamodules.envs.four_rooms import Eigenpurpose, PrimitiveAction
from datamodules.replay import ReplayDataModule
from modules.base.algorithm import Algorithm
from modules.base.hparams import check_importable, to_plain, warn_once
from modules.dqn.dqn import DQN
from modules.dqn.pqn import PQN
from modules.networks import CNN, MLP, NatureCNN
from modules.networks.heads.twin_critic import TwinMLP, TwinTorsoCritic
from modules.networks.preprocessing import Preprocessing
from modules.ppo.ppo import PPO
from modules.sac.curiosity import Curiosity
from modules.sac.sac import SAC
from modules.sac_options.controller import OptionController
from modules.sac_options.sac_options import SACOptions
from tests.support.small_runs import fitted, small_ppo, snake_data, trainer, weights_hash


def checkpoint_naming(root: Path, **hparams: Any) -> Path:
    fitted(root, snake_data(total_env_steps=128))
    model = small_ppo(snake_data())
    run = trainer(root)
    run.fit(model, datamodule=snake_data(total_env_steps=128))
    run.save_checkpoint(root / "a.ckpt")
    content = torch.load(root / "a.ckpt", weights_only=True)
    content["hyper_parameters"] |= hparams
    torch.save(content, root / "a.ckpt")
    return root / "a.ckpt"


@pytest.mark.parametrize(
    "network",
    [
        "subprocess.getoutput",
        "os.system",
        "evilmod.Network",
        "datamodules.base.torch.load",
        "modules.ppo.ppo.torch.load",
        "modules.base.hparams.import_module",
    ],
)
def test_a_checkpoint_that_names_foreign_code_is_refused_and_nothing_runs(tmp_path: Path, network: str) -> None:
    marker = tmp_path / "marker"
    named = {"class_path": network, "init_args": {"cmd": f"touch {marker}", "command": f"touch {marker}"}}
    path = checkpoint_naming(tmp_path, network=named)
    with pytest.raises(ConfigurationError, match=rf"names {network}, which may not be imported"):
        PPO.load_from_checkpoint(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    "path",
    [
        "modules.PPO",
        "modules.networks.MLP",
        "torch.nn.Tanh",
        "torch.optim.Adam",
        "datamodules.envs.four_rooms.PrimitiveAction",
        "datamodules.trading.HoldWeight",
    ],
)
def test_parts_of_a_model_that_ship_with_leyden_need_no_trust(path: str) -> None:
    check_importable({"scripted_options": [{"class_path": path}]}, ())


def test_a_missing_part_imports_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evilmod.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w').close()")
    monkeypatch.syspath_prepend(tmp_path)
    check_importable("modules.nothing.evilmod.Network", ())
    assert not (tmp_path / "marker").exists()


def test_an_activation_is_imported_only_if_it_may_be(tmp_path: Path) -> None:
    named = {"class_path": "modules.networks.MLP", "init_args": {"activation": "evilmod.Tanh"}}
    with pytest.raises(ConfigurationError, match=r"names evilmod\.Tanh"):
        PPO.load_from_checkpoint(checkpoint_naming(tmp_path, network=named))


def test_a_url_is_no_checkpoint() -> None:
    with pytest.raises(ConfigurationError, match="is not a local file"):
        PPO.load_from_checkpoint("https://example.org/a.ckpt")


def test_functions_of_plain_arguments_are_described_and_others_left_out() -> None:
    hparams = {"network": functools.partial(MLP, hidden=(32,)), "optimizer": lambda params: None, "gamma": 0.9}
    plain = to_plain(hparams, PPO)
    assert plain["network"] == {"class_path": "modules.networks.MLP", "init_args": {"hidden": (32,)}}
    assert "optimizer" not in plain and plain["gamma"] == 0.9


def test_what_holds_something_that_cannot_be_described_is_left_out_whole() -> None:
    hparams = {"listed": [object()], "made": functools.partial(MLP, activation=object()), "plain": [1, "a"]}

    plain = to_plain(hparams, PPO)

    assert plain["plain"] == [1, "a"] and not {"listed", "made"} & set(plain)


FRAMES = SpaceSpec(
    obs_shape=(6, 6, 3),
    obs_dtype="uint8",
    obs_high=8,
    action_type="discrete",
    action_sizes=[2],
    action_low=[],
    action_high=[],
    action_start=[0],
    num_agents=1,
)
CRITIC: dict[str, Any] = {"critic": functools.partial(TwinTorsoCritic, network=CNN)}


def layers(model: nn.Module) -> list[tuple[str, str, Any]]:
    """Every layer with its scale, if it has one."""
    parts = model.named_modules()
    return [(name, repr(part), part.scale if isinstance(part, Preprocessing) else None) for name, part in parts]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (PPO, {"network": CNN}),
        (PPO, {"network": NatureCNN, "share_torso": True}),
        (PPO, {"network": functools.partial(CNN, channels=(4,), channels_last=True)}),
        (PPO, {"network": functools.partial(MLP, activation=nn.Mish)}),
        (PPO, {"network": functools.partial(CNN, activation=nn.Mish, scale=0.5)}),
        (DQN, {"network": CNN}),
        (DQN, {"network": NatureCNN, "optimizer": torch.optim.SGD}),
        (PQN, {"network": CNN}),
        (SAC, {"network": CNN, **CRITIC}),
        (SAC, {"network": CNN, "curiosity": functools.partial(Curiosity, network=CNN), **CRITIC}),
        (SACOptions, {"network": CNN, "controller": functools.partial(OptionController, network=CNN), **CRITIC}),
    ],
)
def test_networks_that_are_not_the_default_are_made_again_as_they_were(
    kind: type[Algorithm], settings: dict[str, Any]
) -> None:
    frames: SpaceSpec = {**FRAMES, "obs_shape": (36, 36, 3)} if settings["network"] is NatureCNN else FRAMES
    model = kind(frames, **settings)

    again: Any = instantiate_module(
        kind, {key: value for key, value in to_plain(dict(model.hparams), kind).items() if key != "_instantiator"}
    )

    assert layers(again) == layers(model)


@pytest.mark.parametrize("made", ["option_rewards", "scripted_options"])
def test_objects_made_in_python_are_named_when_saved_and_when_a_loading_lacks_them(made: str, tmp_path: Path) -> None:
    warn_once.cache_clear()
    nets = {"network": functools.partial(MLP, hidden=(8,)), "critic": functools.partial(TwinMLP, hidden=(8,))}
    objects: list[Any] = [Eigenpurpose(1), "task"] if made == "option_rewards" else [PrimitiveAction("up")] * 2
    sizes: dict[str, Any] = {"num_envs": 4, "train_freq": 2, "batch_size": 16, "replay_ratio": 2, "capacity": 1000}
    data = ReplayDataModule("FourRooms-v0", learning_starts=8, total_env_steps=80, eval_episodes=1, **sizes)
    controller = functools.partial(OptionController, network=nets["network"])
    model = SACOptions(data.spaces, num_options=2, controller=controller, **{made: objects}, **nets)
    run = trainer(tmp_path)
    run.fit(model, datamodule=data)

    with pytest.warns(
        UserWarning, match=rf"not model\.{made}, made in Python: load them with SACOptions\.load"
    ) as said:
        run.save_checkpoint(tmp_path / "b.ckpt")
        run.save_checkpoint(tmp_path / "a.ckpt")
    assert sum("made in Python" in str(each.message) for each in said) == 1

    with pytest.raises(ConfigurationError, match=rf"a\.ckpt does not hold model\.{made}, .*\(path, {made}=\.\.\.\)"):
        SACOptions.load_from_checkpoint(tmp_path / "a.ckpt")
    loaded = SACOptions.load_from_checkpoint(tmp_path / "a.ckpt", **{made: objects})
    assert weights_hash(loaded) == weights_hash(model)
