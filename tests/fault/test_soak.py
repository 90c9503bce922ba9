"""Long runs of tiny agents: memory, descriptors, threads and speed stay flat.

`SOAK_ITERATIONS` changes the number of iterations of each run. A run is cut into ten slices, of which the first four
are its warm-up: the replay fills, allocators and caches grow to their size, the agents learn to live longer. Between
the first three slices after it and the last three,

* the resident memory of the process grows by at most 4 MiB, and of its workers together by at most 4 MiB,
* the numbers of descriptors, threads and workers do not change,
* the CPU time of an iteration grows by at most half; the wall time depends on what else the machine does.
"""

import gc
import multiprocessing
import os
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import lightning
import pytest
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger

from callbacks.run_control.checkpoint import RunCheckpoint
from modules.base.algorithm import Algorithm
from modules.dqn.dqn import DQN
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.ppo.ppo import PPO
from modules.sac_options.controller import OptionController
from modules.sac_options.sac_options import SACOptions
from tests.fault import print_count
from tests.oracles.sac import box_data
from tests.support.replay_fixtures import replay_data
from tests.support.small_runs import cartpole_data, trainer

ITERATIONS = int(os.environ.get("SOAK_ITERATIONS", "300000"))
SLICES, WARM_UP, ENDS = 10, 4, 3
MEMORY_MIB, SLOWER = 4.0, 1.5
PROC = Path("/proc")

tiny = partial(MLP, hidden=(8,))


class Usage(NamedTuple):
    """What the process and its workers hold after a slice, and how fast the slice was."""

    memory_mib: float
    workers_mib: float
    descriptors: int
    threads: int
    workers: int
    iterations_per_s: float
    cpu_us_per_iteration: float


class Slices(Callback):
    """Measures and prints the usage after every tenth of the run."""

    def on_train_start(self, *_: Any) -> None:
        self.usages: list[Usage] = []
        self.begun = time.perf_counter(), time.process_time()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step % (count := ITERATIONS // SLICES):
            return
        wall, cpu = time.perf_counter() - self.begun[0], time.process_time() - self.begun[1]
        gc.collect()
        workers = [child.pid for child in multiprocessing.active_children()]
        self.usages.append(
            Usage(
                memory_mib(os.getpid()), sum(map(memory_mib, workers)), len([*(PROC / "self/fd").iterdir()]),
                len([*(PROC / "self/task").iterdir()]), len(workers), count / wall, cpu / count * 1e6,
            )
        )  # fmt: skip
        print("  ".join(f"{name} {value:.6g}" for name, value in self.usages[-1]._asdict().items()), flush=True)
        self.begun = time.perf_counter(), time.process_time()


def memory_mib(process: int | None) -> float:
    """The resident memory of a process."""
    pages = int((PROC / str(process) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def ppo() -> tuple[Algorithm, Any]:
    data = cartpole_data(backend="pool", num_envs=2, rollout_length=2, total_env_steps=4 * ITERATIONS, eval_episodes=2)
    return PPO(data.spaces, network=tiny, update_epochs=1, num_minibatches=1), data


def dqn() -> tuple[Algorithm, Any]:
    small: dict[str, Any] = {"num_envs": 1, "train_freq": 1, "batch_size": 8, "replay_ratio": 8, "capacity": 1000}
    cartpole: dict[str, Any] = {"env": "CartPole-v1", "env_kwargs": {}, "backend": "sync", "eval_episodes": 2}
    data = replay_data(**cartpole, **small, total_env_steps=ITERATIONS, learning_starts=100)
    return DQN(data.spaces, network=tiny, target_interval=100), data


def sac_options() -> tuple[Algorithm, Any]:
    small: dict[str, Any] = {"num_envs": 1, "train_freq": 1, "batch_size": 4, "replay_ratio": 4, "capacity": 1000}
    data = box_data(**small, total_env_steps=ITERATIONS, n_step=1)
    parts: dict[str, Any] = {"network": tiny, "critic": partial(TwinMLP, hidden=(8,))}
    return SACOptions(data.spaces, 2, controller=partial(OptionController, network=tiny), **parts), data


def complaints(usages: list[Usage]) -> list[str]:
    """What grew between the slices after the warm-up and the last ones."""
    early, late = usages[WARM_UP : WARM_UP + ENDS], usages[-ENDS:]
    found = []
    for name in ("memory_mib", "workers_mib", "cpu_us_per_iteration"):
        before, after = (median(getattr(usage, name) for usage in part) for part in (early, late))
        bound = before * SLOWER if name == "cpu_us_per_iteration" else before + MEMORY_MIB
        found += [f"{name} rose from {before:.1f} to {after:.1f}"] * (after > bound)
    for name in ("descriptors", "threads", "workers"):
        counts = [getattr(usage, name) for usage in usages[WARM_UP:]]
        found += [f"{name} were {counts}"] * (len({*counts}) > 1)
    return found


@pytest.mark.fault
@pytest.mark.skipif(not (PROC / "self/statm").exists(), reason="reads /proc, which Linux has")
@pytest.mark.parametrize("make", [ppo, dqn, sac_options])
def test_a_long_run_keeps_its_memory_descriptors_threads_and_speed(tmp_path: Path, make: Any) -> None:
    lightning.seed_everything(1, verbose=False)
    (model, data), slices = make(), Slices()
    often = {"log_every_n_steps": max(1, ITERATIONS // 200), "val_check_interval": max(1, ITERATIONS // 20)}
    saves = RunCheckpoint(every_n_iterations=max(1, ITERATIONS // 50))
    run = trainer(tmp_path, slices, saves, logger=TensorBoardLogger(tmp_path), **often)

    run.fit(model, datamodule=data)

    grown = complaints(slices.usages)
    print_count(f"{make.__name__}, slices of {ITERATIONS // SLICES} iterations", len(slices.usages), SLICES)
    assert len(slices.usages) == SLICES and not grown, grown


def test_growth_after_the_warm_up_is_a_complaint() -> None:
    flat = [Usage(100.0, 50.0, 20, 8, 2, 1000.0, 900.0)] * SLICES
    leaking = [usage._replace(memory_mib=100.0 + 2 * number) for number, usage in enumerate(flat)]
    forking = [*flat[:-1], flat[-1]._replace(threads=9)]
    slowing = [usage._replace(cpu_us_per_iteration=900.0 * 1.2**number) for number, usage in enumerate(flat)]

    assert not complaints(flat)
    assert [len(complaints(usages)) for usages in (leaking, forking, slowing)] == [1, 1, 1]
