"""Held-out sequences of random actions, with the true states and vector field if the environment provides them."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from datamodules.core.errors import ConfigurationError
from datamodules.core.protocols import StatelessVectorEnv, VectorEnv
from datamodules.core.sequence_types import SequenceBatch, ValidationData
from datamodules.core.types import require_tensor

ACTION_HOLD_STEPS = 20
"""Steps that a random action is held: long enough to drive most systems through their range."""


class HeldOutDataset(IterableDataset):
    """Dataset of one batch: the held-out sequences."""

    def __init__(self, held_out: ValidationData):
        self.held_out = held_out

    def __len__(self) -> int:
        """Return 1, the number of batches."""
        return 1

    def __iter__(self) -> Iterator[ValidationData]:
        """Yield all sequences as one batch."""
        yield self.held_out


@torch.no_grad()
def record_validation_data(envs: VectorEnv, steps: int, seed: int) -> ValidationData:
    """Record sequences of held random actions, with true states and vector field if the environment provides them.

    An environment provides them with `latent(state)` `[B, D]`, `mean(state)` (the noise-free observation), `grid()` and
    `field(states)`.
    """
    system: Any = getattr(envs, "env", None)
    has_truth = envs.is_stateless and all(hasattr(system, name) for name in ("latent", "mean", "grid", "field"))
    truth: list[tuple[Tensor, Tensor]] = []

    def record_truth() -> None:
        if has_truth:
            state = cast(StatelessVectorEnv, envs).state
            truth.append((system.mean(state).clone(), system.latent(state).clone()))

    sequences = record(envs, steps, seed, record_truth)
    if not has_truth:
        return ValidationData(sequences)
    mean, state = (torch.stack(column) for column in zip(*truth, strict=True))
    grid = system.grid().to(envs.device)
    return ValidationData(sequences, mean, state, grid, system.field(grid))


@torch.no_grad()
def record(envs: VectorEnv, steps: int, seed: int, on_observation: Callable[[], None] = lambda: None) -> SequenceBatch:
    """Record sequences of `steps` steps of every row, with uniform actions held for `ACTION_HOLD_STEPS` steps.

    Args:
        seed: seed of the environments and of the actions.
        on_observation: called at every observation, including the first.
    """
    generator = torch.Generator(device=envs.device).manual_seed(seed)
    low = torch.tensor(envs.spaces["action_low"], device=envs.device)
    high = torch.tensor(envs.spaces["action_high"], device=envs.device)
    rows = envs.num_envs * envs.spaces["num_agents"]
    uniforms = torch.rand(-(-steps // ACTION_HOLD_STEPS), rows, len(low), generator=generator, device=envs.device)
    actions = (low + (high - low) * uniforms).repeat_interleave(ACTION_HOLD_STEPS, dim=0)[:steps]
    obs, contiguous = [require_tensor(envs.reset(seed)[0]).clone()], []
    on_observation()
    for action in actions:
        step = envs.step(action)
        obs.append(require_tensor(step.obs).clone())
        contiguous.append(step.valid & ~(step.terminated | step.truncated))
        on_observation()
    return SequenceBatch(torch.stack(obs), actions, torch.stack(contiguous))


def check_finite(sequences: SequenceBatch, what: str) -> None:
    """Check that every observation is finite; `what` names the sequences.

    Raises: ConfigurationError otherwise.
    """
    if not sequences.obs.isfinite().all():
        raise ConfigurationError(f"{what} has NaN or infinite observations, which cannot be learned or predicted.")


def longest_contiguous(contiguous: Tensor) -> int:
    """Return the longest number of contiguous steps, from `contiguous` `[L, N]`."""
    step = torch.arange(1, len(contiguous) + 1, device=contiguous.device).unsqueeze(1)
    broken = torch.where(contiguous, 0, step).cummax(0).values
    return int((step - broken).max())
