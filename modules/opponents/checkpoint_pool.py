"""CheckpointPool: past checkpoints of the run as opponents, several at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.tensor_files import load_tensors
from datamodules.core.pytree import tree_map
from datamodules.core.types import PolicyInput, PolicyOutput, SpaceSpec, State
from modules.base.algorithm import Algorithm
from modules.base.policy_copy import copy_policy


class CheckpointPool(nn.Module):
    """Policies of several past checkpoints of the run, each for an equal share of the rows (`data.opponents`).

    `callbacks.SelfPlay` saves the checkpoints and loads the newest into the pool. Weights are copied into the same
    tensors, so that compiled and captured rollouts stay valid.

    Args:
        spaces: observation and action space of an agent.
        size: number of checkpoints that play at once.

    Raises: ConfigurationError if `size` is below 1.
    """

    def __init__(self, spaces: SpaceSpec, size: int = 4):
        super().__init__()
        if size < 1:
            raise ConfigurationError(f"CheckpointPool has size {size}; choose at least 1.")
        self.size = size
        self.policies = nn.ModuleList()

    def fill(self, algorithm: Algorithm) -> None:
        """Fill the pool with copies of the learning policy, which have its weights until `load`."""
        copies = [copy_policy(algorithm) for _ in range(self.size)]
        self.policies = nn.ModuleList(each.requires_grad_(False).eval() for each in copies)

    def load(self, checkpoints: Sequence[Path]) -> None:
        """Load the weights of checkpoints of the same algorithm, the newest last; repeat them if they are too few.

        Raises: ConfigurationError if a file is missing or damaged, or has other weights.
        """
        newest = list(checkpoints)[-self.size :]
        for number, policy in enumerate(self.policies):
            path = newest[number % len(newest)]
            state = load_tensors(path, cure="remove it from the pool's folder")["state_dict"]
            try:
                policy.load_state_dict(state)
            except RuntimeError as error:
                raise ConfigurationError(
                    f"{path} has other weights than this run's policy: start the run in a folder of its own."
                ) from error

    @property
    def _first(self) -> Algorithm:
        if not self.policies:
            raise ConfigurationError("modules.CheckpointPool needs callbacks.SelfPlay: add it to trainer.callbacks.")
        return cast(Algorithm, self.policies[0])

    def initial_state(self, batch: int) -> State:
        """Return the policies' state at the start of an episode."""
        return self._first.initial_state(batch)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the random numbers of the policies' samples."""
        return self._first.noise(shape, generator)

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Select an action for every row: the first rows with the first policy, and so on."""
        rows, actions, states = len(inputs.episode_start), [], []
        bounds = [rows * number // self.size for number in range(self.size + 1)]
        for policy, begin, end in zip(self.policies, bounds, bounds[1:], strict=False):
            if begin == end:
                continue
            part = tree_map(lambda leaf, begin=begin, end=end: leaf[begin:end], inputs)
            draw = None if noise is None else noise[begin:end]
            output, state = cast(Algorithm, policy).act(part, draw, greedy=greedy)
            actions.append(output.action)
            states.append(state)
        return PolicyOutput(torch.cat(actions), {}), {
            name: torch.cat([each[name] for each in states]) for name in states[0]
        }
