"""Independent random streams: every rank and every purpose draws from its own, all from one seed."""

import os

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_warn

STREAMS = ("env", "action", "option", "minibatch", "replay", "eval")


def run_seed() -> int:
    """The seed of this run: what `seed_everything` was given, else torch's own."""
    return int(os.environ.get("PL_GLOBAL_SEED", torch.initial_seed() % 2**32))


def stream_seed(seed: int, rank: int, stream: str) -> int:
    """A 63-bit seed for one purpose on one rank; no two (rank, stream) pairs are related.

    Raises: ValueError if the stream is not one of `STREAMS`.
    """
    spawn_key = (rank, STREAMS.index(stream))
    return int(np.random.SeedSequence(seed, spawn_key=spawn_key).generate_state(1, np.uint64)[0] >> 1)


def restore_generator(generator: torch.Generator, state: torch.Tensor) -> None:
    """Continue from a saved state; one of another kind of device cannot be continued, and its stream begins anew."""
    if state.shape == generator.get_state().shape:
        generator.set_state(state.cpu())
    else:
        rank_zero_warn(f"The random numbers of a checkpoint from another device begin anew on {generator.device}.")


def env_seeds(seed: int | None, count: int) -> np.ndarray:
    """Independent 31-bit seeds for `count` environments, the same whatever steps them; others every time for None."""
    return np.random.SeedSequence(seed).generate_state(count) >> 1


def stream_generator(seed: int, rank: int, stream: str, device: torch.device) -> torch.Generator:
    """A torch generator on `device` for one purpose on one rank."""
    return torch.Generator(device=device).manual_seed(stream_seed(seed, rank, stream))
