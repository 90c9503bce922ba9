"""Microbatches: pieces of a minibatch whose gradients are added, and advice where a minibatch needs too much memory."""

import gc
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from modules.base.checks import divisors
from modules.optim.optimizer_group import trainable
from modules.ppo.batch import NormalizedAdvantage, PPOBatch, PPOLoss

if TYPE_CHECKING:
    from modules.ppo.ppo import PPO


class Microbatch(NamedTuple):
    """Piece of a minibatch, its part of the minibatch's advantages, and its fraction of the valid transitions."""

    batch: PPOBatch
    normalized: NormalizedAdvantage
    fraction: Tensor | float


def microbatches(batch: PPOBatch, normalized: NormalizedAdvantage, number: int) -> Iterator[Microbatch]:
    """Yield `number` pieces of a minibatch; their losses, times their fractions, add up to its loss."""
    batch = batch._replace(advantage=normalized.advantage, target=normalized.target)
    for piece in batch.pieces(number):
        fraction: Tensor | float = 1 / number
        if batch.valid is not None and piece.valid is not None:
            fraction = piece.valid.sum() / batch.valid.sum().clamp(min=1)
        yield Microbatch(piece, NormalizedAdvantage(piece.advantage, piece.target, normalized.loss_scale), fraction)


def accumulated_losses(
    loss: Callable[[PPOBatch, NormalizedAdvantage], PPOLoss], pieces: Iterator[Microbatch], results: list[PPOLoss]
) -> Iterator[Tensor]:
    """Yield the loss of each microbatch times its fraction, computed lazily; append it, detached, to `results`."""
    for batch, normalized, fraction in pieces:
        result = loss(batch, normalized)
        results.append(PPOLoss(result.loss.detach() * fraction, result.metrics * fraction, result.value))
        yield result.loss * fraction


@contextmanager
def memory_advice(model: "PPO", batch: PPOBatch) -> Iterator[None]:
    """Replace an out-of-memory error of an update by a sentence that names the settings and the size that fits.

    Args:
        model: algorithm, which tries gradients of smaller microbatches.
        batch: that of the rollout.

    Raises: ConfigurationError for a torch.OutOfMemoryError.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        traceback.clear_frames(error.__traceback__)  # whose tensors would stay in memory
        size, current = batch.size // model.num_minibatches, model.large_batch.num_microbatches
        steps = len(batch.advantage) if batch.in_segments else 1
        remedies = ["use a smaller model.network", "raise model.num_minibatches"]
        for number in (each for each in divisors(size) if each > current):
            if gradient_fits(model, batch.slice(slice(size // number))):
                if model.auxiliary_losses.need_whole_minibatches:
                    remedies = [f"set model.num_minibatches to {model.num_minibatches * number}"]
                else:
                    remedies[0] = f"set model.num_microbatches to {number}"
                remedies[0] += f", which takes {size // number * steps} at a time"
                break
        raise ConfigurationError(
            f"The gradient of {size // current * steps} transitions does not fit in the memory of {model.device}:"
            f" {', or '.join(remedies)}, or lower data.num_envs or data.rollout_length."
        ) from error


def gradient_fits(model: "PPO", batch: PPOBatch) -> bool:
    """Return whether the memory suffices for the gradient of a microbatch."""
    normalized = NormalizedAdvantage(batch.advantage, batch.target, None)
    try:
        torch.autograd.grad(model.loss(batch, normalized).loss, trainable(model.parameters()), allow_unused=True)
    except torch.OutOfMemoryError as error:
        traceback.clear_frames(error.__traceback__)
        return False
    finally:
        gc.collect()
        if model.device.type == "cuda":
            torch.cuda.empty_cache()
    return True
