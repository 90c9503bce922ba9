"""share_spaces: one observation and one action space for all agents of an environment."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from datamodules.core.errors import ConfigurationError


class SharedSpaces(NamedTuple):
    """Spaces that all agents share, after padding.

    obs_sizes: numbers in each agent's own observation; None if they are equal.
    action_sizes: choices of each agent's own action; None if they are equal.
    """

    observation: gym.Space
    action: gym.Space
    obs_sizes: tuple[int, ...] | None
    action_sizes: tuple[int, ...] | None


def share_spaces(
    agents: Sequence[str],
    observation_space: Callable[[str], gym.Space],
    action_space: Callable[[str], gym.Space],
    name: str,
) -> SharedSpaces:
    """Return the spaces of all agents, padded to the largest if they differ.

    Vectors of floats are padded with zeros; of a Discrete action the choices that an agent lacks are masked.

    Args:
        agents: names of all agents.   observation_space, action_space: the spaces of an agent.
        name: name of the environment in messages.

    Raises: ConfigurationError for no agents, and for spaces that differ and cannot be padded.
    """
    if not agents:
        raise ConfigurationError(f"{name} has no possible_agents: let it list the names of all its agents.")
    observations, actions = [observation_space(agent) for agent in agents], [action_space(agent) for agent in agents]
    observation, obs_sizes = _shared(observations, agents, _padded_vector, name, "observation")
    action, action_sizes = _shared(actions, agents, _padded_choice, name, "action")
    return SharedSpaces(observation, action, obs_sizes, action_sizes)


def _shared(
    spaces: list[gym.Space],
    agents: Sequence[str],
    pad: Callable[[list[gym.Space]], tuple[gym.Space, tuple[int, ...]] | None],
    name: str,
    what: str,
) -> tuple[gym.Space, tuple[int, ...] | None]:
    differing = [agent for agent, space in zip(agents, spaces, strict=True) if space != spaces[0]]
    if not differing:
        return spaces[0], None
    padded = pad(spaces)
    if padded is None:
        other = spaces[agents.index(differing[0])]
        raise ConfigurationError(
            f"{name} has agents with different {what} spaces ({agents[0]} {spaces[0]}, {differing[0]} {other}), which"
            " one policy cannot share: only one-dimensional Box observations of floats and Discrete actions are padded;"
            " give all agents the same space."
        )
    return padded


def _padded_vector(spaces: list[gym.Space]) -> tuple[gym.Space, tuple[int, ...]] | None:
    """Return a Box of the largest size, and every agent's size."""
    boxes = [space for space in spaces if isinstance(space, Box) and len(space.shape) == 1]
    if len(boxes) < len(spaces) or not all(np.issubdtype(box.dtype, np.floating) for box in boxes):
        return None
    low, high = min(float(box.low.min()) for box in boxes), max(float(box.high.max()) for box in boxes)
    sizes = tuple(box.shape[0] for box in boxes)
    return Box(min(low, 0.0), max(high, 0.0), (max(sizes),), np.float32), sizes


def _padded_choice(spaces: list[gym.Space]) -> tuple[gym.Space, tuple[int, ...]] | None:
    """Return a Discrete with the most choices, and every agent's choices."""
    choices = [space for space in spaces if isinstance(space, Discrete)]
    if len(choices) < len(spaces) or len({int(space.start) for space in choices}) > 1:
        return None
    sizes = tuple(int(space.n) for space in choices)
    return Discrete(max(sizes), start=int(choices[0].start)), sizes
