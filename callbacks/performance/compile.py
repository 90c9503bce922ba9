"""Compile: compile the phases of an iteration or capture them as CUDA graphs."""

import os
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from callbacks.performance.throughput import phases
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.paths import require_writable
from datamodules.core.phase import Phase

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
"""Environment variable that names the folder in which inductor keeps compiled code."""


class Compile(Callback):
    """Set the execution mode of the phases (collect, prepare, update), effective at their first call.

    Compiled code is kept in the user's cache folder for later runs (`keep_compiled_code`).

    Args:
        mode: auto (graph on CUDA, off elsewhere) | off | default | reduce-overhead | max-autotune (modes of
            `torch.compile`, for the parts of each phase; on a CPU not for policy calls with environments on the host,
            which are faster without) | graph (the parts compiled, each phase one CUDA graph).
        float32_matmul_precision: high and medium let float32 products use TF32 or less on a GPU that has it; null keeps
            torch's setting, which is highest. The previous setting is restored after the run.
        backend: backend of `torch.compile`; others than inductor ignore the options of the modes.
    """

    def __init__(
        self,
        mode: Literal["auto", "off", "default", "reduce-overhead", "max-autotune", "graph"] = "auto",
        float32_matmul_precision: Literal["highest", "high", "medium"] | None = None,
        backend: str = "inductor",
    ) -> None:
        self.mode, self.float32_matmul_precision, self.backend = mode, float32_matmul_precision, backend
        self._previous_precision: str | None = None
        self._stream: torch.cuda.Stream | None = None
        self._phases: list[Phase[Any]] = []

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Set the precision of float32 products."""
        if self.float32_matmul_precision is not None and self._previous_precision is None:
            self._previous_precision = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision(self.float32_matmul_precision)

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Restore the precision of float32 products."""
        precision, self._previous_precision = self._previous_precision, None
        if precision is not None:
            torch.set_float32_matmul_precision(precision)

    def _leave_default_stream(self, device: torch.device) -> None:
        """Train on a separate stream: autograd's work on the default stream cannot be captured."""
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        torch.cuda.set_stream(stream)
        self._stream = stream

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Wait for concurrent work, free graphs and compiled functions, and return to the default stream."""
        trainer.datamodule.wait()  # type: ignore[attr-defined]
        for phase in self._phases:
            phase.release_graph()
        self._phases = []
        self._return_to_default_stream()

    def _return_to_default_stream(self) -> None:
        if self._stream is not None:
            default = torch.cuda.default_stream(self._stream.device)
            default.wait_stream(self._stream)
            torch.cuda.set_stream(default)
            self._stream = None

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Restore the settings; graphs are kept, since a failed device cannot be synchronized."""
        for phase in self._phases:
            phase.restore_targets()
        self._phases = []
        self._return_to_default_stream()
        self.teardown(trainer, pl_module, "fit")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Set the mode of the phases; if graphs are not possible, warn and compile instead."""
        on_cuda = trainer.strategy.root_device.type == "cuda"
        mode = ("graph" if on_cuda else "off") if self.mode == "auto" else self.mode
        if mode == "graph" and not on_cuda:
            rank_zero_info("compile mode graph needs a CUDA device: the phases are compiled without CUDA graphs.")
            mode = "default"
        if mode != "off":
            keep_compiled_code()
        if mode == "graph":
            update = pl_module.phases["update"]
            update.capturable &= pl_module.optim.make_capturable_(update.device)
            self._leave_default_stream(trainer.strategy.root_device)
        collector = trainer.datamodule.collector
        acting = [each.phase for each in collector.policy_runners] if collector is not None and on_cuda else []
        self._phases = [*phases(trainer, pl_module).values(), *acting]
        for phase in self._phases:
            phase.mode, phase.backend = mode, self.backend

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Capture a step of the evaluations within a fit; compiling it would take longer than it saves."""
        phase = getattr(trainer.val_dataloaders, "phase", None)
        if phase is not None and self._stream is not None:
            phase.mode = "graph"


def keep_compiled_code() -> None:
    """Keep compiled code in `leyden/compile` of the user's cache folder, unless the environment names another folder.

    The cache folder is `XDG_CACHE_HOME`, by default `~/.cache`. Inductor finds its entries by graph, shapes, device and
    versions, and compiles again what it cannot read; the instruction set, which it does not compare, names a folder of
    its own. Torch's default is a folder for temporary files, which a restart empties; it is used where the cache folder
    cannot be written. Importing torch's compiler writes that default into the environment, which is no choice.
    """
    if os.environ.get(CACHE_VARIABLE, default_cache_dir()) != default_cache_dir():
        return
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = home.absolute() / "leyden" / "compile" / torch.backends.cpu.get_cpu_capability()
        folder.mkdir(parents=True, exist_ok=True)
        require_writable(folder)
    except (OSError, RuntimeError, ConfigurationError):
        return
    os.environ[CACHE_VARIABLE] = str(folder)
