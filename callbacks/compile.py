"""Compiles and captures the joints of an iteration."""

from typing import Any, Literal

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities import rank_zero_info

from callbacks.throughput import joints


class Compile(Callback):
    """Sets how the joints (collect, prepare, update) run; each takes its form at its first call, after any restore.

    Args:
        mode: auto (graph on CUDA, off elsewhere) | off | default | reduce-overhead | max-autotune (those of
            `torch.compile`, for the parts of each joint) | graph (the parts compiled, each joint one CUDA graph).
    """

    def __init__(
        self, mode: Literal["auto", "off", "default", "reduce-overhead", "max-autotune", "graph"] = "auto"
    ) -> None:
        self.mode = mode

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Tell the joints; where graphs are impossible say so and compile instead."""
        on_cuda = trainer.strategy.root_device.type == "cuda"
        mode = ("graph" if on_cuda else "off") if self.mode == "auto" else self.mode
        if mode == "graph" and not on_cuda:
            rank_zero_info("compile mode graph needs a CUDA device: the joints are compiled without CUDA graphs here.")
            mode = "default"
        if mode == "graph" and trainer.precision == "16-mixed":
            rank_zero_info("compile mode graph cannot hold 16-mixed's loss scaling: compiled without CUDA graphs.")
            mode = "default"
        if mode == "graph":
            pl_module.make_capturable_()
        for joint in joints(trainer, pl_module).values():
            joint.mode = mode
