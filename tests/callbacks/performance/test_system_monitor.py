"""Load and memory of the process and its children, from /proc."""

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from callbacks.performance.system_monitor import PROC, SystemMonitor, process_usages

pytestmark = pytest.mark.skipif(not PROC.is_dir(), reason="needs /proc")
MIB = 2**20


def hold(megabytes: int, ready: Any, release: Any) -> None:
    """Hold memory until released."""
    held = bytearray(megabytes * MIB)
    held[:: os.sysconf("SC_PAGE_SIZE")] = b"x" * len(held[:: os.sysconf("SC_PAGE_SIZE")])
    ready.set()
    release.wait(60)


def test_a_child_and_its_memory_are_counted() -> None:
    before = process_usages(os.getpid())
    context = multiprocessing.get_context("fork")
    ready, release = context.Event(), context.Event()
    child = context.Process(target=hold, args=(64, ready, release))
    child.start()
    assert ready.wait(60)

    after = process_usages(os.getpid())

    release.set()
    child.join()
    assert len(after) == len(before) + 1
    assert sum(each.memory_mib for each in after) - sum(each.memory_mib for each in before) > 60


def test_a_process_that_computes_is_a_core_busy() -> None:
    monitor = SystemMonitor()
    monitor.measure(torch.device("cpu"))
    began = time.process_time()
    while time.process_time() - began < 0.5:
        pass
    values = monitor.measure(torch.device("cpu"))
    assert 10 < values["system/cpu_percent"] < 200 and values["system/memory_mib"] > 50


def test_values_are_logged_with_the_others(make_run: Any) -> None:
    module = make_run(SystemMonitor(), log_every_n_steps=2).fit().module
    tags = {tag for tag in module.last_logged if tag.startswith("system/")}
    assert tags == {"system/cpu_percent", "system/memory_mib", "system/num_processes"}


def test_without_proc_nothing_is_logged(tmp_path: Path) -> None:
    assert SystemMonitor(proc=str(tmp_path)).measure(torch.device("cpu")) == {}
