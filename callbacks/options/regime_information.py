"""RegimeInformation: mutual information of options and the regime of a synthetic market."""

from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor


class RegimeInformation(Callback):
    """Log `option/regime_information`: mutual information, in nats, of the active option and the market's regime.

    0 means that options are used equally in both regimes; the entropy of the regime, at most log 2, that each option is
    used in one regime only. One step per Trainer batch, the last, counts for every environment; K independent options
    give (K - 1) / 2n after n steps, by chance. Nothing is logged if the data have no regime, or the model no options.

    The data's `active_regime()` returns the regime of the last decision of every environment.
    """

    def __init__(self) -> None:
        self.counts: Tensor | None = None

    @torch.no_grad()
    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count this batch's last decisions; if due, log and reset the counts."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        options, regime = (
            getattr(pl_module, "num_options", 1),
            data.active_regime() if hasattr(data, "active_regime") else None,
        )
        if regime is None or options < 2:
            return
        counts = torch.zeros(2 * options, dtype=torch.float64) if self.counts is None else self.counts
        self.counts, state = counts.to(regime.device), data.collector.state
        self.counts.scatter_add_(0, 2 * state.policy_state["option"] + regime, (~state.episode_start).double())
        if trainer.global_step % trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            counts = trainer.strategy.reduce(self.counts, reduce_op="sum")
            pl_module.log_values({"option/regime_information": float(mutual_information(counts.view(options, 2)))})
            self.counts.zero_()

    def state_dict(self) -> dict[str, Any]:
        """Return the counts since the last log."""
        return {"counts": None if self.counts is None else self.counts.cpu()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore from `state_dict`."""
        self.counts = state_dict["counts"]


def mutual_information(counts: Tensor) -> Tensor:
    """Return the mutual information in nats, 0-d, of joint counts `[K, R]`; 0 without counts.

    sum_kr p(k, r) log(p(k, r) / (p(k) p(r)))
    """
    joint = counts / counts.sum().clamp(min=1)
    independent = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    return (torch.special.xlogy(joint, joint) - torch.special.xlogy(joint, independent)).sum()
