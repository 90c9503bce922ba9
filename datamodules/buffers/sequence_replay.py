"""SequenceReplayBuffer: sample sequences of steps, with the state that a recurrent policy had before them."""

import torch
from torch import Tensor

from datamodules.buffers.n_step_replay import NStepReplayBuffer
from datamodules.buffers.ring_buffer import RESET, RingBuffer
from datamodules.buffers.sum_tree import SumTree
from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import tree_map
from datamodules.core.types import STATE, ReplayBatch, SequenceContext


class SequenceReplayBuffer(NStepReplayBuffer):
    """Replay buffer that samples sequences of L steps, and the n-step windows that begin at all but the first of them.

    A sequence may begin at any stored step, with priorities at valid ones only. It may contain ends of episodes and
    invalid steps: the state is reset where an episode starts, and windows of invalid steps have weight 0. The state
    before every step is stored with the step, in the extras `state/NAME` of the policy's outputs: 4 bytes for each of
    its numbers, for every step of the buffer.

    Args:
        ring: ring buffer to sample from.
        n_step: n, maximum window length.
        device: device of the minibatches.
        sequence_length: L, steps of a sequence.
        burn_in: number of its first steps at which no windows begin, in [0, L).
        has_invalid_steps: whether stored steps can be invalid.
        priorities: sum tree with one entry per stored step, at which a sequence can begin; None samples uniformly.

    Source: Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement Learning", section 3:
    stored state and burn-in. There sequences begin at every 40th step.
    """

    def __init__(
        self,
        ring: RingBuffer,
        n_step: int,
        device: torch.device,
        *,
        sequence_length: int,
        burn_in: int,
        has_invalid_steps: bool,
        priorities: SumTree | None = None,
    ):
        super().__init__(ring, n_step, device, has_invalid_steps=has_invalid_steps, priorities=priorities)
        self.burn_in, self.span = burn_in, sequence_length + n_step - 1
        steps = torch.arange(self.span, device=ring.device).unsqueeze(1)
        self._all_steps, self._learned_steps = steps, steps[burn_in:sequence_length]

    def noise(self, updates: int, batch: int, generator: torch.Generator) -> Tensor:
        """Draw uniforms for `sample`, `[updates, batch, 1]`, on the generator's device."""
        shape = (updates, batch, 1)
        return torch.rand(shape, dtype=torch.float64, device=generator.device, generator=generator)

    def sample(self, noise: Tensor) -> ReplayBatch:
        """Return the windows `[U, L - burn_in, N]` of sequences, and their context, for given uniforms."""
        entry, weight = self.choose(noise.to(self.ring.device))
        every, learned = (
            self.ring.offset_index(entry.unsqueeze(1), steps) for steps in (self._all_steps, self._learned_steps)
        )
        windows = self.gather(learned.flatten())
        windows = tree_map(lambda column: column.view(*learned.shape, *column.shape[1:]), windows)
        if weight is not None:
            windows = windows._replace(loss_weight=windows.loss_weight * weight.unsqueeze(1).float())
        names = [name for name in self.ring.columns if name.startswith("extras/" + STATE)]
        context = SequenceContext(
            obs=tree_map(lambda part: part.view(*every.shape, *part.shape[1:]), self.ring.obs(every.flatten())),
            episode_start=(self.ring.gather("flags", every) & RESET) > 0,
            state={name.removeprefix("extras/" + STATE): self.ring.gather(name, entry) for name in names},
            last_step=(self._learned_steps + windows.num_steps - 1).clamp(min=0),
            burn_in=self.burn_in,
        )
        found = windows._replace(indices=entry, context=context)
        return tree_map(lambda column: column.to(self.device, non_blocking=True), found)


def check_sequence_settings(sequence_length: int, burn_in: int, n_sampled_goal: int) -> None:
    """Check the settings of sequences.

    Raises: ConfigurationError for a burn-in that leaves no step to learn from, and for hindsight, which takes steps.
    """
    if not 0 <= burn_in < sequence_length:
        raise ConfigurationError(
            f"data.burn_in is {burn_in}, but it must be at least 0 and less than data.sequence_length"
            f" {sequence_length}, so that there are steps to learn from."
        )
    if sequence_length > 1 and n_sampled_goal:
        raise ConfigurationError(
            f"data.n_sampled_goal is {n_sampled_goal}, but hindsight relabels single steps, and data.sequence_length is"
            f" {sequence_length}: set data.n_sampled_goal to 0, or data.sequence_length to 1."
        )
