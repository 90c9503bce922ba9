"""Turns a checkpoint of the older system into one of Leyden's.

    python import_checkpoint.py old.pth snake.ckpt --config dqn_snake_classic.yaml
    python -m app fit --config dqn_snake_classic.yaml --ckpt_path snake.ckpt
    python -m app test --config dqn_snake_classic.yaml --ckpt_path snake.ckpt

Whatever follows the two paths is what `fit` takes, and describes the run that goes on. Weights, target, Adam's moments,
the number of updates and epsilon come from the old file, epsilon as the number of env steps at which the run's schedule
has that value. The replay was never saved: it fills anew before learning goes on. `data.total_env_steps` says how many
env steps come on top of those.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from checkpoint import laid_out, named_alike, read_checkpoint
from lightning.pytorch import Callback, Trainer

from app.cli.config_args import resolve_config_args
from app.cli.error_messages import exit_with_error
from app.cli.main import LeydenCLI
from app.diagnose.profiler import QUIET
from datamodules.core.errors import ConfigurationError
from modules.dqn.dqn import DQN
from modules.dqn.epsilon_greedy import EpsilonGreedy


class Described(LeydenCLI):
    """The run that `fit` would make of the same words, quiet and not yet begun."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Wait."""

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Make a Trainer that only trains, on the CPU."""
        self.save_config_callback = None
        return super().instantiate_trainer(**kwargs, **QUIET, accelerator="cpu", callbacks=[])

    def program_callbacks(self, configured: Sequence[Callback], has_checkpoints: bool) -> list[Callback]:
        """Return none."""
        return []


class Import(Callback):
    """Puts an old checkpoint in place of a run's beginning, and saves before anything is learned.

    Args:
        old: what `read_checkpoint` read.
        path: where to save.
    """

    def __init__(self, old: dict[str, Any], path: Path):
        self.old, self.path = old, path

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take over what was learned."""
        old, data = self.old, trainer.datamodule
        pl_module.online.load_state_dict(named_alike(pl_module.online, old["model_state_dict"]))
        pl_module.target.load_state_dict(named_alike(pl_module.target, old["target_model_state_dict"]))
        optimizer = pl_module.raw_optimizers[0]
        own = optimizer.state_dict()
        optimizer.load_state_dict(own | {"state": laid_out(old["optimizer_state_dict"], own)["state"]})
        pl_module.updates = pl_module.last_target_sync = int(old["step_count"])
        pl_module.env_steps = pl_module.earlier_env_steps = steps_at(float(old["epsilon"]), pl_module.explore)
        data.learning_starts = max(data.learning_starts, data.steps_per_iteration + 1)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Save; the steps of this one iteration taught nothing."""
        trainer.save_checkpoint(self.path)
        trainer.should_stop = True


def steps_at(epsilon: float, explore: EpsilonGreedy) -> int:
    """Env steps after which the run explores with probability epsilon, or its schedule's nearer end."""
    span = explore.start - explore.end
    share = (explore.start - epsilon) / span if span else 1.0
    return round(min(max(share, 0.0), 1.0) * explore.steps)


def main(arguments: Sequence[str]) -> None:
    """Read, take over, save.

    Raises:
        SystemExit: with one sentence and code 2 when the input is bad.
    """
    try:
        if len(arguments) < 2 or "--config" not in arguments[2:]:
            raise ConfigurationError("Usage: python import_checkpoint.py OLD NEW.ckpt --config dqn_snake_classic.yaml.")
        old, path = read_checkpoint(arguments[0]), Path(arguments[1])
        sys.argv[1:] = resolve_config_args(["fit", *arguments[2:]])
        described = Described()
        if not isinstance(described.model, DQN):
            raise ConfigurationError(
                f"The config's model is {type(described.model).__name__}; give a config of modules.DQN."
            )
        trainer: Any = described.trainer
        trainer.callbacks.append(Import(old, path))
        trainer.fit(described.model, described.datamodule)
        begun, length = described.model.env_steps, described.datamodule.total_env_steps
        print(f"Saved {path}: the run goes on at {begun:,} env steps, for {length:,} more.")
    except ConfigurationError as error:
        exit_with_error(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
