"""SelfPlay: save checkpoints at an interval, and let the newest play as opponents."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn

from callbacks.run_control.atomic_write import atomic_write
from datamodules.core.arguments import check_ranges
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.checkpoint_index import index_path
from datamodules.core.files.printable import counted

POOL = "pool"
"""Name of the pool's folder beside the run's other checkpoints."""


class SelfPlay(Callback):
    """Save a checkpoint every `every_n_iterations` in the run's `checkpoints/pool/`, and load the newest as opponents.

    The opponents are every `modules.CheckpointPool` of `data.opponents`. The first checkpoint has the weights of the
    start. A resumed run copies those that played into its own pool; it may resume from a checkpoint of a pool as well.
    In `validate`, `test` and `predict` the pool plays the evaluated policy itself. `python -m app elo` rates the
    checkpoints against one another.

    Args:
        every_n_iterations: iterations between two checkpoints.
        keep: number of the newest checkpoints that are kept; null keeps all.

    Raises: ConfigurationError for an invalid number, and at the start of a fit without a `CheckpointPool`, with fewer
        kept checkpoints than it plays, or without a folder for checkpoints.
    """

    acts_per_iteration = False

    def __init__(self, every_n_iterations: int = 100, keep: int | None = None):
        check_ranges(
            "SelfPlay",
            ("every_n_iterations", every_n_iterations, every_n_iterations >= 1, "at least 1"),
            ("keep", keep, keep is None or keep >= 1, "at least 1, or null"),
        )
        self.every_n_iterations, self.keep = every_n_iterations, keep
        self.saved_at = -1

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Fill the pools with copies of the policy, before environments are made."""
        opponents = trainer.datamodule.agents.opponents(trainer.strategy.root_device)
        self.pools = [each for each in opponents if hasattr(each, "fill") and hasattr(each, "load")]
        for pool in self.pools:
            pool.fill(pl_module)
            pool.to(trainer.strategy.root_device)
        if stage == "fit":
            self._check(trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Let the evaluated policy play against itself, outside of a fit."""
        if trainer.state.fn != TrainerFn.FITTING:
            for pool in self.pools:
                pool.fill(pl_module)

    on_test_start = on_validation_start
    on_predict_start = on_validation_start

    def _check(self, trainer: Any) -> None:
        if not self.pools:
            raise ConfigurationError(
                "callbacks.SelfPlay has no opponents: add modules.CheckpointPool to data.opponents, and its group to"
                " data.policy_group."
            )
        most = max(pool.size for pool in self.pools)
        if self.keep is not None and self.keep < most:
            raise ConfigurationError(
                f"SelfPlay keeps {counted(self.keep, 'checkpoint')}, and the pool plays {most}: raise keep."
            )
        if trainer.checkpoint_callback is None:
            raise ConfigurationError("callbacks.SelfPlay needs checkpoints: leave trainer.enable_checkpointing on.")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Save the first checkpoint, or load those that played when the resumed checkpoint was saved."""
        if self.saved_at < 0:
            self._save(trainer)
        elif trainer.ckpt_path:
            self._copy(trainer)
        self._load(trainer)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Save and load, if due."""
        if trainer.global_step - self.saved_at >= self.every_n_iterations:
            self._save(trainer)
            self._load(trainer)

    def folder(self, trainer: Any) -> Path:
        """Return the folder of the pool's checkpoints."""
        return Path(str(trainer.checkpoint_callback.dirpath)) / POOL

    def checkpoints(self, folder: Path) -> list[Path]:
        """Return the checkpoints in a pool's folder up to the last one that was saved, the newest last."""
        checkpoints = {int(path.stem.partition("=")[2]): path for path in folder.glob("iteration=*.ckpt")}
        return [checkpoints[number] for number in sorted(checkpoints) if number <= self.saved_at]

    def _copy(self, trainer: Any) -> None:
        """Copy the checkpoints that play, with their indexes, from the resumed checkpoint's pool into this run's."""
        resumed_folder, pool_folder = Path(trainer.ckpt_path).parent, self.folder(trainer)
        source = resumed_folder if resumed_folder.name == POOL else resumed_folder / POOL
        if trainer.is_global_zero and source.resolve() != pool_folder.resolve():
            most = max(pool.size for pool in self.pools)
            for path in self.checkpoints(source)[-most:]:
                for file in filter(Path.is_file, (index_path(path), path)):
                    with atomic_write(pool_folder / file.name) as copy:
                        copy.write(file.read_bytes())
        trainer.strategy.barrier()

    def _save(self, trainer: Any) -> None:
        self.saved_at = trainer.global_step
        trainer.save_checkpoint(self.folder(trainer) / f"iteration={self.saved_at:07d}.ckpt")
        if self.keep is not None and trainer.is_global_zero:
            for path in self.checkpoints(self.folder(trainer))[: -self.keep]:
                trainer.strategy.remove_checkpoint(path)

    def _load(self, trainer: Any) -> None:
        checkpoints = self.checkpoints(self.folder(trainer))
        if not checkpoints:
            rank_zero_warn(f"{self.folder(trainer)} has no checkpoints: the opponents are the policy of the start.")
            return
        trainer.datamodule.wait()
        for pool in self.pools:
            pool.load(checkpoints)

    def state_dict(self) -> dict[str, Any]:
        """Return the iteration of the last saved checkpoint."""
        return {"saved_at": self.saved_at}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore it."""
        self.saved_at = state_dict["saved_at"]
