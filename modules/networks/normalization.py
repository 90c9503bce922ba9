"""Running statistics of observations and rewards: constant in `forward`, updated by `update_` between iterations."""

from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from modules.functional.scans import linear_scan


class RunningNormalizer(nn.Module):
    """Normalise by the running mean and standard deviation, then clip.

    y = clamp((x - mean) / sqrt(var + eps), -clip, clip); before the first update y = x.

    Args:
        shape: of one entry; every element has its own statistics. `()` for scalars.
        clip: bound of the result, in standard deviations.
        eps: added to the variance, in squared units of x.

    Buffers: `mean` and `var` (the population's) `[*shape]` and `count` 0-d, float64; and `shift`, `scale` and `limit`,
    read by `forward`, in the default dtype. All are saved in the checkpoint and keep their memory addresses.

    Source: Chan, Golub and LeVeque 1983, doi:10.1080/00031305.1983.10483115, for the merge; items 6 and 7 on
    continuous actions of Huang et al. 2022, "The 37 implementation details of PPO", for the use.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    shift: Tensor
    scale: Tensor
    limit: Tensor

    def __init__(self, shape: tuple[int, ...], clip: float = 10.0, eps: float = 1e-8) -> None:
        super().__init__()
        self.clip = clip
        self.eps = eps
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))
        self.register_buffer("limit", torch.full((), torch.inf))

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` `[..., *shape]` normalised and clipped with the current statistics."""
        return ((x - self.shift) * self.scale).clamp(-self.limit, self.limit)

    @torch.no_grad()
    def update_(self, x: Tensor, valid: Tensor | None = None) -> None:
        """Merge the valid entries of `x`, of all ranks, into the statistics.

        Args:
            x: `[..., *shape]`.
            valid: `[...]` bool; the other entries have no effect, even NaN. None counts all.
        """
        deviation = x.reshape(-1, *self.mean.shape).double() - self.mean
        if valid is None:
            count = torch.full_like(self.count, deviation.shape[0])
        else:
            rows = valid.reshape(-1, *[1] * self.mean.dim())
            deviation, count = torch.where(rows, deviation, 0.0), valid.sum(dtype=torch.float64)
        self._merge(*_over_ranks(deviation.sum(0), deviation.square().sum(0), count))

    def _merge(self, total: Tensor, squares: Tensor, count: Tensor) -> None:
        """Merge sums of deviations from the current mean, and of their squares, over `count` entries."""
        all_count = (self.count + count).clamp(min=1)
        offset = total / count.clamp(min=1)
        squares_about_own_mean = squares - total * offset
        between = offset.square() * (self.count * count / all_count)
        self.var.copy_(
            torch.where(count > 0, (self.var * self.count + squares_about_own_mean + between) / all_count, self.var)
        )
        self.mean.add_(total / all_count)
        self.count.add_(count)
        has_data = self.count > 0
        self.shift.copy_(self.mean)
        self.scale.copy_(torch.where(has_data, (self.var.clamp(min=0) + self.eps).rsqrt(), 1.0))
        self.limit.copy_(torch.where(has_data, self.clip, torch.inf))


class PartNormalizer(nn.Module):
    """Normalise parts of observations, each by its own `RunningNormalizer`; the other parts are left unchanged.

    Args:
        shapes: of the normalised parts, by name.
    """

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.names = tuple(shapes)
        self.normalizers = nn.ModuleList(RunningNormalizer(shape) for shape in shapes.values())

    def forward(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parts `[..., *shape]` by name, normalised and clipped with the current statistics."""
        each = zip(self.names, self.normalizers, strict=True)
        return obs | {name: normalizer(obs[name]) for name, normalizer in each}

    def update_(self, obs: dict[str, Tensor], valid: Tensor | None = None) -> None:
        """Merge the valid entries of every part, of all ranks, into its statistics (`RunningNormalizer.update_`)."""
        for name, normalizer in zip(self.names, self.normalizers, strict=True):
            cast(RunningNormalizer, normalizer).update_(obs[name], valid)


class RewardScaler(nn.Module):
    """Divide rewards by the standard deviation of the running discounted return, then clip; the mean is not subtracted.

    G_t = gamma (1 - end_{t-1}) G_{t-1} + r_t, y_t = clamp(r_t / sqrt(Var(G) + eps), -clip, clip)

    Args:
        gamma: discount per env step, in [0, 1].
        clip: bound of the scaled reward.

    Raises:
        ValueError: If gamma is outside [0, 1].

    running: G of each row `[B]` after the last update, before the first one None. It belongs to the environments of one
        rank, so it is no buffer: an exact resume saves it with the states of the environments.

    Source: Engstrom et al. 2020, arXiv:2005.12729, section 3, "reward scaling".
    """

    def __init__(self, gamma: float, clip: float = 10.0) -> None:
        super().__init__()
        if not 0.0 <= gamma <= 1.0:
            raise ValueError(f"RewardScaler: gamma is {gamma}; it must lie in [0, 1].")
        self.gamma = gamma
        self.returns = RunningNormalizer((), clip)
        self.running: Tensor | None = None

    def scale(self, reward: Tensor) -> Tensor:
        """Return rewards `[T, B]` scaled and clipped with the current statistics."""
        return (reward * self.returns.scale).clamp(-self.returns.limit, self.returns.limit)

    @torch.no_grad()
    def update_(self, reward: Tensor, ended: Tensor, valid: Tensor | None = None, first: Tensor | None = None) -> None:
        """Update the discounted returns with a rollout and merge them into the statistics.

        Args:
            reward: `[T, B]`, unscaled.
            ended: `[T, B]` bool, terminated or truncated: the return of the row restarts after the step.
            valid: `[T, B]` bool; an invalid step does not change the row's return and is not counted.
            first: `[B]` bool; rows that begin an episode, as after a resume that cannot continue the old ones.
        """
        running = torch.zeros_like(reward[0], dtype=torch.float64)
        if self.running is not None and self.running.shape == running.shape:
            running.copy_(self.running if first is None else self.running.masked_fill(first, 0.0))
        present = torch.ones_like(ended) if valid is None else valid
        keep = torch.ones_like(reward, dtype=torch.float64).masked_fill(present, self.gamma)
        keep[1:].masked_fill_(ended[:-1], 0.0)
        returns = linear_scan(keep, torch.where(present, reward.double(), 0.0), running)
        self.running = returns[-1].masked_fill(ended[-1], 0.0)
        self.returns.update_(returns, present)


class RewardCenterer(nn.Module):
    """Subtract the running mean of the rewards.

    mean_t = mean_{t-1} + beta_t (m_t - mean_{t-1}),   beta_t = beta / (1 - (1 - beta)^t)

    where m_t is the mean reward of vector step t over rows and ranks. The step size beta_t makes the first means
    averages of all rewards so far. The mean is constant within an iteration.

    Args:
        beta: step size, in (0, 1]; the mean covers about the last 1 / beta vector steps.

    Raises:
        ValueError: If beta is outside (0, 1].

    Buffers: `total` and `weight`, float64 and 0-d; the mean is their quotient.

    Source: Naik et al. 2024, arXiv:2405.09999; the step size is Sutton and Barto 2018, exercise 2.7.
    """

    total: Tensor
    weight: Tensor

    def __init__(self, beta: float) -> None:
        super().__init__()
        if not 0.0 < beta <= 1.0:
            raise ValueError(f"RewardCenterer: beta is {beta}; it must be positive and at most 1.")
        self.beta = beta
        self.register_buffer("total", torch.zeros((), dtype=torch.float64))
        self.register_buffer("weight", torch.zeros((), dtype=torch.float64))

    @property
    def mean(self) -> Tensor:
        """Return the running mean, 0-d float64; 0 before the first update."""
        return torch.where(self.weight > 0, self.total / self.weight.clamp(min=1e-12), 0.0)

    def forward(self, reward: Tensor) -> Tensor:
        """Return rewards less the running mean."""
        return reward - self.mean.to(reward.dtype)

    @torch.no_grad()
    def update_(self, reward: Tensor, valid: Tensor) -> None:
        """Move the mean by the valid rewards `[T, B]` of all ranks, step by step; a step without any does not count."""
        total, count, _ = _over_ranks(
            torch.where(valid, reward, 0.0).double().sum(1),
            valid.sum(1, dtype=torch.float64),
            torch.zeros((), dtype=torch.float64, device=reward.device),
        )
        rate = self.beta * (count > 0).double()
        kept = (1 - rate).flip(0).cumprod(0).flip(0)  # the factor of what came before step t
        shares = rate * torch.cat([kept[1:], torch.ones_like(kept[:1])])
        self.total.copy_(kept[0] * self.total + (shares * total / count.clamp(min=1)).sum())
        self.weight.copy_(kept[0] * self.weight + shares.sum())


def _over_ranks(total: Tensor, squares: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three sums, added up over all ranks."""
    if not (dist.is_available() and dist.is_initialized()):
        return total, squares, count
    packed = torch.cat([total.flatten(), squares.flatten(), count.reshape(1)])
    dist.all_reduce(packed)
    size = total.numel()
    return packed[:size].view_as(total), packed[size:-1].view_as(squares), packed[-1]
