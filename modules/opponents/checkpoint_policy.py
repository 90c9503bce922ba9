"""CheckpointPolicy: the policy of a checkpoint, which does not learn."""

import torch
from torch import Tensor, nn

from datamodules.core.types import PolicyInput, PolicyOutput, SpaceSpec, State
from modules.base.algorithm import Algorithm
from modules.base.checks import check_same_spaces
from modules.base.hparams import load_algorithm


class CheckpointPolicy(nn.Module):
    """Policy of a checkpoint, with its normalisation, as an opponent (`data.opponents`).

    Args:
        spaces: observation and action space of an agent.
        checkpoint: path of the checkpoint, or of a run's folder, for its best checkpoint, else its last.
        greedy: take the policy's mode instead of a sample.

    Raises: ConfigurationError if the file is no checkpoint of ours, or was trained on other spaces.
    """

    def __init__(self, spaces: SpaceSpec, checkpoint: str, greedy: bool = False):
        super().__init__()
        self.policy: Algorithm = load_algorithm(checkpoint)
        self.greedy = greedy
        check_same_spaces(checkpoint, self.policy.spaces, spaces)

    def initial_state(self, batch: int) -> State:
        """Return the policy's state at the start of an episode."""
        return self.policy.initial_state(batch)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the random numbers of the policy's samples."""
        return self.policy.noise(shape, generator)

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Select an action for every row; the mode if `greedy` here or in the settings."""
        return self.policy.act(inputs, noise, greedy=greedy or self.greedy)
