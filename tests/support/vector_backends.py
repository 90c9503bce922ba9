"""Every kind of vector environment over the same small environments, for the suite that all of them pass."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from datamodules.core.protocols import VectorEnv
from datamodules.vector.async_vector_env import SubprocVectorEnv
from datamodules.vector.envpool_adapter import EnvPoolVectorEnv
from datamodules.vector.func_vector_env import TensorVectorEnv
from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter
from datamodules.vector.restarting_vector_env import RestartingVectorEnv
from datamodules.vector.sync_vector_env import SerialVectorEnv
from datamodules.worker_pool.vector_env import WorkerPoolVectorEnv
from tests.support.counting_env import CountingTensors

CPU = torch.device("cpu")
Makers = list[Callable[[], gym.Env]]


class Backend(NamedTuple):
    """How a kind of vector environment is made from the makers of its rows.

    gymnasium: whether it steps Gymnasium's environments, and not functions of tensors.
    """

    make: Callable[[Makers], VectorEnv]
    gymnasium: bool = True


class PoolOfEnvPool:
    """Stand-in for EnvPool's own object: numbered environments with a seed each, and a step of its own for a reset."""

    def __init__(self, makers: Makers, seed: list[int]):
        self.envs = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.NEXT_STEP)
        self.seed: list[int] | None = seed

    def reset(self) -> Any:
        seed, self.seed = self.seed, None
        return self.envs.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        return self.envs.step(actions)


class EnvPoolStub(EnvPoolVectorEnv):
    """EnvPool's adapter without the package."""

    def __init__(self, makers: Makers):
        one = makers[0]()
        self.num_envs, self._pool = len(makers), None
        self.single_observation_space, self.single_action_space = one.observation_space, one.action_space
        self._make = partial(PoolOfEnvPool, makers)


def adapted(make: Callable[[Makers], Any], makers: Makers) -> VectorEnv:
    """Gymnasium's vector environment behind the adapter."""
    return GymnasiumVectorAdapter(make(makers), device=CPU, seed=1, make_one=lambda: make(makers[:1]))


def on_device(makers: Makers) -> VectorEnv:
    """The same episodes as functions of tensors, all rows alike."""
    one: Any = makers[0]
    return TensorVectorEnv(
        CountingTensors(one.keywords["length"], one.keywords["end"]), len(makers), device=CPU, seed=1
    )


BACKENDS: dict[str, Backend] = {
    **{
        f"sync {mode.value}": Backend(partial(adapted, partial(SerialVectorEnv, autoreset_mode=mode)))
        for mode in AutoresetMode
    },
    "gymnasium's": Backend(partial(adapted, partial(SyncVectorEnv, autoreset_mode=AutoresetMode.SAME_STEP))),
    "async": Backend(partial(adapted, partial(SubprocVectorEnv, name="Counting"))),
    "restarting": Backend(partial(adapted, partial(RestartingVectorEnv, name="Counting"))),
    "pool": Backend(lambda makers: WorkerPoolVectorEnv(makers, num_workers=2, device=CPU, name="Counting", seed=1)),
    "envpool": Backend(partial(adapted, EnvPoolStub)),
    "device": Backend(on_device, gymnasium=False),
}
