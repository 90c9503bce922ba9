"""Derive independent random streams for every rank and purpose from one seed."""

import os

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_warn

STREAMS = ("env", "action", "option", "minibatch", "replay", "eval")


def global_seed() -> int:
    """Return the seed of this run: the one given to `seed_everything`, else that of PyTorch's default generator."""
    return int(os.environ.get("PL_GLOBAL_SEED", torch.initial_seed() % 2**32))


def derive_seed(seed: int, rank: int, stream: str) -> int:
    """Return a 63-bit seed for one purpose on one rank, independent of all other (rank, stream) pairs.

    Raises: ValueError if the stream is not one of `STREAMS`.
    """
    spawn_key = (rank, STREAMS.index(stream))
    return int(np.random.SeedSequence(seed, spawn_key=spawn_key).generate_state(1, np.uint64)[0] >> 1)


def restore_generator(generator: torch.Generator, state: torch.Tensor) -> None:
    """Restore a generator's state; if it is from another type of device, warn and leave the generator unchanged."""
    if state.shape == generator.get_state().shape:
        generator.set_state(state.cpu())
    else:
        rank_zero_warn(
            f"Random streams of a checkpoint from another type of device cannot be restored on {generator.device}."
        )


def env_seeds(seed: int | None, count: int) -> np.ndarray:
    """Return independent 31-bit seeds for `count` environments, equal for every backend; random if seed is None."""
    return np.random.SeedSequence(seed).generate_state(count) >> 1


def derive_generator(seed: int, rank: int, stream: str, device: torch.device) -> torch.Generator:
    """Return a generator on `device` for one purpose on one rank."""
    return torch.Generator(device=device).manual_seed(derive_seed(seed, rank, stream))
