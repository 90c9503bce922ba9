"""SumTree: sample entries in proportion to their priorities."""

from typing import Any

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError

FANOUT = 64
"""Children per node: one cumulative sum of 64 numbers per level, three levels for 262,144 entries."""


class SumTree:
    """Sum tree for prioritized sampling, with weights p = (error + 1e-6)^alpha; batched, on any device.

    Each node has 64 children. Setting entries recomputes the sums of their nodes from the children, level by level, so
    that no rounding error accumulates and repeated entries are harmless. A lookup is one cumulative sum of 64 numbers
    per level. Entries that must not be sampled have weight 0.

    Args:
        entries: number of entries.
        alpha: priority exponent, 0 (uniform) to 1 (proportional).
        device: device of the sums, float64.

    Attributes:
        maximum: the largest weight so far, 0-d, at least 1; the weight of new entries.

    Source: Schaul et al. 2016, arXiv:1511.05952, section 3.3, the proportional variant; sampling is stratified as
    in its appendix B.2.1.
    """

    def __init__(self, entries: int, alpha: float, device: torch.device):
        self.alpha = alpha
        sizes = [-(-entries // FANOUT) * FANOUT]
        while sizes[-1] > FANOUT:
            sizes.append(-(-(sizes[-1] // FANOUT) // FANOUT) * FANOUT)
        self.levels = [torch.zeros(size, dtype=torch.float64, device=device) for size in sizes]
        self.maximum = torch.ones((), dtype=torch.float64, device=device)

    def weight(self, error: Tensor) -> Tensor:
        """Return the weights p of absolute errors of any shape, float64."""
        return (error.double() + 1e-6) ** self.alpha

    def set_(self, entry: Tensor, weight: Tensor) -> None:
        """Set the weights `[M]` of distinct entries `[M]`."""
        self.levels[0].index_copy_(0, entry, weight)
        self._update_sums(entry)

    def update_(self, entry: Tensor, error: Tensor) -> None:
        """Set the weights of entries `[M]` from absolute errors `[M]`; for repeated entries the larger one is used."""
        weight = self.weight(error)
        self.levels[0].scatter_reduce_(0, entry, weight, "amax", include_self=False)
        torch.maximum(self.maximum, weight.max(), out=self.maximum)
        self._update_sums(entry)

    def sample_at(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """Return the entries at fractions `share` in [0, 1) of the total, and their probabilities."""
        node, rest = torch.zeros_like(share, dtype=torch.int64), share
        total = self.levels[-1].sum()
        for depth, level in enumerate(reversed(self.levels)):
            sums = level.view(-1, FANOUT)[node].cumsum(-1)
            if depth == 0:
                rest = rest * sums[..., -1]
            rest = torch.minimum(rest, sums[..., -1] * (1 - 2.0**-50))  # sums may differ by rounding
            child = (sums <= rest.unsqueeze(-1)).sum(-1)
            before = torch.where(child > 0, sums.gather(-1, (child - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1), 0.0)
            node, rest = node * FANOUT + child, rest - before
        return node, self.levels[0][node] / total

    def sample_stratified(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Sample one entry from each of N equal parts of the total, from uniforms `[U, N]`, and probabilities."""
        number = noise.shape[-1]
        return self.sample_at((torch.arange(number, device=noise.device) + noise) / number)

    def state_dict(self) -> dict[str, Any]:
        """Return the weights, their maximum, and alpha."""
        return {"weights": self.levels[0], "maximum": self.maximum, "alpha": self.alpha}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from `state_dict`; weights saved with another alpha are converted.

        Raises: ConfigurationError if the number of entries differs.
        """
        weight, maximum, alpha = (state.get(name) for name in ("weights", "maximum", "alpha"))
        if (
            not isinstance(weight, Tensor)
            or weight.shape != self.levels[0].shape
            or not isinstance(maximum, Tensor)
            or maximum.dim() > 0
            or not isinstance(alpha, int | float)
            or not 0 < alpha <= 1
        ):
            raise ConfigurationError(
                "The saved replay buffer has no priorities, or another number of them: resume without its file."
            )
        power = self.alpha / alpha
        self.levels[0].copy_(weight if power == 1 else weight**power)
        self.maximum.copy_(maximum if power == 1 else maximum**power)
        for below, level in zip(self.levels, self.levels[1:], strict=False):
            sums = below.view(-1, FANOUT).sum(-1)
            level[: len(sums)] = sums

    def _update_sums(self, entry: Tensor) -> None:
        for below, level in zip(self.levels, self.levels[1:], strict=False):
            entry = entry // FANOUT
            level.index_copy_(0, entry, below.view(-1, FANOUT).index_select(0, entry).sum(-1))


def importance_weights(probability: Tensor, beta: Tensor) -> Tensor:
    """Return importance weights `[..., N]` that correct the bias of prioritized sampling: p^-beta over the maximum.

    Args:
        probability: p of each sampled entry, `[..., N]`; the number of entries, a factor in the source, cancels.
        beta: exponent, 0 (no correction) to 1 (full correction).

    Source: Schaul et al. 2016, arXiv:1511.05952, section 3.4.
    """
    weight = probability**-beta
    return weight / weight.amax(-1, keepdim=True)
