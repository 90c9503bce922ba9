"""Small environments with observations of several parts: what must come out of every adapter is known in advance."""

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Text
from torch import Tensor

from datamodules.core.types import ObsPart, SpaceSpec, State

SPACE = gym.spaces.Dict(
    {
        "action_mask": MultiBinary(2),
        "agent": gym.spaces.Dict({"position": Box(-100, 100, (2,), np.float32), "room": Discrete(9, start=1)}),
        "image": Box(0, 255, (6, 6, 3), np.uint8),
        "mission": Text(20),
        "pair": gym.spaces.Tuple([MultiDiscrete([3, 4]), MultiBinary(3)]),
    }
)


class Parts(gym.Env):
    """Counts episodes and steps in every part of a nested observation; pays the step; ends after `length` steps.

    Args:
        length: steps of an episode.   end: terminated, truncated or both.   reuse: write into the same arrays.
    """

    observation_space, action_space = SPACE, Discrete(2)

    def __init__(self, length: int = 4, end: str = "truncated", reuse: bool = False):
        self.length, self.end, self.reuse = length, end, reuse
        self.episode, self.t, self.memory = -1, 0, np.zeros((6, 6, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.episode, self.t = (0 if seed is not None else self.episode + 1), 0
        return self.shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        ended = self.t >= self.length
        return self.shown(), float(self.t), ended and self.end != "truncated", ended and self.end != "terminated", {}

    def shown(self) -> Any:
        image = self.memory if self.reuse else np.zeros((6, 6, 3), np.uint8)
        image[...] = 10 * self.episode + self.t
        return {
            "action_mask": (np.arange(2) == self.t % 2).astype(np.int8),
            "agent": {"position": np.array([self.episode, self.t], np.float32), "room": np.int64(1 + self.t)},
            "image": image,
            "mission": f"go {self.t}",
            "pair": (np.array([self.episode % 3, self.t % 4]), np.array([0, 1, self.t % 2], np.int8)),
        }


def expected(episode: int, t: int) -> dict[str, Any]:
    """Return the parts of an observation as they must arrive."""
    return {
        "agent.position": [float(episode), float(t)],
        "agent.room": t,
        "image": 10 * episode + t,
        "pair.0": [episode % 3, t % 4],
        "pair.1": [0, 1, t % 2],
    }


class Reach(gym.Env):
    """Go right or left on a line to a goal in two parts; the reward is 1 at the goal.

    Args:
        length: steps of an episode.
    """

    observation_space = gym.spaces.Dict({"goal": Discrete(5), "place": Box(0, 4, (1,), np.float32), "text": Text(5)})
    action_space = Discrete(2)

    def __init__(self, length: int = 8):
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.place, self.t, self.goal = 2, 0, int(self.np_random.integers(5))
        return self.shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.place, self.t = min(4, max(0, self.place + (1 if action else -1))), self.t + 1
        return self.shown(), float(self.place == self.goal), False, self.t >= self.length, {}

    def shown(self) -> Any:
        return {"goal": self.goal, "place": np.array([self.place], np.float32), "text": "go"}


class BoxReach(Reach):
    """The same with a continuous action: its sign is the direction."""

    action_space = Box(-1, 1, (1,), np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return super().step(int(np.asarray(action).ravel()[0] > 0))


class Lost(Reach):
    """Gives NaN in one part from the third step on."""

    def shown(self) -> Any:
        obs = super().shown()
        if self.t >= 3:
            obs["place"][0] = float("nan")
        return obs


class TensorReach:
    """`Reach` as functions of tensors, without the text."""

    noise_size, episode_stat_keys, min_truncation_step = 1, (), 8

    def __init__(self) -> None:
        self.spaces = SpaceSpec(
            obs_shape=(),
            obs_dtype="dict",
            obs_parts={
                "goal": ObsPart(shape=(), dtype="int64", sizes=[5]),
                "place": ObsPart(shape=(1,), dtype="float32"),
            },
            action_type="discrete",
            action_sizes=[2],
            action_low=[],
            action_high=[],
            action_start=[0],
            num_agents=1,
        )

    def initial(self, noise: Tensor) -> State:
        goal = (noise[:, 0] * 5).long().clamp(max=4)
        return {"goal": goal, "place": torch.full_like(goal, 2), "t": torch.zeros_like(goal)}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        place, t = (state["place"] + 2 * action - 1).clamp(0, 4), state["t"] + 1
        after = {"goal": state["goal"], "place": place, "t": t}
        return after, (place == state["goal"]).float(), torch.zeros_like(t, dtype=torch.bool), t >= 8

    def observation(self, state: State) -> dict[str, Tensor]:
        return {"goal": state["goal"], "place": state["place"].float().unsqueeze(1)}

    def info(self, state: State) -> dict[str, Tensor]:
        return {}


class GoalWithoutReward(gym.Env):
    """Move on a line to a goal; the reward is 0 within 0.5 of it, else -1.

    Args:
        length: steps of an episode.
    """

    observation_space = gym.spaces.Dict(
        {name: Box(-10, 10, (1,), np.float64) for name in ("observation", "achieved_goal", "desired_goal")}
    )
    action_space = Box(-1, 1, (1,), np.float32)

    def __init__(self, length: int = 6):
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.place, self.goal, self.t = np.zeros(1), self.np_random.uniform(-3, 3, 1), 0
        return self.shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.place, self.t = self.place + action, self.t + 1
        reward = -float(np.abs(self.place - self.goal)[0] > 0.5)
        return self.shown(), reward, False, self.t >= self.length, {}

    def shown(self) -> Any:
        return {"observation": self.place, "achieved_goal": self.place, "desired_goal": self.goal}


class GoalLine(GoalWithoutReward):
    """The same with the reward of any goals."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -(np.abs(achieved_goal - desired_goal)[..., 0] > 0.5).astype(np.float32)


class Hybrid(gym.Env):
    """Pays for the right kind of move and for a force near 0.5; remembers its actions.

    Args:
        space: Dict (mixed), Tuple (mixed), boxes or choices.
    """

    observation_space = Box(0, 1, (1,), np.float32)
    SPACES: ClassVar[dict[str, gym.Space]] = {
        "dict": gym.spaces.Dict({"force": Box(-2, 2, (2,), np.float32), "kind": Discrete(3, start=1)}),
        "tuple": gym.spaces.Tuple([Discrete(3, start=1), Box(-2, 2, (2,), np.float64)]),
        "boxes": gym.spaces.Dict({"a": Box(-1, 1, (1,), np.float32), "b": Box(0, 4, (2, 1), np.float32)}),
        "choices": gym.spaces.Dict({"a": Discrete(3, start=1), "b": MultiBinary(2)}),
    }

    def __init__(self, space: str = "dict"):
        self.action_space, self.actions, self.t = self.SPACES[space], [], 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        self.actions.append(action)
        self.t += 1
        kind, force = (action["kind"], action["force"]) if isinstance(action, dict) and "kind" in action else (2, [0.5])
        reward = float(kind == 2) - abs(float(np.ravel(force)[0]) - 0.5)
        return np.zeros(1, np.float32), reward, False, self.t >= 10, {}
