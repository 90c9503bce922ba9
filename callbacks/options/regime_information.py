"""What options know of a market's regime, where the market was made and the regime is known."""

from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor


class RegimeInformation(Callback):
    """Logs `option/regime_information`: mutual information, in nats, of the option that acts and the regime that rules.

    0 says that options are used alike in both regimes; the entropy of the regime, at most log 2, that each option
    belongs to one. One step a Trainer batch counts for every environment, the last; K options that know nothing show
    (K - 1) / 2n after n of them, by chance. Silent where the data know no regime, or the model no options.

    The data's `ruling()` says which regime ruled the last decision of every environment.
    """

    def __init__(self) -> None:
        self.counts: Tensor | None = None

    @torch.no_grad()
    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count this batch's last decisions; log when it is time, and begin anew."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        options, regime = getattr(pl_module, "options", 1), data.ruling() if hasattr(data, "ruling") else None
        if regime is None or options < 2:
            return
        counts = torch.zeros(2 * options, dtype=torch.float64) if self.counts is None else self.counts
        self.counts, live = counts.to(regime.device), data.collector.live
        self.counts.scatter_add_(0, 2 * live.actor["option"] + regime, (~live.reset).double())
        if trainer.global_step % trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            counts = trainer.strategy.reduce(self.counts, reduce_op="sum")
            pl_module.log_values({"option/regime_information": float(shared(counts.view(options, 2)))})
            self.counts.zero_()

    def state_dict(self) -> dict[str, Any]:
        """What was counted since the last log."""
        return {"counts": None if self.counts is None else self.counts.cpu()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.counts = state_dict["counts"]


def shared(counts: Tensor) -> Tensor:
    """Mutual information in nats, 0-d, of two things that were seen together so often, `[K, R]`; 0 if never.

    sum_kr p(k, r) log(p(k, r) / (p(k) p(r)))
    """
    joint = counts / counts.sum().clamp(min=1)
    apart = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    return (torch.special.xlogy(joint, joint) - torch.special.xlogy(joint, apart)).sum()
