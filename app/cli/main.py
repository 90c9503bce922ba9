"""Lightning's verbs (fit, validate, test, predict), with linked spaces, fixed settings and checks of the input."""

import logging
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from typing import Any

import yaml
from jsonargparse import Namespace
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch import distributed

from app.class_paths import exported_classes
from app.cli.config_files import SHARED, configs_folder, problem
from app.cli.error_messages import dropped_settings, exit_with_error
from app.cli.import_policy import restrict_imports, trust_advice, trusted, untrusted_environments
from app.cli.parser import ConciseParser
from app.cli.required_settings import check_required
from app.cli.trainer_settings import (
    as_list,
    check_settings,
    merge_callbacks_,
    missing_callbacks,
    one_sentence,
    replaced_callbacks,
    run_name,
)
from app.runs.checkpoints import (
    Experiment,
    OptionDifference,
    different_options,
    experiment_from_config,
    misfit,
    require_resumable,
    require_same_algorithm,
    require_same_spaces,
)
from app.runs.commands import Commands, SaveConfig
from app.runs.find_checkpoint import find_checkpoint
from app.runs.run_folder import RunFolders, expand_settings, require_writable_settings
from callbacks.run_control.checkpoint import PopulationCheckpoint, RunCheckpoint, write_atomically
from callbacks.run_control.divergence_guard import TrainingDiverged
from callbacks.run_control.graceful_stop import GracefulStop
from callbacks.run_control.launcher_watch import exits_with_launcher
from callbacks.run_control.run_summary import RunSummary
from callbacks.run_control.signal_watchdog import SignalWatchdog
from callbacks.run_control.trajectory_writer import TrajectoryWriter
from datamodules.base import EnvDataModule
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.checkpoint_index import environment_of
from datamodules.core.files.paths import expand_path, require_writable
from datamodules.core.files.printable import printable
from datamodules.core.files.run_checkpoints import load_checkpoint
from datamodules.core.signals import exits_on_signal
from modules.base.algorithm import Algorithm
from modules.base.trainer_checks import check_callbacks
from modules.manual_backward.callback import ManualBackward
from modules.ppo.population import PPOPopulation

RANK_ZERO = "lightning.pytorch.utilities.rank_zero"
"""Name of Lightning's logger for information."""

IGNORED_INFO = re.compile(r"litlogger|litmodels|TPU available|max_epochs=1` reached|has Tensor Cores")
"""Lightning's information that needs no action by the user."""

IGNORED_WARNINGS = (
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning's own, on recent torch
    r"The '.*' does not have many workers",  # the dataset is the loop: workers would be other loops
    r"The dirpath has changed from",  # an evaluation saves no checkpoints
    r"You're resuming from a checkpoint that ended before the epoch ended",  # all state is the collector's
    r"The number of training batches .* is smaller than the logging interval",  # the last iteration always logs
    r"Checkpoint directory .* exists and is not empty",
    r"\s*Online softmax is disabled on the fly",  # the compiler's own business
    r"TensorFloat32 tensor cores for float32 matrix multiplication available but not",  # the summary says it
    # DDP wraps parameters before a captured run moves to a stream of its own; nothing is accumulated in these nodes.
    r"The AccumulateGrad node's stream does not match the stream of the node",
    r"You called `self.log\(.*no logger configured",  # an evaluation makes no run folder
)
"""Warnings that need no action by the user."""

FORMAT_WARNING = warnings.formatwarning
"""Original function that formats warnings."""

GRACE = 5.0
"""Seconds after a second signal for closing environments; then the process is ended."""


class LeydenCLI(LightningCLI):
    """Command line of any `Algorithm` with any `EnvDataModule`; the data's spaces are linked to the model."""

    experiment: Experiment
    ckpt_path: Path | None = None
    checkpoint: dict[str, Any]

    def __init__(self) -> None:
        self.interrupt = GracefulStop()
        shared = {"default_config_files": [str(configs_folder() / SHARED)]}
        super().__init__(
            Algorithm,
            EnvDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            auto_configure_optimizers=False,
            seed_everything_default=1,  # reproducible unless asked otherwise
            save_config_callback=SaveConfig,
            save_config_kwargs={"overwrite": True},
            parser_kwargs={"prog": "python -m app"} | {verb: dict(shared) for verb in self.subcommands()},
            parser_class=ConciseParser,
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Return the verb of the command line, whose parser alone is made.

        `weights_only` is not an option, because checkpoints are always loaded with it.
        """
        verb = sys.argv[1]
        return {verb: {*LightningCLI.subcommands()[verb], "weights_only"}}

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        assert isinstance(parser, ConciseParser) and parser.groups is not None
        parser.verb, parser.groups["trainer"].title = subcommand, "settings of Lightning's Trainer"
        return parser

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link the environment's spaces to the model, and name the run after its config."""
        parser.link_arguments("data.spaces", "model.init_args.spaces", apply_on="instantiate")
        if (name := run_name(sys.argv)) is not None:
            path = f"{TensorBoardLogger.__module__}.{TensorBoardLogger.__name__}"
            parser.set_defaults(
                {"trainer.logger": {"class_path": path, "init_args": {"save_dir": "runs", "name": name}}}
            )

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Parse, then refuse unsafe or ineffective settings before any class is imported or instantiated.

        Raises:
            ConfigurationError: for an environment of an untrusted module, null where a value is required, or a Trainer
                setting that has no effect.
        """
        verb = sys.argv[1]
        try:
            self.config = Namespace({"subcommand": verb, verb: parse_alone(self._parser(verb), sys.argv[2:])})
        except UnicodeDecodeError:  # of a file that a setting names; those after --config were looked at before
            values = [token.rpartition("=")[2] for token in sys.argv[1:]]
            said = [problem(Path(value)) for value in values if Path(value).is_file()]
            raise ConfigurationError(next(filter(None, said), "A file is not UTF-8 text: save it as UTF-8.")) from None
        settings = self.config[verb]
        merge_callbacks_(settings.trainer)
        for env in untrusted_environments(settings.as_dict(), trusted()):
            raise ConfigurationError(trust_advice(env))
        for sentence in dropped_settings(settings, sys.argv[1:]):
            rank_zero_warn(sentence)
        if replaced := replaced_callbacks(settings.trainer, sys.argv[1:]):
            rank_zero_info(replaced)
        check_required(settings)
        check_settings(settings)
        expand_settings(settings)
        self.experiment = experiment_from_config(settings.trainer.as_dict())
        if verb == "fit":
            require_writable_settings(settings)
            require_writable(self.experiment.folder, "save_dir" if settings.trainer.logger else "default_root_dir")
            if settings.trainer.logger is False and not settings.trainer.default_root_dir:
                self.save_config_callback = None  # there is no run folder to put it into
            return
        self.save_config_callback = None
        if not any(token.startswith("--trainer.logger") for token in sys.argv):
            settings.trainer.logger = False  # an evaluation makes no run folder of its own

    def _parse_ckpt_path(self) -> None:
        """Find and check the checkpoint. Unlike Lightning, never merge its settings: the configuration wins."""
        verb = self.config.subcommand
        settings = self.config[verb]
        if settings.ckpt_path is None:
            if verb != "fit":
                rank_zero_warn(
                    f"`{verb}` was given no --ckpt_path (a file, a folder, `best` or `last`): the model is untrained."
                )
            return
        data = self._plain_settings()["data"].get("init_args") or {}
        environment = environment_of(data) if "env" in data else None
        wanted, algorithm = expand_path(settings.ckpt_path), settings.model.class_path
        self.ckpt_path = find_checkpoint(wanted, self.experiment, environment, algorithm, verb == "fit")
        sys.argv += ["--ckpt_path", str(self.ckpt_path)]  # for ranks that start from this command line: the same file
        self.checkpoint = load_checkpoint(self.ckpt_path)
        require_same_algorithm(self.ckpt_path, self.checkpoint, settings.model.class_path)
        if verb == "fit":
            require_resumable(self.ckpt_path, self.checkpoint)
        settings.ckpt_path = str(self.ckpt_path)
        rank_zero_info(f"Checkpoint: {self.ckpt_path}")

    def instantiate_classes(self) -> None:
        """Instantiate data, model and Trainer; report a value refused by a constructor as a user error.

        Raises:
            ConfigurationError: for such a value, with the message of the constructor.
        """
        with one_sentence():
            try:
                super().instantiate_classes()
            except (ValueError, MisconfigurationException) as error:
                reason = cause(error)
                if isinstance(reason, ValueError | MisconfigurationException):
                    raise ConfigurationError(str(reason)) from error
                raise reason from None

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Instantiate the Trainer, after a check that the checkpoint matches this environment.

        Raises:
            ConfigurationError: if the checkpoint has other spaces, for callbacks without effect, and for float16 on a
            CPU.
        """
        if self.ckpt_path is not None:
            require_same_spaces(self.ckpt_path, self.checkpoint, self.datamodule.spaces)
            for key, here, there in self._differences():
                rank_zero_info(
                    f"model.{key} is {here} in the configuration and {there} in the checkpoint; {here} is used."
                )
        settings = self.config_init[self.config.subcommand].trainer
        own = as_list(kwargs.pop("callbacks", settings.callbacks))
        added = self.program_callbacks(
            own, kwargs.get("enable_checkpointing", settings.enable_checkpointing) is not False
        )
        callbacks = [*own, *added]
        if isinstance(self.model, PPOPopulation):
            callbacks = [PopulationCheckpoint(each) if type(each) is RunCheckpoint else each for each in callbacks]
        trainer = super().instantiate_trainer(**kwargs, callbacks=callbacks)
        check_callbacks(trainer.callbacks)  # type: ignore[attr-defined]
        write_atomically(trainer)
        precision = self.config[self.config.subcommand].trainer.precision
        if precision in ("16-mixed", "16", 16) and trainer.strategy.root_device.type == "cpu":
            raise ConfigurationError("trainer.precision 16-mixed needs a GPU: use bf16-mixed or 32-true on a CPU.")
        return trainer

    def program_callbacks(self, configured: Sequence[Callback], has_checkpoints: bool) -> list[Callback]:
        """Return the callbacks of every run, which no config can leave out."""
        commands = Commands(sys.argv[2:], trusted())
        always = [self.interrupt, RunSummary(), TrajectoryWriter(), commands, ManualBackward()]
        return missing_callbacks(configured, has_checkpoints) + always

    def _differences(self) -> list[OptionDifference]:
        """Return the model options that differ from the checkpoint's."""
        return different_options(self.checkpoint, self._plain_settings()["model"].get("init_args", {}))

    def _plain_settings(self) -> dict[str, Any]:
        """Return the settings as a config and a checkpoint hold them: classes by their dotted paths."""
        verb = self.config.subcommand
        dumped = self._parser(verb).dump(self.config[verb], skip_unset=False)
        plain: dict[str, Any] = yaml.safe_load(dumped)
        return plain

    def _run_subcommand(self, subcommand: str) -> None:
        """Run the verb in its own folder, which is removed if the run fails before it has logged anything.

        Raises:
            ConfigurationError: for a folder of another run, and for a checkpoint whose weights do not match this model.
        """
        folders = RunFolders(self.trainer, subcommand, self.ckpt_path)
        try:
            with self._fitting_weights(), one_sentence(), exits_with_launcher(self.trainer):
                super()._run_subcommand(subcommand)
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None and error.filename is None:
                error.filename = str(self.experiment.folder)  # where a run writes
            if not self.model.last_logged:
                folders.remove()
            raise
        finally:
            folders.release()

    @contextmanager
    def _fitting_weights(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if self.ckpt_path is None or not str(error).startswith("Error(s) in loading state_dict"):
                raise
            raise ConfigurationError(
                misfit(self.ckpt_path, self.checkpoint, self.model.state_dict(), self._differences())
            ) from error

    def _prepare_subcommand_kwargs(self, subcommand: str) -> dict[str, Any]:
        kwargs = {**super()._prepare_subcommand_kwargs(subcommand), "weights_only": True}
        if subcommand == "test":
            kwargs["verbose"] = False  # RunSummary prints the table
        return kwargs


def parse_alone(parser: LightningArgumentParser, words: Sequence[str]) -> Namespace:
    """Parse the words that follow a verb without the parent of its parser, which would parse and validate them again.

    For the time of it the parser has no parent, which would otherwise have to print the config.
    """
    parent = vars(parser).pop("parent_parser")
    try:
        settings: Namespace = parser.parse_args(words)
        return settings
    finally:
        vars(parser)["parent_parser"] = parent


def cause(error: BaseException) -> BaseException:
    """Return the constructor's error: the parser, which tries every type of a union, wraps it in its own errors."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    for candidate in chain:
        *_, (frame, _) = walk_tb(candidate.__traceback__)
        if not str(frame.f_globals.get("__name__")).startswith("jsonargparse"):
            return candidate
    return chain[-1]


def is_lost_rank(error: RuntimeError) -> bool:
    """Return whether a collective operation failed because another process has ended (NCCL, gloo)."""
    return isinstance(error, distributed.DistBackendError) or "gloo/transport" in str(error)


def keep_readable(record: logging.LogRecord) -> bool:
    """Remove control characters from Lightning's information; drop messages that need no action."""
    record.msg, record.args = printable(record.getMessage()), ()
    return not IGNORED_INFO.search(record.msg)


def format_readable(*args: Any, **kwargs: Any) -> str:
    """Format a warning as before, without control characters."""
    return printable(FORMAT_WARNING(*args, **kwargs))


def report_thread_error(args: threading.ExceptHookArgs) -> None:
    """Print the error of a thread; not that of TensorBoard's writer, which its next write or flush raises again."""
    writes_events = type(args.thread).__module__ == "tensorboard.summary.writer.event_file_writer"
    if not (writes_events and isinstance(args.exc_value, OSError)):
        threading.__excepthook__(args)


def main() -> None:
    """Run one of Lightning's verbs from the command line.

    Raises:
        SystemExit: with one sentence and code 2 for invalid input, 1 if the weights diverged; with 128 + the signal's
            number if a signal ended the run. Other errors keep their traceback.
    """
    for message in IGNORED_WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    logging.getLogger(RANK_ZERO).addFilter(keep_readable)
    warnings.formatwarning = format_readable
    threading.excepthook = report_thread_error
    restrict_imports(trusted())
    exported_classes()  # so that the parser knows their short names
    ConciseParser.begin()
    try:
        with SignalWatchdog(GRACE), exits_on_signal():
            cli = LeydenCLI()
    except ConfigurationError as error:
        exit_with_error(str(error))
    except TrainingDiverged as error:
        raise SystemExit(printable(str(error))) from None
    except RuntimeError as error:
        if not is_lost_rank(error):
            raise
        raise SystemExit("Another rank ended during a collective operation: see its output for the reason.") from None
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()  # its threads, left to the interpreter's end, can abort the process
    if cli.interrupt.stopped_by is not None:
        raise SystemExit(128 + cli.interrupt.stopped_by)
