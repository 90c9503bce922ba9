"""Step an environment with random actions, to measure its speed and the lengths and returns of its episodes."""

import time
from contextlib import closing
from typing import Any, NamedTuple

import torch
from torch import Tensor

from datamodules.core.protocols import VectorEnv
from datamodules.core.pytree import tree_leaves
from datamodules.core.types import Obs, SpaceSpec
from datamodules.vector.make_env import make_vector_env


class RandomEpisodes(NamedTuple):
    """Episodes of random actions: env steps, episodes that ended, and mean return and length of these.

    rewarded: whether any reward differed from 0.   finite: whether all rewards and observations were finite.
    """

    steps: int
    ended: int
    mean_return: float
    mean_length: float
    rewarded: bool
    finite: bool


def random_actions(spaces: SpaceSpec, rows: int, mask: Tensor | None, generator: torch.Generator) -> Tensor:
    """Return uniform actions of a policy, `[B]` or `[B, parts]`, among those that the mask `[B, n]` allows."""
    if spaces["action_type"] == "continuous":
        low, high = torch.tensor(spaces["action_low"]), torch.tensor(spaces["action_high"])
        return low + (high - low) * torch.rand(rows, len(low), generator=generator)
    sizes = spaces["action_sizes"]
    allowed = torch.ones(rows, sum(sizes)) if mask is None else mask.float()
    parts = [torch.multinomial(part, 1, generator=generator) for part in allowed.split(sizes, 1)]
    return parts[0][:, 0] if spaces["action_type"] == "discrete" else torch.cat(parts, 1)


def measure_speed(env: str, kwargs: dict[str, Any], backend: str, num_envs: int, seconds: float) -> float:
    """Return env steps per second with random actions, after a tenth of the time to warm up.

    Raises: ConfigurationError if the environments cannot be created.
    """
    with closing(make_vector_env(env, num_envs, backend=backend, env_kwargs=kwargs)) as envs:
        play = _Play(envs)
        play.steps(seconds / 10)
        began = time.perf_counter()
        steps = play.steps(seconds)
        return steps * num_envs / (time.perf_counter() - began)


def play_randomly(env: str, kwargs: dict[str, Any], num_envs: int, steps: int, seconds: float) -> RandomEpisodes:
    """Play random actions for a number of vector steps, or for a time if that ends first.

    Raises: ConfigurationError if an environment breaks its contract.
    """
    with closing(make_vector_env(env, num_envs, env_kwargs=kwargs)) as envs:
        play = _Play(envs)
        rows = play.rows
        total, length = torch.zeros(rows, dtype=torch.float64), torch.zeros(rows, dtype=torch.float64)
        returns: list[float] = []
        lengths: list[float] = []
        rewarded, finite, began, done = False, True, time.perf_counter(), 0
        while done < steps and time.perf_counter() - began < seconds:
            step = play.step()
            total += step.reward.double() * step.valid
            length += step.valid
            rewarded |= bool(step.reward.any())
            finite &= bool(step.reward.isfinite().all()) and _finite(step.obs)
            ended = (step.terminated | step.truncated).nonzero()[:, 0]
            returns += total[ended].tolist()
            lengths += length[ended].tolist()
            total[ended], length[ended] = 0.0, 0.0
            done += 1
    count = max(1, len(returns))
    means = sum(returns) / count, sum(lengths) / count
    return RandomEpisodes(done * num_envs, len(returns), *means, rewarded, finite)


def _finite(obs: Obs) -> bool:
    return all(bool(part.isfinite().all()) for part in tree_leaves(obs) if part.is_floating_point())


class _Play:
    """Steps of random actions."""

    def __init__(self, envs: VectorEnv):
        self.envs, self.generator = envs, torch.Generator().manual_seed(0)
        obs, masks = envs.reset(0)
        self.rows = len(tree_leaves(obs)[0])
        self.mask = masks.get("action_mask")

    def step(self) -> Any:
        step = self.envs.step(random_actions(self.envs.spaces, self.rows, self.mask, self.generator))
        self.mask = step.info.get("action_mask")
        return step

    def steps(self, seconds: float) -> int:
        """Step for a time; return the number of vector steps."""
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            self.step()
            done += 1
        return done
