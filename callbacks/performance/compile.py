"""Compiles and captures the joints of an iteration."""

from typing import Any, Literal

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities import rank_zero_info

from callbacks.performance.throughput import joints
from datamodules.core.phase import Joint


class Compile(Callback):
    """Sets how the joints (collect, prepare, update) run; each takes its form at its first call, after any restore.

    Args:
        mode: auto (graph on CUDA, off elsewhere) | off | default | reduce-overhead | max-autotune (those of
            `torch.compile`, for the parts of each joint; on a CPU not for acting in environments that are not tensors,
            which is faster as it is) | graph (the parts compiled, each joint one CUDA graph).
        float32_matmul_precision: high and medium let float32 products use TF32 or less on a GPU that has it; null
            leaves torch's setting, which is highest. The setting from before is restored after the run.
        backend: of `torch.compile`; another than inductor ignores what the modes ask of that one.
    """

    def __init__(
        self,
        mode: Literal["auto", "off", "default", "reduce-overhead", "max-autotune", "graph"] = "auto",
        float32_matmul_precision: Literal["highest", "high", "medium"] | None = None,
        backend: str = "inductor",
    ) -> None:
        self.mode, self.float32_matmul_precision, self.backend = mode, float32_matmul_precision, backend
        self._precision_before: str | None = None
        self._stream: torch.cuda.Stream | None = None
        self._joints: list[Joint[Any]] = []

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Set the precision of float32 products."""
        if self.float32_matmul_precision is not None and self._precision_before is None:
            self._precision_before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision(self.float32_matmul_precision)

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Restore the precision of float32 products."""
        before, self._precision_before = self._precision_before, None
        if before is not None:
            torch.set_float32_matmul_precision(before)

    def _leave_default_stream(self, device: torch.device) -> None:
        """Train on a stream of its own: what autograd remembers of the default one could not be captured."""
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        torch.cuda.set_stream(stream)
        self._stream = stream

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Let what works beside the loop end, free graphs and compiled functions, and go back to the default stream."""
        trainer.datamodule.settle()  # type: ignore[attr-defined]
        for joint in self._joints:
            joint.release()
        self._joints = []
        self._return()

    def _return(self) -> None:
        if self._stream is not None:
            default = torch.cuda.default_stream(self._stream.device)
            default.wait_stream(self._stream)
            torch.cuda.set_stream(default)
            self._stream = None

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Restore what the run changed; graphs are left alone, for a device that failed cannot be waited for."""
        for joint in self._joints:
            joint.restore_parts()
        self._joints = []
        self._return()
        self.teardown(trainer, pl_module, "fit")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Tell the joints; where graphs are impossible say so and compile instead."""
        on_cuda = trainer.strategy.root_device.type == "cuda"
        mode = ("graph" if on_cuda else "off") if self.mode == "auto" else self.mode
        if mode == "graph" and not on_cuda:
            rank_zero_info("compile mode graph needs a CUDA device: the joints are compiled without CUDA graphs here.")
            mode = "default"
        if mode == "graph":
            update = pl_module.joints["update"]
            update.capturable &= pl_module.optimization.make_capturable_(update.device)
            self._leave_default_stream(trainer.strategy.root_device)
        collector = trainer.datamodule.collector
        acting = [each.joint for each in collector.acting] if collector is not None and on_cuda else []
        self._joints = [*joints(trainer, pl_module).values(), *acting]
        for joint in self._joints:
            joint.mode, joint.backend = mode, self.backend

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Capture a step of the evaluations within a fit; compiling it would take longer than it saves."""
        joint = getattr(trainer.val_dataloaders, "joint", None)
        if joint is not None and self._stream is not None:
            joint.mode = "graph"
