"""Run the application's `fit`; every rank writes a hash of its weights: `python -m tests.support.ranked_fit fit ...`.

The environment variable HASHES names the folder; KILL_RANK the rank that kills itself in its tenth iteration.
"""

import os
import signal
import warnings
from pathlib import Path
from typing import Any, cast

from lightning.pytorch import Callback, Trainer
from torch import distributed

from app.cli.main import IGNORED_WARNINGS, LeydenCLI
from app.cli.parser import ConciseParser
from tests.support.small_runs import weights_hash


class KilledRank(Callback):
    """Kills its own process, on one rank, in the tenth iteration."""

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_rank == int(os.environ.get("KILL_RANK", -1)) and trainer.global_step >= 10:
            os.kill(os.getpid(), signal.SIGKILL)


class RankedCLI(LeydenCLI):
    """The application's command line with the callback above."""

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        trainer = super().instantiate_trainer(**kwargs)
        cast(Any, trainer).callbacks.append(KilledRank())
        return trainer


def main() -> None:
    """Train, then write the hash and the counters of this rank."""
    for message in IGNORED_WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    ConciseParser.begin()
    cli = RankedCLI()
    said = f"{weights_hash(cli.model)} {cli.model.global_step} {cli.model.env_steps}"
    Path(os.environ["HASHES"], f"rank{cli.trainer.global_rank}").write_text(said)
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
