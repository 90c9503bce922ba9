"""TorchProfiler: write a trace of an iteration at an interval of iterations."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch.profiler import ProfilerActivity, profile

from datamodules.core.errors import ConfigurationError


class TorchProfiler(Callback):
    """Write a trace of one Trainer batch, that is `data.iterations_per_batch` iterations, every so many iterations.

    Rank 0 writes `traces/iteration=N.pt.trace.json.gz` into the run folder, which https://ui.perfetto.dev and the
    TensorBoard plugin `torch-tb-profiler` open. The first trace is that of iteration `every_n_iterations` + 1, which
    compiles nothing any more; a traced iteration is slower. Other iterations cost nothing.

    Lightning's `PyTorchProfiler` traces every few batches from the first on, without an interval.

    Args:
        every_n_iterations: iterations between two traces.
        record_shapes: record the shapes of the operations' inputs.
        with_stack: record the source lines of the operations; slow.
        profile_memory: record allocations.

    Raises: ConfigurationError if the interval is below 1.
    """

    acts_per_iteration = False

    def __init__(
        self,
        every_n_iterations: int = 500,
        record_shapes: bool = False,
        with_stack: bool = False,
        profile_memory: bool = False,
    ):
        if every_n_iterations < 1:
            raise ConfigurationError(
                f"TorchProfiler's every_n_iterations is {every_n_iterations}; it must be at least 1."
            )
        self.every_n_iterations = every_n_iterations
        self.options: dict[str, Any] = {
            "record_shapes": record_shapes,
            "with_stack": with_stack,
            "profile_memory": profile_memory,
        }
        self._profiler: profile | None = None

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Set when the first trace is due, and determine the folder, by a collective call of all ranks."""
        self._folder = Path(trainer.log_dir or trainer.default_root_dir, "traces")
        self._set_next(trainer.global_step)

    def _set_next(self, iteration: int) -> None:
        self._next = (iteration // self.every_n_iterations + 1) * self.every_n_iterations

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Start a trace, if due."""
        if not trainer.is_global_zero or trainer.global_step < self._next:
            return
        self._set_next(trainer.global_step)
        cuda = [ProfilerActivity.CUDA] if trainer.strategy.root_device.type == "cuda" else []
        self._profiler = profile(activities=[ProfilerActivity.CPU, *cuda], **self.options)
        self._profiler.start()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End the trace and write it."""
        if self._profiler is None:
            return
        if (device := trainer.strategy.root_device).type == "cuda":
            torch.cuda.synchronize(device)  # the trace is to hold the kernels that the iteration began
        self._profiler.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._profiler.export_chrome_trace(str(self._folder / f"iteration={trainer.global_step}.pt.trace.json.gz"))
        self._profiler = None

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """End a trace that was begun, without writing it."""
        if self._profiler is not None:
            self._profiler.stop()
            self._profiler = None
