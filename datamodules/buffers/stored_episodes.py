"""Stored episodes as one rollout for a replay buffer, and as padded sequences."""

from itertools import pairwise

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.episode_files import Episodes
from datamodules.core.types import MetricVector, Rollout, require_tensor


def check_columns(episodes: Episodes, example: Rollout, source: str) -> None:
    """Check that episodes hold all that the steps of the example hold, and enough steps for its rows.

    Raises: ConfigurationError if they do not.
    """
    if example.extras or isinstance(example.obs, dict):
        parts = ", ".join(example.extras) or "parts of observations"
        raise ConfigurationError(
            f"The policy or the environment stores {parts} with every step, which {source} does not hold: leave"
            " data.dataset out, or use another algorithm or environment."
        )
    steps, rows = len(episodes.action), example.reward.shape[1]
    if len(episodes.reward) != steps or len(episodes.terminated) != steps or len(episodes.truncated) != steps:
        raise ConfigurationError(f"{source} holds no rewards or ends of episodes: write it again with `predict`.")
    if steps < rows:
        raise ConfigurationError(
            f"{source} holds {steps} steps, fewer than data.num_envs: lower it to at most {steps}."
        )


def rollout_of(episodes: Episodes, example: Rollout, source: str) -> Rollout:
    """Return all steps as one rollout `[T, B]` of as many rows as the example, each a consecutive part of the steps.

    The last B - 1 steps or fewer are left out, so that rows have one length. An episode that ends with neither flag was
    cut by the recording, and counts as truncated.

    Args:
        example: rollout of the environment, for shapes and dtypes.

    Raises: ConfigurationError as `check_columns`, and for an episode that ends in its middle.
    """
    check_columns(episodes, example, source)
    steps, rows = len(episodes.action), example.reward.shape[1]
    place, length = torch.arange(steps), steps // rows
    episode = torch.bucketize(place, episodes.episode_start[1:], right=True)
    last = place + 1 == episodes.episode_start[1:][episode]
    terminated = episodes.terminated.bool()
    truncated = (episodes.truncated.bool() | last) & ~terminated
    ends = (terminated | truncated) & ~last
    if ends.any():
        raise ConfigurationError(
            f"{source} ends an episode in its middle, at step {int(ends.nonzero()[0])}: write it again."
        )

    def columns(value: Tensor) -> Tensor:
        return value[: length * rows].unflatten(0, (rows, length)).transpose(0, 1).contiguous()

    before = place + episode  # of the observation of each step
    begin = columns(place == episodes.episode_start[episode])
    first, cut = columns(before), columns(truncated)
    obs_at = torch.cat([first, first[-1:] + 1])
    order = cut.cumsum(0).mul(cut)
    slots = max(1, int(order.max()))
    final_step = torch.full((slots + 1, rows), -1)
    final_step.scatter_(0, torch.where(cut, order - 1, slots), torch.arange(length).unsqueeze(1).expand(length, rows))
    final_step = final_step[:slots]
    device = example.reward.device
    obs = episodes.obs.to(require_tensor(example.obs).dtype)
    return Rollout(
        obs=obs[obs_at].to(device),
        action=columns(episodes.action).to(device, example.action.dtype),
        reward=columns(episodes.reward).to(device, example.reward.dtype),
        terminated=columns(terminated).to(device),
        truncated=cut.to(device),
        valid=torch.ones_like(cut, device=device),
        episode_start=begin.to(device),
        final_obs=obs[first.gather(0, final_step.clamp(min=0)) + 1].to(device),
        final_step=final_step.to(device),
        state={},
        extras={},
        episodes=no_episodes(example),
        env_steps=length * rows,
        has_invalid_steps=example.has_invalid_steps,
    )


def no_episodes(example: Rollout) -> MetricVector:
    """Return totals over no episodes, with the names of the example's."""
    return MetricVector(example.episodes.names, torch.zeros_like(example.episodes.values))


def padded_sequences(episodes: Episodes) -> tuple[Tensor, Tensor, Tensor]:
    """Return obs `[L + 1, N, ...]`, action `[L, N, ...]` and which steps exist `[L, N]`, zero-padded to the longest."""
    begin, first = episodes.episode_start.tolist(), episodes.obs_start.tolist()
    actions = [episodes.action[a:b] for a, b in pairwise(begin)]
    obs = [episodes.obs[a:b] for a, b in pairwise(first)]
    exists = [torch.ones(len(action), dtype=torch.bool) for action in actions]
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(obs), pad(actions), pad(exists)
