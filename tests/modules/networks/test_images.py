"""Every algorithm on images as people have them: in any layout and dtype, the same numbers learn the same."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.base import EnvDataModule
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput
from datamodules.replay import ReplayDataModule
from datamodules.rollout import RolloutDataModule
from modules.base.algorithm import Algorithm
from modules.dqn.dqn import DQN
from modules.dqn.pqn import PQN
from modules.networks import CNN, GRU, MLP, NatureCNN
from modules.networks.heads.twin_critic import TwinMLP, TwinTorsoCritic
from modules.networks.preprocessing import Preprocessing
from modules.ppo.ppo import PPO
from modules.sac.curiosity import Curiosity
from modules.sac.sac import SAC
from modules.sac_options.controller import OptionController
from modules.sac_options.sac_options import SACOptions
from tests.support.dynamics_fixtures import explorer, spring_data
from tests.support.small_runs import Told, trainer, weights_hash

GRID, WRAPPED = "tests.support.image_envs.Grid", "tests.support.image_envs:WrappedCamera-v0"

SMALL = partial(MLP, hidden=(16,), activation="relu")
CONV = partial(CNN, channels=(4,), hidden=(16,))
NATURE = partial(NatureCNN, features=16)


def critic(network: Any) -> Any:
    return partial(TwinMLP, hidden=(16,)) if network is SMALL else partial(TwinTorsoCritic, network=network, hidden=16)


ALGORITHMS: dict[str, Callable[[Any, Any], Algorithm]] = {
    "ppo": lambda spaces, network: PPO(spaces, network=network, num_minibatches=2, update_epochs=2),
    "ppo_shared": lambda spaces, network: PPO(spaces, network=network, num_minibatches=2, share_torso=True),
    "ppo_normalized": lambda spaces, network: PPO(spaces, network=network, num_minibatches=2, normalize_obs=True),
    "pqn": lambda spaces, network: PQN(spaces, network=network, num_minibatches=2),
    "dqn": lambda spaces, network: DQN(spaces, network=network, target_interval=4),
    "sac": lambda spaces, network: SAC(spaces, network=network, critic=critic(network)),
    "sac_curious": lambda spaces, network: SAC(
        spaces, network=network, critic=critic(network), curiosity=partial(Curiosity, network=network)
    ),
    "options": lambda spaces, network: SACOptions(
        spaces, 2, network=network, critic=critic(network), controller=partial(OptionController, network=network)
    ),
}


def grid_data(name: str, **changes: Any) -> EnvDataModule:
    """Four views; four iterations that learn."""
    common = {"env": GRID, "backend": "sync", "num_envs": 4, "eval_episodes": 2, **changes}
    if name[:2] in ("pp", "pq"):
        return RolloutDataModule(**{"rollout_length": 8, "total_env_steps": 128, **common})
    replay = {"train_freq": 4, "batch_size": 16, "replay_ratio": 1, "capacity": 200, "learning_starts": 16}
    return ReplayDataModule(**{**replay, "total_env_steps": 96, **common})


def learned(
    root: Path, name: str, network: Any, *callbacks: Any, ckpt_path: Path | None = None, **changes: Any
) -> Algorithm:
    data = grid_data(name, **changes)
    lightning.seed_everything(1, verbose=False)
    model = ALGORITHMS[name](data.spaces, network)
    trainer(root, *callbacks).fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    return model


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_learns_the_same_from_either_layout(name: str, tmp_path: Path) -> None:
    models = [learned(tmp_path, name, CONV, env_kwargs={"layout": layout}) for layout in ("first", "last")]

    assert models[0].updates > 0
    same_but_for_statistics = [
        {key: value for key, value in model.state_dict().items() if "obs_normalizer" not in key} for model in models
    ]
    torch.testing.assert_close(*same_but_for_statistics, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("network", [SMALL, CONV], ids=["mlp", "cnn"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_learns_the_same_from_codes_and_from_their_shares(name: str, network: Any, tmp_path: Path) -> None:
    if name == "ppo_normalized":
        pytest.skip("observations are normalised by their own statistics")
    kinds = ("uint8", "float32") if network is CONV else ("uint8", "int32", "float32")
    models = [learned(tmp_path, name, network, env_kwargs={"high": 16, "dtype": dtype}) for dtype in kinds]

    assert len({weights_hash(model) for model in models}) == 1


@pytest.mark.parametrize("name", ["sac", "sac_curious", "options"])
def test_a_box_of_actions_learns_the_same_from_codes_and_from_their_shares(name: str, tmp_path: Path) -> None:
    kinds = ({"dtype": dtype, "continuous": True} for dtype in ("uint8", "float32"))
    codes, shares = (learned(tmp_path, name, SMALL, env_kwargs=kwargs) for kwargs in kinds)

    torch.testing.assert_close(codes.state_dict(), shares.state_dict(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("high", "scale"), [(255, 1 / 255), (10, 1 / 10), (1, 1.0)])
def test_bytes_are_scaled_by_what_their_space_allows(high: int, scale: float) -> None:
    data = grid_data("sac", env_kwargs={"high": high})
    for name in ("ppo", "dqn", "pqn", "sac", "sac_curious", "options"):
        parts = [part for part in ALGORITHMS[name](data.spaces, CONV).modules() if isinstance(part, Preprocessing)]
        assert {part.scale for part in parts} == {scale}
    given = PPO(data.spaces, network=partial(SMALL, scale=0.5))
    assert given.network.scale == 0.5


def test_normalised_observations_are_not_scaled_again() -> None:
    spaces = grid_data("ppo").spaces
    model = PPO(spaces, network=CONV, normalize_obs=True)
    assert model.network.scale == 1 and model.value_network.scale == 1


def test_a_recurrent_network_learns_the_same_from_codes_and_from_their_shares(tmp_path: Path) -> None:
    network = partial(GRU, hidden=8, encoder=(8,))
    kinds = ("uint8", "float32")
    models = [learned(tmp_path, "ppo_shared", network, env_kwargs={"dtype": dtype}) for dtype in kinds]

    assert weights_hash(models[0]) == weights_hash(models[1])


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac"])
def test_bytes_do_not_go_the_short_way_past_their_scale(name: str, tmp_path: Path) -> None:
    told = Told()
    learned(tmp_path, name, SMALL, told, env_kwargs={"continuous": name == "sac"})
    assert told.manual_backward is (name == "ppo")  # the short form of PPO scales


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac", "options"])
def test_a_loaded_model_and_a_resumed_run_see_images_as_before(name: str, tmp_path: Path) -> None:
    half = {"total_env_steps": 64 if name == "ppo" else 48}
    model = learned(tmp_path / "half", name, CONV, RunCheckpoint(), **half)
    last = next(tmp_path.rglob("last.ckpt"))
    obs, episode_start = torch.randint(0, 16, (64, 7, 7, 3), dtype=torch.uint8), torch.ones(64, dtype=torch.bool)

    loaded = type(model).load_from_checkpoint(last)
    resumed = learned(tmp_path / "rest", name, CONV, ckpt_path=last)

    actions = [
        each.act(PolicyInput(obs, each.initial_state(64), episode_start), greedy=True)[0].action
        for each in (model, loaded)
    ]
    assert weights_hash(loaded) == weights_hash(model) and torch.equal(*actions)
    assert resumed.updates > model.updates and resumed.env_steps == grid_data(name).total_env_steps


@pytest.mark.parametrize(
    ("wrappers", "shape"),
    [
        ({}, (40, 48, 3)),
        ({"resize": 36}, (36, 36, 3)),
        ({"grey": True}, (40, 48)),
        ({"grey": True, "keep_dim": True}, (40, 48, 1)),
        ({"resize": 36, "grey": True, "stack": 4}, (4, 36, 36)),
        ({"grey": True, "keep_dim": True, "stack": 2}, (2, 40, 48, 1)),
        ({"stack": 3}, (3, 40, 48, 3)),
    ],
)
@pytest.mark.parametrize("name", ["ppo_shared", "dqn"])
def test_images_behind_the_wrappers_of_gymnasium_are_learned_from(
    name: str, wrappers: dict[str, Any], shape: tuple[int, ...], tmp_path: Path
) -> None:
    if "resize" in wrappers:
        pytest.importorskip("cv2")
    stored = {"frame_stack": wrappers["stack"]} if name == "dqn" and "stack" in wrappers else {}
    model = learned(tmp_path, name, NATURE, env=WRAPPED, env_kwargs=wrappers, **stored)

    assert tuple(model.spaces["obs_shape"]) == shape and model.spaces["obs_dtype"] == "uint8"
    assert model.updates > 0
    trainer(tmp_path).validate(model, datamodule=grid_data(name, env=WRAPPED, env_kwargs=wrappers), verbose=False)


@pytest.mark.parametrize(
    "kwargs", [{"frames": 4}, {"frames": 1}, {"dtype": "float32"}, {"frames": 4, "dtype": "float32"}]
)
def test_stacks_in_the_last_dimension_and_floats_are_learned_from(kwargs: dict[str, Any], tmp_path: Path) -> None:
    model = learned(tmp_path, "ppo_shared", NATURE, env="tests.support.image_envs.Camera", env_kwargs=kwargs)
    assert model.network.body[0].in_channels == kwargs.get("frames", 3)


def test_stacks_in_the_last_dimension_are_stored_whole() -> None:
    camera = {"env": "tests.support.image_envs.Camera", "env_kwargs": {"frames": 4}}
    with pytest.raises(
        ConfigurationError, match=r"frame_stack is 4, but .*\(40, 48, 4\): .* else 1, which stores .* unchanged"
    ):
        grid_data("dqn", **camera, frame_stack=4)


def test_frames_with_channels_are_stored_once(tmp_path: Path) -> None:
    data = grid_data("dqn", env=WRAPPED, env_kwargs={"stack": 3}, frame_stack=3)
    trainer(tmp_path).fit(ALGORITHMS["dqn"](data.spaces, NATURE), datamodule=data)

    ring = data.dataset.replay.ring
    assert ring.frames["frames"].shape[1:] == (40, 48, 3) and ring.frames["frames"].dtype == torch.uint8


def test_dynamics_are_not_learned_from_images() -> None:
    data = spring_data()
    for shown in ({"obs_shape": (7, 7, 3), "obs_dtype": "uint8"}, {"obs_shape": (3, 8, 8)}):
        data.spaces = {**data.spaces, **shown}
        with pytest.raises(ConfigurationError, match=r"learns the dynamics of state vectors.* are images"):
            explorer(data)
