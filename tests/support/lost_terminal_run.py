"""`python -m tests.support.lost_terminal_run KIND`: a run that goes on until a signal stops it.

KIND is `program`, with the handlers of `python -m app`, or `script`, a Trainer without them.
"""

import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.graceful_stop import GracefulStop
from callbacks.run_control.signal_watchdog import SignalWatchdog
from datamodules.core.signals import exits_on_signal
from datamodules.rollout import RolloutDataModule
from modules import PPO


class Begun(Callback):
    """Makes the file `begun` after every iteration."""

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        Path("begun").touch()


def main() -> None:
    """Train until a signal comes, note the handler of SIGHUP in the file `hangup`, and exit with the signal's code."""
    program = sys.argv[1] == "program"
    with SignalWatchdog(grace=0) if program else nullcontext(), exits_on_signal() if program else nullcontext():
        data = RolloutDataModule("CartPole-v1", num_envs=2, rollout_length=8, total_env_steps=10**8)
        settings: dict[str, Any] = {"limit_val_batches": 0, "enable_progress_bar": False, "devices": 1}
        callbacks = [Begun(), interrupt := GracefulStop(), RunCheckpoint()]
        trainer = Trainer(accelerator="cpu", max_epochs=1, logger=False, callbacks=callbacks, **settings)
        trainer.fit(PPO(data.spaces, update_epochs=1, num_minibatches=2), data)
        Path("hangup").write_text(str(signal.getsignal(signal.SIGHUP)))
        print("a terminal that is gone takes no text", flush=True)
        sys.exit(128 + interrupt.stopped_by)


if __name__ == "__main__":
    main()
