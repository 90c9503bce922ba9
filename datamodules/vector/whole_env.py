"""Environments that are stepped as a whole: PettingZoo's parallel ones, and those that exist only as a vector."""

import functools
from contextlib import closing
from typing import Any

import gymnasium as gym
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.protocols import VectorEnv
from datamodules.core.types import SpaceSpec
from datamodules.env_interface.env_errors import exits_refused
from datamodules.multi_agent.parallel_vector_env import ParallelVectorEnv
from datamodules.multi_agent.vector_adapter import MultiAgentVectorAdapter
from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter
from datamodules.vector.resolve_env import ResolvedEnv


def make_whole_vector_env(
    source: ResolvedEnv, num_envs: int | None, kwargs: dict[str, Any], device: torch.device, seed: int = 0
) -> VectorEnv:
    """Create such an environment, of one or several agents, as a VectorEnv; `num_envs` as for `make_whole`."""
    envs = make_whole(source, num_envs, kwargs)
    if getattr(envs, "num_agents", 1) > 1:
        return MultiAgentVectorAdapter(envs, device=device, seed=seed, name=source.name)
    make_one = None if source.has_fixed_num_envs else functools.partial(make_whole, source, 1, kwargs)
    return GymnasiumVectorAdapter(envs, device=device, seed=seed, name=source.name, make_one=make_one)


def make_whole(source: ResolvedEnv, num_envs: int | None, kwargs: dict[str, Any]) -> gym.vector.VectorEnv:
    """Create the vector environment of a PettingZoo environment, or of one that exists only as a vector environment.

    Args:
        num_envs: number of environments; None for one, or for as many as there are.

    Raises: ConfigurationError for another number of environments than it has.
    """
    if source.parallel_env is not None:
        makers = [functools.partial(source.parallel_env, **kwargs)] * (num_envs or 1)
        return ParallelVectorEnv(makers, name=source.name)
    assert source.vector_env is not None
    fixed = source.has_fixed_num_envs
    envs = source.vector_env(**kwargs) if fixed else source.vector_env(num_envs=num_envs or 1, **kwargs)
    if num_envs is not None and envs.num_envs != num_envs:
        envs.close()
        raise ConfigurationError(
            f"{source.name} has {envs.num_envs} environments, not {num_envs}: set data.num_envs to {envs.num_envs}."
        )
    return envs


def probe_whole(source: ResolvedEnv, kwargs: dict[str, Any]) -> SpaceSpec:
    """Return the spaces of an environment of `make_whole`; a PettingZoo environment is reset and stepped once.

    Raises: ConfigurationError for the first violation of PettingZoo's API.
    """
    envs = make_whole_vector_env(source, None, kwargs, torch.device("cpu"))
    with closing(envs), exits_refused(source.name):
        if source.parallel_env is not None:
            _, masks = envs.reset(0)
            envs.step(_first_actions(envs.spaces, masks))
    return envs.spaces


def _first_actions(spaces: SpaceSpec, masks: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the first allowed action of every agent, or the middle of a Box."""
    if spaces["action_type"] == "continuous":
        middle = (torch.tensor(spaces["action_low"]) + torch.tensor(spaces["action_high"])) / 2
        return middle.repeat(spaces["num_agents"], 1)
    sizes = spaces["action_sizes"]
    mask = masks.get("action_mask", torch.ones(spaces["num_agents"], sum(sizes)))
    columns = torch.stack([part.int().argmax(1) for part in mask.split(sizes, 1)], 1)
    return columns[:, 0] if spaces["action_type"] == "discrete" else columns
