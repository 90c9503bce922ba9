"""Sequences that nobody learns from: held random actions, and what is true about them where the environment says so."""

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from datamodules.core.errors import UsageError
from datamodules.core.protocols import PureVectorEnv, VectorEnv
from datamodules.core.sequence_types import HeldOut, Sequences

HOLD = 20
"""Steps that a random action is held: long enough to drive most systems through their range."""


class HeldOutDataset(IterableDataset):
    """One batch: the held-out sequences."""

    def __init__(self, held_out: HeldOut):
        self.held_out = held_out

    def __len__(self) -> int:
        """One batch."""
        return 1

    def __iter__(self) -> Iterator[HeldOut]:
        """All of them at once."""
        yield self.held_out


@torch.no_grad()
def record_held_out(envs: VectorEnv, steps: int, seed: int) -> HeldOut:
    """Sequences of held random actions, with true states and field where the environment is a system that knows them.

    An environment knows them if it has `latent(state)` `[B, D]`, `mean(state)` (its observation without noise), and
    `grid()` and `field(states)`.
    """
    system: Any = getattr(envs, "env", None)
    known = envs.pure and all(hasattr(system, name) for name in ("latent", "mean", "grid", "field"))
    truth: list[tuple[Tensor, Tensor]] = []

    def look() -> None:
        if known:
            state = cast(PureVectorEnv, envs).state
            truth.append((system.mean(state).clone(), system.latent(state).clone()))

    sequences = record(envs, steps, seed, look)
    if not known:
        return HeldOut(sequences)
    mean, state = (torch.stack(column) for column in zip(*truth, strict=True))
    grid = system.grid().to(envs.device)
    return HeldOut(sequences, mean, state, grid, system.field(grid))


@torch.no_grad()
def record(envs: VectorEnv, steps: int, seed: int, look: Any = lambda: None) -> Sequences:
    """Sequences of `steps` steps of every row, under uniform actions held for `HOLD` steps.

    Args:
        seed: of the environments and of the actions.
        look: called at every observation, the first included.
    """
    generator = torch.Generator(device=envs.device).manual_seed(seed)
    low = torch.tensor(envs.spaces["action_low"], device=envs.device)
    high = torch.tensor(envs.spaces["action_high"], device=envs.device)
    rows = envs.num_envs * envs.spaces["agents"]
    uniforms = torch.rand(-(-steps // HOLD), rows, len(low), generator=generator, device=envs.device)
    actions = (low + (high - low) * uniforms).repeat_interleave(HOLD, dim=0)[:steps]
    obs, joined = [envs.reset(seed)[0].clone()], []
    look()
    for action in actions:
        step = envs.step(action)
        obs.append(step.obs.clone())
        joined.append(step.valid & ~(step.terminated | step.truncated))
        look()
    return Sequences(torch.stack(obs), actions, torch.stack(joined))


def require_finite(sequences: Sequences, what: str) -> None:
    """Raises: UsageError for an observation that is NaN or infinite; `what` says whose it is."""
    if not sequences.obs.isfinite().all():
        raise UsageError(f"{what} shows NaN or infinite observations: nothing can be learned or predicted of them.")


def longest(joined: Tensor) -> int:
    """Steps of the longest trajectory in sequences whose steps are `joined` `[L, N]` or not."""
    step = torch.arange(1, len(joined) + 1, device=joined.device).unsqueeze(1)
    broken = torch.where(joined, 0, step).cummax(0).values
    return int((step - broken).max())
