"""Priorities: numbers to sample in proportion to, in a tree of sums."""

from typing import Any

import torch
from torch import Tensor

from datamodules.core.errors import UsageError

WIDTH = 64
"""Children of a node: a lookup is one cumulative sum of so many numbers a level, three levels for a quarter million."""


class Priorities:
    """Entries with weights p = (error + 1e-6)^alpha, drawn in proportion to them; all batched, on any device.

    A tree of sums, 64 children a node. Setting entries sums their nodes anew from their children, level by level, so
    that nothing drifts and entries that occur twice do no harm; looking one up is a cumulative sum of 64 numbers a
    level. Entries that must not be drawn have weight 0.

    Args:
        entries: how many.
        alpha: how much errors matter, 0 (not at all) to 1 (in proportion).
        device: where the sums live, in float64.

    Attributes:
        maximum: the largest weight so far, 0-d, at least 1: what new entries get.

    Source: Schaul et al. 2016, arXiv:1511.05952, section 3.3, the proportional variant; sampling is stratified as in
    its appendix B.2.1.
    """

    def __init__(self, entries: int, alpha: float, device: torch.device):
        self.alpha = alpha
        sizes = [-(-entries // WIDTH) * WIDTH]
        while sizes[-1] > WIDTH:
            sizes.append(-(-(sizes[-1] // WIDTH) // WIDTH) * WIDTH)
        self.levels = [torch.zeros(size, dtype=torch.float64, device=device) for size in sizes]
        self.maximum = torch.ones((), dtype=torch.float64, device=device)

    def weight(self, error: Tensor) -> Tensor:
        """The weights p of absolute errors of any shape, float64."""
        return (error.double() + 1e-6) ** self.alpha

    def set_(self, entry: Tensor, weight: Tensor) -> None:
        """Give entries `[M]`, each of which occurs once, their weights `[M]`."""
        self.levels[0].index_copy_(0, entry, weight)
        self._sum_up(entry)

    def update_(self, entry: Tensor, error: Tensor) -> None:
        """Weigh entries `[M]` by their absolute errors `[M]`; of an entry that occurs twice the larger counts."""
        weight = self.weight(error)
        self.levels[0].scatter_reduce_(0, entry, weight, "amax", include_self=False)
        torch.maximum(self.maximum, weight.max(), out=self.maximum)
        self._sum_up(entry)

    def find(self, share: Tensor) -> tuple[Tensor, Tensor]:
        """Entries at shares of the total, and the probability of each, both of the shape of `share`, in [0, 1)."""
        node, rest = torch.zeros_like(share, dtype=torch.int64), share
        total = self.levels[-1].sum()
        for depth, level in enumerate(reversed(self.levels)):
            sums = level.view(-1, WIDTH)[node].cumsum(-1)
            if depth == 0:
                rest = rest * sums[..., -1]
            rest = torch.minimum(rest, sums[..., -1] * (1 - 2.0**-50))  # a sum of sums may differ in its last bits
            child = (sums <= rest.unsqueeze(-1)).sum(-1)
            before = torch.where(child > 0, sums.gather(-1, (child - 1).clamp(min=0).unsqueeze(-1)).squeeze(-1), 0.0)
            node, rest = node * WIDTH + child, rest - before
        return node, self.levels[0][node] / total

    def stratified(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """One entry from each of N equal parts of the total, from uniforms `[U, N]`; and their probabilities."""
        number = noise.shape[-1]
        return self.find((torch.arange(number, device=noise.device) + noise) / number)

    def state_dict(self) -> dict[str, Any]:
        """Weights, their maximum, and the alpha that made them of errors."""
        return {"weights": self.levels[0], "maximum": self.maximum, "alpha": self.alpha}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`; weights of another alpha become those of this one.

        Raises: UsageError if it holds no weights of as many entries.
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
            raise UsageError("The saved replay holds no priorities, or of another number: resume without its file.")
        power = self.alpha / alpha
        self.levels[0].copy_(weight if power == 1 else weight**power)
        self.maximum.copy_(maximum if power == 1 else maximum**power)
        for below, level in zip(self.levels, self.levels[1:], strict=False):
            sums = below.view(-1, WIDTH).sum(-1)
            level[: len(sums)] = sums

    def _sum_up(self, entry: Tensor) -> None:
        for below, level in zip(self.levels, self.levels[1:], strict=False):
            entry = entry // WIDTH
            level.index_copy_(0, entry, below.view(-1, WIDTH).index_select(0, entry).sum(-1))


def importance_weights(probability: Tensor, beta: Tensor) -> Tensor:
    """Weights `[..., N]` that undo part of the bias of sampling by priority: p^-beta over the largest of the N.

    Args:
        probability: p of each entry drawn, `[..., N]`; the number of entries, which the source multiplies it by,
            cancels.
        beta: 0 undoes nothing, 1 everything.

    Source: Schaul et al. 2016, arXiv:1511.05952, section 3.4.
    """
    weight = probability**-beta
    return weight / weight.amax(-1, keepdim=True)
