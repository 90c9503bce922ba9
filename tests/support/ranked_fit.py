"""Run the application's `fit`; every rank writes a hash of its weights: `python -m tests.support.ranked_fit fit ...`.

The environment variable HASHES names the folder; KILL_RANK the rank that kills itself in its tenth iteration.
"""

import os
import signal
from pathlib import Path
from typing import Any, cast

from lightning.pytorch import Callback, Trainer

from app.cli import main
from tests.support.small_runs import weights_hash


class RankRecord(Callback):
    """Writes this rank's hash and counters when the fit ends; kills one rank in the tenth iteration."""

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_rank == int(os.environ.get("KILL_RANK", -1)) and trainer.global_step >= 10:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_fit_end(self, trainer: Trainer, pl_module: Any) -> None:
        said = f"{weights_hash(pl_module)} {pl_module.global_step} {pl_module.env_steps}"
        Path(os.environ["HASHES"], f"rank{trainer.global_rank}").write_text(said)


class RankedCLI(main.LeydenCLI):
    """The application's command line with the callback above."""

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        trainer = super().instantiate_trainer(**kwargs)
        cast(Any, trainer).callbacks.append(RankRecord())
        return trainer


if __name__ == "__main__":
    main.LeydenCLI = RankedCLI  # type: ignore[misc]
    main.main()
