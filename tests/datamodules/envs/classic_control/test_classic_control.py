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


def as_state(env, motions, steps: list[int]) -> dict:
    """Our state, a row for each of the variables of Gymnasium's."""
    variables = torch.tensor(np.array(motions), dtype=torch.float32).T
    return dict(zip(env.variables, variables, strict=True)) | {"steps": torch.tensor(steps)}


@every_env
def test_every_step_equals_gymnasiums(name):
    ours, theirs, steps = resolve_env(name).tensor_env(), gymnasium.make(TWINS[name]), 1500
    theirs.action_space.seed(0)
    theirs.reset(seed=0)
    motions, actions, counts, outcomes = [], [], [0], []
    for _ in range(steps):
        motions.append(theirs.unwrapped.state)
        actions.append(theirs.action_space.sample())
        outcomes.append(theirs.step(actions[-1])[:4])
        ends = any(outcomes[-1][2:])
        counts.append(0 if ends else counts[-1] + 1)
        if ends:
            theirs.reset()

    state = as_state(ours, motions, counts[:steps])
    after, reward, *flags = ours.transition(state, torch.as_tensor(np.array(actions)), torch.empty(steps, 0))

    obs, paid, *ended = (torch.as_tensor(np.array(part)) for part in zip(*outcomes, strict=True))
    torch.testing.assert_close(ours.observation(after), obs.float(), **TOLERANCE)
    torch.testing.assert_close(reward, paid.float(), **TOLERANCE)
    assert [each.tolist() for each in flags] == [each.tolist() for each in ended]
    assert torch.stack(ended).any()


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
    state = as_state(env, [motion], [0])

    _, reward, terminated, truncated = env.transition(state, action, torch.empty(1, 0))

    assert terminated.item() and not truncated.item()
    assert reward.item() == pytest.approx(goal_reward)
