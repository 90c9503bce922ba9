"""ExecutionSummary: print the execution settings in use after the first iteration."""

from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from callbacks.performance.throughput import phases
from datamodules.core.files.printable import counted
from datamodules.core.phase import Phase

BACKENDS = {
    "SyncVectorEnv": "sync",
    "AsyncVectorEnv": "async",
    "WorkerPoolVectorEnv": "pool",
    "EnvPoolVectorEnv": "envpool",
    "ParallelVectorEnv": "sync",
}
"""Names of backends in a configuration, by the classes that step the environments."""


class ExecutionSummary(Callback):
    """Print, after the first iteration, the settings in use, which may differ from the requested ones.

    Environments and their backend, device, threads, precision, the mode of each phase, rows per policy call, pinned
    memory. Without collection, the lines on the policy are omitted.
    """

    acts_per_iteration = False

    def __init__(self) -> None:
        self._has_printed = False

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Print again in a new fit."""
        self._has_printed = False

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Print once."""
        if not self._has_printed:
            self._has_printed = True
            pl_module.print(table("Execution:", execution_summary(trainer, pl_module)))


def execution_summary(trainer: Any, pl_module: Any) -> dict[str, str]:
    """Return the settings in use after one iteration, by name."""
    collector, device = trainer.datamodule.collector, trainer.strategy.root_device
    forms = (f"{name} {form(phase)}" for name, phase in phases(trainer, pl_module).items())
    learning = {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "threads": f"{counted(torch.get_num_threads(), 'thread')} of torch",
        "precision": f"{trainer.precision}, {tf32(device)}",
        "phases": ", ".join(forms),
    }
    if collector is None:
        return {"environments": "none, learning from stored data", **learning}
    wrappers = trainer.datamodule.describe_wrappers()
    return {
        "environments": environments(collector.envs, trainer.datamodule.env),
        **({"wrappers": wrappers} if wrappers else {}),
        **learning,
        "acting": acting(collector)
        + ", concurrently with learning" * ("collect" in trainer.datamodule.concurrent_phases),
        "pinned memory": pinned(collector.envs, device),
    }


def table(title: str, values: Mapping[str, str]) -> str:
    """Format a title and one row per value, with aligned names."""
    width = max(map(len, values)) + 2
    return "\n".join([title, *(f"  {name:<{width}}{value}" for name, value in values.items())])


def form(phase: Phase[Any]) -> str:
    """Return the execution mode of a phase, with the requested mode if it differs."""
    requested = phase.mode == "graph" or (phase.mode != "off" and bool(phase.compile_targets))
    return (
        f"{phase.execution_mode} (requested: {phase.mode})"
        if requested and phase.execution_mode == "eager"
        else phase.execution_mode
    )


def environments(envs: Any, name: str) -> str:
    """Return number, name, agents if there are several, stage, ticks of a step, and backend of the environments."""
    inner = getattr(envs, "unwrapped", envs)
    agents, learning = inner.spaces["num_agents"], envs.spaces["num_agents"]
    several = f" of {agents} agents" + f", {learning} of which learn" * (learning < agents) if agents > 1 else ""
    workers = f" of {counted(inner.num_workers, 'worker')}" if hasattr(inner, "num_workers") else ""
    return f"{envs.num_envs} x {name}{several}{simulation(inner)}, backend {backend(inner)}{workers}"


def simulation(envs: Any) -> str:
    """Return the stage of a curriculum, and the simulator's ticks in an env step, of on-device environments."""
    env = getattr(envs, "env", None)
    stages, ticks = getattr(env, "stages", ()), getattr(env, "ticks_per_step", 1)
    stage = f", stage {env.stage + 1} of {len(stages)} ({stages[env.stage]})" if env and stages else ""
    return stage + f", {ticks} ticks a step" * (ticks > 1)


def backend(envs: Any) -> str:
    """Return the configuration name of the environments' backend."""
    if envs.is_stateless:
        return "device"
    kinds = {kind.__name__ for kind in type(getattr(envs, "envs", envs)).__mro__}
    return next((name for kind, name in BACKENDS.items() if kind in kinds), "vector")


def acting(collector: Any) -> str:
    """Return the execution mode of the policy calls during collection."""
    rows = f"{counted(rows_per_call(collector), 'row')} a policy call"
    return rows if collector.stateless_envs else f"{rows}, {form(collector.policy_runners[0].phase)}"


def rows_per_call(collector: Any) -> int:
    """Return the rows per policy call: half of all for alternating collection."""
    halves = getattr(collector.envs, "groups", None)
    return collector.rows if halves is None else max(half.stop - half.start for half in halves)


def tf32(device: torch.device) -> str:
    """Return the precision of float32 matrix products."""
    precision = torch.get_float32_matmul_precision()
    if device.type != "cuda":
        return f"float32 matmul precision {precision}"
    convolutions = "on" if torch.backends.cudnn.allow_tf32 else "off"
    matmuls = "off" if precision == "highest" else "on"
    return f"float32 matmul precision {precision}: TF32 {matmuls}, for convolutions {convolutions}"


def pinned(envs: Any, device: torch.device) -> str:
    """Return whether copies between environments and policy use pinned memory."""
    if envs.is_stateless or device.type != "cuda":
        return "not needed, nothing is copied between devices"
    return "yes" if getattr(envs, "pinned", False) else "no"
