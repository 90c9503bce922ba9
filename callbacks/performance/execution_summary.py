"""What a run really uses: said once, when it has been used."""

from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from callbacks.performance.thread_tuner import counted
from callbacks.performance.throughput import joints
from datamodules.core.phase import Joint

BACKENDS = {"SyncVectorEnv": "sync", "AsyncVectorEnv": "async", "PoolEnv": "pool", "EnvPoolEnvs": "envpool"}
"""What the classes that step Gymnasium environments are called in a configuration."""


class OptimizationSummary(Callback):
    """Prints after the first iteration, when every joint has taken its form, what is in force and not what was asked.

    Environments and their backend, device, threads, precision, the joints, rows of a policy call, pinned memory. Where
    nothing is collected there is nothing to say of acting.
    """

    acts_per_iteration = False

    def __init__(self) -> None:
        self._said = False

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """A new fit is told about anew."""
        self._said = False

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Print, the first time."""
        if not self._said:
            self._said = True
            pl_module.print(table("In force:", in_force(trainer, pl_module)))


def in_force(trainer: Any, pl_module: Any) -> dict[str, str]:
    """What an iteration that has run once uses, by name."""
    collector, device = trainer.datamodule.collector, trainer.strategy.root_device
    forms = (f"{name} {form(joint)}" for name, joint in joints(trainer, pl_module).items())
    learning = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "threads": f"{counted(torch.get_num_threads())} of torch",
        "precision": f"{trainer.precision}, {tf32(device)}",
        "joints": ", ".join(forms),
    }
    if collector is None:
        return {"environments": "none is stepped, what is learned from was stored", **learning}
    return {
        "environments": f"{collector.envs.num_envs} x {trainer.datamodule.env}, backend {backend(collector.envs)}",
        **learning,
        "acting": acting(collector) + ", beside the learning" * ("collect" in trainer.datamodule.beside),
        "pinned memory": pinned(collector.envs, device),
    }


def table(title: str, values: Mapping[str, str]) -> str:
    """A title, and one row a value, names aligned."""
    width = max(map(len, values)) + 2
    return "\n".join([title, *(f"  {name:<{width}}{value}" for name, value in values.items())])


def form(joint: Joint[Any]) -> str:
    """What happens at a call, and what was asked for where that is something else."""
    asked = joint.mode == "graph" or (joint.mode != "off" and bool(joint.parts))
    return f"{joint.in_force} (asked for {joint.mode})" if asked and joint.in_force == "eager" else joint.in_force


def backend(envs: Any) -> str:
    """The name in a configuration of what steps the environments."""
    if envs.pure:
        return "device"
    kinds = {kind.__name__ for kind in type(getattr(envs, "envs", envs)).__mro__}
    return next((name for kind, name in BACKENDS.items() if kind in kinds), "vector")


def acting(collector: Any) -> str:
    """How the policy is asked while collecting."""
    rows = f"{rows_per_call(collector)} rows a policy call"
    return rows if collector.pure else f"{rows}, {form(collector.acting[0].joint)}"


def rows_per_call(collector: Any) -> int:
    """Rows that the policy decides for at once: half of them where halves take turns."""
    halves = getattr(collector.envs, "halves", None)
    return collector.rows if halves is None else max(half.stop - half.start for half in halves)


def tf32(device: torch.device) -> str:
    """How float32 matrices are multiplied."""
    precision = torch.get_float32_matmul_precision()
    if device.type != "cuda":
        return f"float32 matmul precision {precision}"
    convolutions = "on" if torch.backends.cudnn.allow_tf32 else "off"
    matmuls = "off" if precision == "highest" else "on"
    return f"float32 matmul precision {precision}: TF32 {matmuls}, for convolutions {convolutions}"


def pinned(envs: Any, device: torch.device) -> str:
    """Whether copies between environments and policy start from pinned memory."""
    if envs.pure or device.type != "cuda":
        return "not needed, nothing is copied between devices"
    return "yes" if getattr(envs, "pinned", False) else "no"
