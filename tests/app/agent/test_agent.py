"""An agent of a checkpoint takes the actions that `predict` records, in the environment's own terms."""

import sys
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer, seed_everything

from app.__main__ import main
from app.agent.agent import Agent
from app.agent.arrays import env_action_space
from app.agent.load import load
from callbacks import RunCheckpoint
from datamodules import RolloutDataModule, SequenceDataModule
from datamodules.core.errors import ConfigurationError
from datamodules.env_interface.spaces import to_space_spec
from modules import PPO, ActiveDynamics, FullyObservedModel
from modules.networks import LSTM
from modules.networks.latent import RBF

SHORT = ["--trainer.max_steps=2", "--trainer.accelerator=cpu", "--data.num_envs=4", "--data.eval_max_steps=80"]
OFF_POLICY = ["--data.learning_starts=16", "--data.eval_episodes=2"]


def fitted(config: str, monkeypatch: pytest.MonkeyPatch, folder: Path, *more: str) -> Path:
    """Train two iterations of a shipped config, play its evaluation episodes, and return the run folder."""
    monkeypatch.chdir(folder)
    for verb in ("fit", "predict"):
        words = ["app", verb, "--config", config, *SHORT, *more, *(["--ckpt_path=last"] if verb == "predict" else [])]
        monkeypatch.setattr(sys, "argv", words)
        main()
    (run,) = folder.glob("runs/*/version_0")
    return run


@pytest.mark.parametrize(
    ("config", "more"),
    [
        ("ppo_pendulum.yaml", ["--data.eval_episodes=2"]),
        ("ppo_cartpole_memory.yaml", ["--data.eval_episodes=2"]),
        ("sac_pendulum.yaml", OFF_POLICY),
        ("sac_options_fourrooms.yaml", [*OFF_POLICY, "--data.eval_greedy=true"]),
    ],
    ids=["normalised", "recurrent", "squashed", "options"],
)
def test_an_agent_acts_as_predict_recorded(
    config: str, more: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = fitted(config, monkeypatch, tmp_path, *more)
    recorded = np.load(run / "trajectories.npz")
    agent = load(run / "checkpoints" / "last.ckpt")
    obs = recorded["obs"][: recorded["obs_start"][1] - 1]
    expected = recorded["action"][: len(obs)]

    state, actions = None, []
    for each in obs[:60]:
        action, state = agent.predict(each, state)
        actions.append(action)

    wanted = agent.encode(torch.from_numpy(expected[: len(actions)]))
    np.testing.assert_allclose(np.stack(actions), wanted, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def recurrent() -> Agent:
    """A recurrent agent of `CartPole-v1`, untrained."""
    seed_everything(1)
    data = RolloutDataModule("CartPole-v1")
    model = PPO(data.spaces, network=LSTM, share_torso=True)
    model.modes.eval_()
    return Agent(model, seed=3)


def test_a_batch_is_its_rows(recurrent: Agent) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 4))

    together, states = recurrent.predict(rows)
    alone = [recurrent.predict(row) for row in rows]

    assert together.tolist() == [int(action) for action, _ in alone]
    assert states is not None
    for row, (_, state) in enumerate(alone):
        assert state is not None
        np.testing.assert_allclose(states["hidden"][row], state["hidden"][0], atol=1e-6)


def test_an_episode_start_resets_its_rows(recurrent: Agent) -> None:
    rows = np.random.default_rng(0).normal(size=(2, 4))
    _, first = recurrent.predict(rows)

    _, begun = recurrent.predict(rows, first, episode_start=np.array([True, False]))

    assert first is not None and begun is not None
    np.testing.assert_allclose(begun["hidden"][0], first["hidden"][0], atol=1e-6)
    assert np.abs(begun["hidden"][1] - first["hidden"][1]).max() > 1e-4


def test_sampled_actions_follow_the_seed(recurrent: Agent) -> None:
    rows = np.zeros((200, 4))

    recurrent.seed(5)
    first, _ = recurrent.predict(rows, deterministic=False)
    recurrent.seed(5)
    again, _ = recurrent.predict(rows, deterministic=False)
    other, _ = recurrent.predict(rows, deterministic=False)

    assert first.tolist() == again.tolist() != other.tolist()
    assert set(first.tolist()) == {0, 1}


def test_forbidden_actions_are_not_taken(recurrent: Agent) -> None:
    rows = np.random.default_rng(0).normal(size=(50, 4))

    action, _ = recurrent.predict(rows, action_mask=np.tile([False, True], (50, 1)))

    assert set(action.tolist()) == {1}


@pytest.mark.parametrize(
    ("obs", "state", "said"),
    [
        (np.zeros(5), None, r"shape \(5,\); the agent was trained on \(4,\)"),
        (np.zeros((2, 4)), {"hidden": np.zeros((1, 128))}, "hidden is of shape"),
        (np.zeros(4), {}, "hidden is missing"),
    ],
)
def test_arrays_of_other_shapes_are_refused(recurrent: Agent, obs, state, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigurationError, match=said):
        recurrent.predict(obs, state)


def test_a_planner_carries_its_belief_and_its_plan() -> None:
    data = SequenceDataModule("Duffing-v0")
    dynamics = RBF(low=[-2.0, -2.0], high=[2.0, 2.0], centres=3)
    model = ActiveDynamics(data.spaces, FullyObservedModel(dynamics))
    model.modes.eval_()
    agent = Agent(model, seed=0)

    first, state = agent.predict(np.zeros(2), deterministic=False)
    second, following = agent.predict(np.full(2, 0.1), state, deterministic=False)

    assert state is not None and following is not None
    assert first.shape == second.shape == (len(data.spaces["action_low"]),)
    assert not np.array_equal(state["explore/plan"], following["explore/plan"])


def test_actions_are_of_the_environments_space() -> None:
    env = gymnasium.make("Pendulum-v1")
    data = RolloutDataModule("Pendulum-v1")
    model = PPO(data.spaces)
    with torch.no_grad():
        model.actor.linear.bias.fill_(100.0)

    action, state = Agent(model).predict(env.reset(seed=0)[0])

    assert state is None and action.tolist() == [2.0] and env.action_space.contains(action)


def test_a_run_made_in_python_keeps_its_data_for_later(tmp_path: Path) -> None:
    seed_everything(1)
    data = RolloutDataModule("CartPole-v1", num_envs=2, rollout_length=16, total_env_steps=32, eval_episodes=2)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = Trainer(
        max_epochs=1, check_val_every_n_epoch=None, default_root_dir=tmp_path, callbacks=[RunCheckpoint()], **quiet
    )
    trainer.fit(PPO(data.spaces), data)

    agent = load(tmp_path)
    checkpoint = torch.load(str(agent.path), weights_only=True)

    assert checkpoint["datamodule_hyper_parameters"]["_class_path"] == "datamodules.RolloutDataModule"
    assert agent.env_steps == 32 and "PPO" in repr(agent)
    with pytest.raises(ConfigurationError, match="There is no checkpoint"):
        load(tmp_path / "nothing")


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Box(-2, 3, (2, 3), np.float32),
        gymnasium.spaces.Box(np.array([-1.0, 0.5]), np.array([1.0, 0.5]), dtype=np.float64),
        gymnasium.spaces.Box(-1, 3, (2,), np.int32),
        gymnasium.spaces.Discrete(3, start=5),
        gymnasium.spaces.MultiDiscrete([2, 3], start=[1, 2]),
        gymnasium.spaces.MultiBinary(3),
    ],
    ids=["shaped", "constant", "whole", "discrete", "multidiscrete", "binary"],
)
def test_every_action_is_of_the_environments_space(space: gymnasium.Space) -> None:
    spaces = to_space_spec(gymnasium.spaces.Discrete(4, start=1), space, name="test")
    agent = Agent(PPO(spaces), seed=0)

    single, _ = agent.predict(3)
    batch, _ = agent.predict([1, 2, 4] * 20, deterministic=False)

    assert env_action_space(spaces) == space
    assert space.contains(single) and all(space.contains(action) for action in batch)
    with pytest.raises(ConfigurationError, match="must be an integer"):
        agent.predict(0.5)


def test_parts_of_an_observation_are_taken_as_the_environment_gives_them() -> None:
    parts = {
        "camera": gymnasium.spaces.Box(0, 255, (8, 8, 3), np.uint8),
        "body": gymnasium.spaces.Dict(
            {"speed": gymnasium.spaces.Box(-1, 1, (2,)), "gear": gymnasium.spaces.Discrete(3)}
        ),
        "action_mask": gymnasium.spaces.MultiBinary(2),
    }
    space = gymnasium.spaces.Dict(parts)
    agent = Agent(PPO(to_space_spec(space, gymnasium.spaces.Discrete(2), name="test")), seed=0)
    obs = space.sample() | {"action_mask": np.array([0, 1], np.int8)}

    single, _ = agent.predict(obs)
    batch, _ = agent.predict({"camera": obs["camera"][None], "body.speed": [[0.0, 0.1]], "body.gear": [1]})

    assert single == 1, "the mask in the observation holds"
    assert batch.shape == (1,)
    with pytest.raises(ConfigurationError, match=r"obs lacks body\.gear, body\.speed"):
        agent.predict({"camera": obs["camera"]})


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_maximum_batch_splits_the_calls_of_the_policy_and_changes_nothing(deterministic: bool) -> None:
    spaces = RolloutDataModule("CartPole-v1").spaces
    model = PPO(spaces, network=partial(LSTM, hidden=8), share_torso=True)
    obs, sizes = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32), []
    whole, split = Agent(model, seed=1), Agent(model, seed=1, max_batch_size=4)
    expected, state = whole.predict(obs, deterministic=deterministic)
    act = model.act
    model.act = lambda inputs, *rest, **more: sizes.append(len(inputs.episode_start)) or act(inputs, *rest, **more)

    actions, states = split.predict(obs, deterministic=deterministic)

    assert sizes == [4, 4, 2] and np.array_equal(actions, expected)
    assert "at most 4 rows a call" in repr(split) and "rows" not in repr(whole)
    assert state is not None and states is not None
    assert all(np.allclose(states[name], state[name], atol=1e-6) for name in state)
    with pytest.raises(ConfigurationError, match="max_batch_size is 0"):
        Agent(model, max_batch_size=0)
