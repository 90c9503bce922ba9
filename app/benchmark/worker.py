"""One contestant of a benchmark: a process that trains when it is told to (`app.peers.pacer` says how).

`python -m app.benchmark.worker WHO fit [options]`: WHO is `ours`, or a peer that trains on the same settings.
"""

import sys
import warnings
from typing import Any, cast

import torch
from lightning.pytorch import Callback, Trainer

from app.cli.error_messages import refuse
from app.cli.import_policy import restrict_imports
from app.cli.main import NOISE, LeydenCLI
from app.cli.parser import OneSentenceParser
from app.peers.pacer import Pace
from app.peers.ppo import PEERS, task_of
from app.timing import bare_loop, device_name
from callbacks.performance.execution_summary import in_force
from callbacks.performance.throughput import joints
from datamodules.core.errors import UsageError


class Paced(Callback):
    """Trains at the pace it is told, after everything that the config's callbacks do in an iteration."""

    acts_per_iteration = False

    def __init__(self, pace: Pace):
        self.pace, self.threads = pace, torch.get_num_threads()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Pin the threads, whatever the run chose, and say what can be asked; what goes on at once shares them."""
        torch.set_num_threads(max(1, self.threads // (1 + len(trainer.datamodule.beside))))  # type: ignore[attr-defined]
        self.pace.device = trainer.strategy.root_device
        self.pace.bare = lambda seconds: bare_loop(trainer, pl_module, seconds)._asdict()
        self.pace.facts = lambda: {
            "compile_s": sum(joint.first_call_seconds for joint in joints(trainer, pl_module).values()),
            "device": device_name(trainer.strategy.root_device),
            "in_force": in_force(trainer, pl_module),
        }
        self._counted = pl_module.env_steps, trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the iterations of the batch; wait, or end the run."""
        env_steps, iterations = self._counted
        self._counted = pl_module.env_steps, trainer.global_step
        trainer.should_stop |= not self.pace.tick(pl_module.env_steps - env_steps, trainer.global_step - iterations)


class Ours(LeydenCLI):
    """The program's own `fit`, paced."""

    def __init__(self, pace: Pace):
        self.pace = pace
        super().__init__()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Make the Trainer and add the pace, last."""
        trainer = super().instantiate_trainer(**kwargs)
        cast(Any, trainer).callbacks.append(Paced(self.pace))
        return trainer


class Described(LeydenCLI):
    """Data and model as the command line describes them, not trained."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Leave the training to a peer."""


def main() -> None:
    """Train as one contestant until standard input ends.

    Raises:
        SystemExit: with one sentence and code 2 when the input is bad.
    """
    pace, who = Pace(), sys.argv.pop(1)
    for message in NOISE:
        warnings.filterwarnings("ignore", message=message)
    restrict_imports()
    OneSentenceParser.begin()
    try:
        if who == "ours":
            Ours(pace)
        else:
            described = Described()
            PEERS[who].train(task_of(described.datamodule, described.model, who), pace)
    except UsageError as error:
        refuse(str(error))


if __name__ == "__main__":
    main()
