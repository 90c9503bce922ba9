"""Process of a benchmark that trains for the durations that `benchmark` requests (see `app.peers.pacer`).

`python -m app.benchmark.worker [PEER] fit [options]`: train with this application, or with a peer.
"""

import sys
import warnings
from typing import Any, cast

import torch
from lightning.pytorch import Callback, Trainer

from app.benchmark.ranks import all_reduce_seconds, decide, total
from app.cli.error_messages import exit_with_error
from app.cli.import_policy import restrict_imports, trusted
from app.cli.main import IGNORED_WARNINGS, LeydenCLI
from app.cli.parser import ConciseParser
from app.peers.pacer import Pace
from app.peers.ppo import PEERS, task_of
from app.timing import device_name, loop_without_trainer, past_warm_up
from callbacks.performance.execution_summary import execution_summary
from callbacks.performance.throughput import phases
from datamodules.core.errors import ConfigurationError


class PacedCallback(Callback):
    """Train at the requested pace, after all other callbacks of an iteration."""

    acts_per_iteration = False

    def __init__(self, pace: Pace):
        self.pace, self.threads, self._warm = pace, torch.get_num_threads(), False

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Set the number of threads, whatever the run chose, and the functions that commands call."""
        torch.set_num_threads(max(1, self.threads // (1 + len(trainer.datamodule.concurrent_phases))))  # type: ignore[attr-defined]
        self.pace.device = trainer.strategy.root_device
        if trainer.world_size > 1:
            self.pace.decide, self.pace.total = decide, total
        self.pace.bare = lambda seconds: loop_without_trainer(trainer, pl_module, seconds, self.pace.decide)._asdict()
        self.pace.facts = lambda: self.facts(trainer, pl_module)
        self._counted = pl_module.env_steps, trainer.global_step

    def facts(self, trainer: Trainer, pl_module: Any) -> dict[str, Any]:
        """Return the compile time, device, execution modes and, for several ranks, the cost of their all-reduces."""
        device = trainer.strategy.root_device
        found = {
            "compile_s": sum(phase.warmup_seconds for phase in phases(trainer, pl_module).values()),
            "device": device_name(device),
            "execution": execution_summary(trainer, pl_module),
            "ranks": trainer.world_size,
            "num_agents": trainer.datamodule.spaces["num_agents"],  # type: ignore[attr-defined]
            "num_members": getattr(pl_module, "num_members", 1),
        }
        if trainer.world_size > 1:
            number = sum(weights.numel() for weights in pl_module.parameters() if weights.requires_grad)
            found["all_reduce_s"] = pl_module.updates / trainer.global_step * all_reduce_seconds(number, device)
        return found

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the iterations of the batch once learning has begun; wait, or end the run."""
        env_steps, iterations = self._counted
        self._counted = pl_module.env_steps, trainer.global_step
        self._warm = self._warm or past_warm_up(trainer, pl_module)
        if not self._warm:
            return
        trainer.should_stop |= not self.pace.count(pl_module.env_steps - env_steps, trainer.global_step - iterations)


class PacedCLI(LeydenCLI):
    """`fit` with a `PacedCallback`."""

    def __init__(self, pace: Pace):
        self.pace = pace
        super().__init__()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Create the Trainer and add the pace callback last."""
        trainer = super().instantiate_trainer(**kwargs)
        cast(Any, trainer).callbacks.append(PacedCallback(self.pace))
        return trainer


class UntrainedCLI(LeydenCLI):
    """CLI that creates data and model of the command line without training."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Do nothing: a peer trains."""


def main() -> None:
    """Train as one contestant until standard input ends.

    Raises:
        SystemExit: with one sentence and code 2 for invalid input.
    """
    pace, peer = Pace(), sys.argv.pop(1) if sys.argv[1] in PEERS else None
    for message in IGNORED_WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    restrict_imports(trusted())
    ConciseParser.begin()
    try:
        if peer is None:
            PacedCLI(pace)
        else:
            described = UntrainedCLI()
            PEERS[peer].train(task_of(described.datamodule, described.model, peer), pace)
    except ConfigurationError as error:
        exit_with_error(str(error))


if __name__ == "__main__":
    main()
