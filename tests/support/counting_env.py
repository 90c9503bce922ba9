"""Small environments that count: what must come out of every adapter is known in advance."""

import os
import time
from multiprocessing import parent_process
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from datamodules.core.protocols import VectorEnv
from datamodules.core.types import SpaceSpec, State, VectorStep


class Counting(gym.Env):
    """Shows [episode, step, a draw of the seed]; pays the step; ends after `length` steps, in the way `end` says."""

    observation_space = Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(
        self, length: int = 4, end: str = "terminated", action_space: gym.Space | None = None, reuse: bool = False
    ):
        self.length, self.end, self.reuse = length, end, reuse
        self.action_space = action_space or Discrete(2)
        self.obs, self.episode, self.actions = np.zeros(3, np.float32), -1, []

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.obs[:] = self.episode, 0, self.np_random.random()
        return self.shown(), self.info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.actions.append(action)
        self.obs[1] += 1
        ended = self.obs[1] >= self.length
        terminated, truncated = ended and self.end != "truncated", ended and self.end != "terminated"
        return self.shown(), float(self.obs[1]), bool(terminated), bool(truncated), self.info()

    def shown(self) -> np.ndarray:
        return self.obs if self.reuse else self.obs.copy()

    def info(self) -> dict:
        return {}


class Masking(Counting):
    """Allows only the action that is the parity of the step."""

    def info(self) -> dict:
        return {"action_mask": np.arange(2) == self.obs[1] % 2}


class SometimesMasking(Masking):
    """Says so only at even steps of even episodes; elsewhere everything is allowed."""

    def info(self) -> dict:
        return {} if (self.obs[:2] % 2).any() else super().info()


def sometimes_masked(envs: VectorEnv, steps: int = 10) -> None:
    """Assert that rows of `SometimesMasking` allow everything wherever they do not say what they allow."""
    obs, masks = envs.reset(0)
    for _ in range(steps):
        assert masks["action_mask"].tolist() == [[True, odd] for odd in (obs[:, :2] % 2 > 0).any(1).tolist()]
        obs, *_, masks = envs.step(torch.zeros(envs.num_envs, dtype=torch.int64))


class Echo(Counting):
    """Shows the action it was given one step ago; it keeps the object that it was given."""

    def __init__(self, action_space: gym.Space):
        super().__init__(action_space=action_space)
        self.observation_space = Box(-np.inf, np.inf, (int(np.prod(action_space.shape)),), np.float64)
        self.kept = np.zeros(action_space.shape)

    def shown(self) -> np.ndarray:
        return np.ravel(self.kept)

    def step(self, action):
        _, *outcome = super().step(action)
        shown, self.kept = self.shown(), action
        return shown, *outcome


class Dying(Counting):
    """Its process ends in the second step."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.obs[1] == 1:
            os._exit(9)
        return super().step(action)


class Hanging(Counting):
    """Does not come back from its start, a reset, its second step or the reset after that one, where in a worker."""

    def __init__(self, call: str = "", seconds: float = 600.0):
        super().__init__(length=2, action_space=Discrete(5, start=3))
        self.call, self.seconds = call, seconds
        self.hang("its start")

    def hang(self, call: str) -> None:
        if call == self.call and parent_process() is not None:
            time.sleep(self.seconds)

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict]:
        self.hang("its reset" if self.episode < 0 else "the reset after its step")
        return super().reset(**kwargs)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.obs[1] == 1:
            self.hang("its step")
        return super().step(action)


class Failing(Counting):
    """Raises, dies or hangs in the third step of an episode of six: once, where it leaves a file, or always."""

    def __init__(self, how: str, file: str | None = None):
        super().__init__(length=6)
        self.how, self.file = how, file

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.obs[1] == 2 and self.fails():
            if self.how == "raise":
                raise ValueError("the third step")
            if self.how == "die":
                os._exit(9)
            time.sleep(600)
        return super().step(action)

    def fails(self) -> bool:
        """Return whether to fail now: of several processes, only the one that makes the file."""
        if self.file:
            try:
                open(self.file, "x").close()
            except FileExistsError:
                return False
        return True


class UnreadableError(Exception):
    """Cannot be sent from one process to another."""

    def __init__(self, one: str, other: str):
        super().__init__(f"{one} {other}")


class Raising(Counting):
    """Raises in the second step."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.obs[1] == 1:
            raise UnreadableError("the second", "step")
        return super().step(action)


class Breaking(Counting):
    """Returns something else from its second step, or from its second reset."""

    def __init__(self, step: tuple = (), reset: tuple = ()):
        super().__init__(length=3)
        self.returns = {"step": step, "reset": reset}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        right = super().reset(seed=seed)
        return self.returns["reset"] if self.returns["reset"] and self.episode else right

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        right = super().step(action)
        return self.returns["step"] if self.returns["step"] and self.obs[1] == 2 else right


class CountingTensors:
    """The same environment as functions of tensors: shows [step, a draw], allows the parity of the step."""

    spaces = SpaceSpec(
        obs_shape=(2,),
        obs_dtype="float32",
        action_type="discrete",
        action_sizes=[2],
        action_low=[],
        action_high=[],
        action_start=[0],
        num_agents=1,
    )
    noise_size = 1
    episode_stat_keys = ("length",)

    def __init__(self, length: int = 4, end: str = "terminated"):
        self.length, self.end, self.min_truncation_step = length, end, length

    def initial(self, noise: Tensor) -> State:
        return {"count": torch.zeros_like(noise[:, 0], dtype=torch.int64), "draw": noise}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        count = state["count"] + 1 + action
        ended = count >= self.length
        none = torch.zeros_like(ended)
        terminated = none if self.end == "truncated" else ended
        truncated = none if self.end == "terminated" else ended
        return {"count": count, "draw": state["draw"]}, count.float(), terminated, truncated

    def observation(self, state: State) -> Tensor:
        return torch.cat([state["count"].float().unsqueeze(1), state["draw"]], 1)

    def info(self, state: State) -> dict[str, Tensor]:
        return {
            "length": state["count"].float(),
            "action_mask": torch.arange(2, device=state["count"].device) == state["count"].unsqueeze(1) % 2,
        }


def copied(step: VectorStep) -> VectorStep:
    """A step that the next one does not overwrite."""
    kept = {key: part.clone() for key, part in step._asdict().items() if isinstance(part, Tensor)}
    return step._replace(**kept, info={key: value.clone() for key, value in step.info.items()})


def transitions(envs: VectorEnv, steps: int, seed: int = 0) -> list[list[tuple]]:
    """Valid transitions of every row: obs, reward, both flags, and the true next observation unless terminated."""
    obs, rows = envs.reset(seed)[0].clone(), [[] for _ in range(envs.num_envs)]
    for _ in range(steps):
        step = copied(envs.step(torch.zeros(envs.num_envs, dtype=torch.int64)))
        for row in step.valid.nonzero()[:, 0].tolist():
            following = step.final_obs if step.truncated[row] else step.obs
            last = [] if step.terminated[row] and not step.truncated[row] else following[row].tolist()
            flags = bool(step.terminated[row]), bool(step.truncated[row])
            rows[row].append((obs[row].tolist(), step.reward[row].item(), *flags, last))
        obs = step.obs
    return rows
