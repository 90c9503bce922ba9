"""CheckpointPolicy: the policy of a checkpoint, which does not learn."""

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput, PolicyOutput, SpaceSpec, State
from modules.base.algorithm import Algorithm
from modules.base.hparams import load_algorithm

SAME = ("obs_shape", "obs_dtype", "obs_parts", "action_type", "action_sizes", "action_low", "action_high")
"""Spaces that an agent and the checkpoint's agent must share."""


class CheckpointPolicy(nn.Module):
    """Policy of a checkpoint, with its normalisation, as an opponent (`data.opponents`).

    Args:
        spaces: observation and action space of an agent.
        checkpoint: path of the checkpoint.
        greedy: take the policy's mode instead of a sample.

    Raises: ConfigurationError if the file is no checkpoint of ours, or was trained on other spaces.
    """

    def __init__(self, spaces: SpaceSpec, checkpoint: str, greedy: bool = False):
        super().__init__()
        self.policy: Algorithm = load_algorithm(Path(checkpoint))
        self.greedy = greedy
        mine, other = cast(dict[str, Any], spaces), cast(dict[str, Any], self.policy.spaces)
        if changed := [name for name in SAME if _plain(mine.get(name)) != _plain(other.get(name))]:
            raise ConfigurationError(
                f"{checkpoint} was trained with {changed[0]} {other.get(changed[0])}, but the agent has"
                f" {mine.get(changed[0])}: give the checkpoint of an agent with the same spaces."
            )

    def initial_state(self, batch: int) -> State:
        """Return the policy's state at the start of an episode."""
        return self.policy.initial_state(batch)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the random numbers of the policy's samples."""
        return self.policy.noise(shape, generator)

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Select an action for every row; the mode if `greedy` here or in the settings."""
        return self.policy.act(inputs, noise, greedy=greedy or self.greedy)


def _plain(value: Any) -> Any:
    """Return the value with lists instead of tuples, as some files store them."""
    if isinstance(value, dict):
        return {name: _plain(child) for name, child in value.items()}
    return [_plain(child) for child in value] if isinstance(value, list | tuple) else value
