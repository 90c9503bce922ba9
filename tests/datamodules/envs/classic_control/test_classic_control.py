from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest
import torch

import datamodules.envs  # noqa: F401  (registers the ids)
from datamodules.core.errors import ConfigurationError
from datamodules.vector.resolve_env import resolve_env

TWINS = {
    "CartPoleDevice-v1": "CartPole-v1",
    "PendulumDevice-v1": "Pendulum-v1",
    "AcrobotDevice-v1": "Acrobot-v1",
    "MountainCarDevice-v0": "MountainCar-v0",
    "MountainCarContinuousDevice-v0": "MountainCarContinuous-v0",
}
"""Our ids and Gymnasium's."""

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
"""Of observations and rewards after one step from the same state, in float32 and float64."""

every_env = pytest.mark.parametrize("name", TWINS)


def as_state(env, motion, steps: int) -> dict:
    """Our state of one row with the variables of Gymnasium's."""
    variables = torch.tensor(np.array(motion), dtype=torch.float32)[:, None]
    return dict(zip(env.variables, variables, strict=True)) | {"steps": torch.tensor([steps])}


def step_both(name: str, steps: int, seed: int = 0) -> Iterator[tuple[tuple, tuple]]:
    """Step ours and Gymnasium's from the same state with the same action: observation, reward and flags of both."""
    ours, theirs = resolve_env(name).tensor_env(), gymnasium.make(TWINS[name])
    theirs.action_space.seed(seed)
    theirs.reset(seed=seed)
    count = 0
    for _ in range(steps):
        motion = as_state(ours, theirs.unwrapped.state, count)
        action = theirs.action_space.sample()
        tensor = torch.as_tensor(action)[None]
        after, *outcome = ours.transition(motion, tensor, torch.empty(1, 0))
        obs, reward, terminated, truncated, _ = theirs.step(action)
        yield (ours.observation(after)[0], *(part[0] for part in outcome)), (obs, reward, terminated, truncated)
        count += 1
        if terminated or truncated:
            theirs.reset()
            count = 0


@every_env
def test_every_step_equals_gymnasiums(name):
    ends = 0
    for ours, theirs in step_both(name, 1500):
        for mine, other in zip(ours[:2], theirs[:2], strict=True):
            torch.testing.assert_close(mine, torch.as_tensor(other, dtype=torch.float32), **TOLERANCE)
        assert [bool(flag) for flag in ours[2:]] == list(theirs[2:])
        ends += any(theirs[2:])
    assert ends


@every_env
def test_spaces_and_time_limit_are_gymnasiums(name):
    ours, theirs = gymnasium.make(name), gymnasium.make(TWINS[name])

    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.unwrapped.tensor_env.min_truncation_step == theirs.spec.max_episode_steps


@every_env
def test_episodes_start_where_gymnasiums_do(name):
    ours, theirs = resolve_env(name).tensor_env(), gymnasium.make(TWINS[name])

    drawn = torch.stack(ours.motion(ours.initial(torch.rand(2000, ours.noise_size))), 1)
    theirs.reset(seed=0)
    reached = []
    for _ in range(2000):
        theirs.reset()
        reached.append(np.array(theirs.unwrapped.state))

    expected = torch.tensor(np.array(reached), dtype=torch.float32)
    spread = expected.std(0)
    assert ((drawn.mean(0) - expected.mean(0)).abs() <= 0.1 * spread).all()
    assert ((drawn.std(0) - spread).abs() <= 0.1 * spread).all()


@every_env
def test_the_time_limit_is_a_setting(name):
    env = resolve_env(name).tensor_env(time_limit=3)
    state = env.initial(torch.rand(2, env.noise_size))
    action = torch.zeros((2, 1)) if env.spaces["action_type"] == "continuous" else torch.zeros(2, dtype=torch.int64)

    ends = []
    for _ in range(3):
        state, _, _, truncated = env.transition(state, action, torch.rand(2, env.noise_size))
        ends.append(truncated.tolist())

    assert ends == [[False, False], [False, False], [True, True]]
    with pytest.raises(ConfigurationError, match="at least 1 step"):
        resolve_env(name).tensor_env(time_limit=0)


@pytest.mark.parametrize(
    ("name", "motion", "goal_reward"),
    [("AcrobotDevice-v1", [3.0, 0.1, 0.5, 0.0], 0.0), ("MountainCarDevice-v0", [0.49, 0.05], -1.0),
     ("MountainCarContinuousDevice-v0", [0.44, 0.05], 99.9)],
)  # fmt: skip
def test_reaching_the_goal_terminates(name, motion, goal_reward):
    env = resolve_env(name).tensor_env()
    action = torch.ones(1, 1) if env.spaces["action_type"] == "continuous" else torch.tensor([1])
    state = as_state(env, motion, 0)

    _, reward, terminated, truncated = env.transition(state, action, torch.empty(1, 0))

    assert terminated.item() and not truncated.item()
    assert reward.item() == pytest.approx(goal_reward)
