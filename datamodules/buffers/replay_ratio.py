"""Replay ratio: how many updates an iteration makes."""

from fractions import Fraction

from datamodules.core.errors import ConfigurationError


def updates_per_iteration(
    num_envs: int, train_freq: int, batch_size: int, replay_ratio: float, learned_steps: int = 1
) -> int:
    """Return the updates per iteration that give the replay ratio exactly.

    Args:
        learned_steps: windows of each of the `batch_size` samples of a minibatch, several in a sequence.

    Raises: ConfigurationError if the number is not whole, with the nearest valid settings.
    """
    if replay_ratio <= 0:
        raise ConfigurationError(f"data.replay_ratio is {replay_ratio}; it must be positive.")
    windows = batch_size * learned_steps
    step = Fraction(str(replay_ratio)) * num_envs / windows
    updates = step * train_freq
    if updates.denominator != 1:
        least = step.denominator
        near = sorted({max(1, train_freq // least) * least, -(-train_freq // least) * least})
        size = f"data.batch_size {batch_size}" + (f" times {learned_steps} learned steps" if learned_steps > 1 else "")
        raise ConfigurationError(
            f"data.replay_ratio {replay_ratio:g} with {num_envs} environments and data.train_freq {train_freq} makes"
            f" {float(updates * windows):g} samples per iteration, not a multiple of {size}:"
            f" the nearest valid values of data.train_freq are {near}."
        )
    return int(updates)
