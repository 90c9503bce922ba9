"""One thread, fixed seeds, signals heard, GPU tests only where a GPU is, and a tier for every test by its folder."""

import gc
import logging
import multiprocessing
import os
import random
import signal
import subprocess
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
import torch
from jsonargparse._common import parsing_settings
from lightning.fabric.utilities import registry
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

import tests
from tests.support.forked_programs import ForkedPopen
from tests.support.two_ranks import TwoRanks

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start
if os.environ.get("TORCHINDUCTOR_CACHE_DIR", default_cache_dir()) == default_cache_dir():
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = default_cache_dir() + "_leyden_tests"  # not that of the user's runs
torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as what a shell runs in the background and all its children do
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as under nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
registry.entry_points = cache(registry.entry_points)  # every Trainer would search all packages for them
cloudpickle.register_pickle_by_value(tests)  # workers receive environments whole: by name, they would import torch


TESTS = Path(__file__).parent
CONTRACTS = ("contracts",)
UNITS = (
    "architecture",
    "datamodules/buffers",
    "datamodules/core",
    "datamodules/envs",
    "datamodules/trading/prices",
    "modules/exploration",
    "modules/functional",
    "modules/networks",
)
"""Folders of the tests that call functions and classes by themselves, without a run, a process or a file of it."""


def tier_of(path: Path) -> str:
    """The tier of a file of tests."""
    folder = path.parent.relative_to(TESTS).as_posix() + "/"
    for tier, folders in (("unit", UNITS), ("contracts", CONTRACTS)):
        if folder.startswith(tuple(f"{each}/" for each in folders)):
            return tier
    return "integration"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import all tests without collecting garbage, and leave what they define out of every later collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test the marker of its tier."""
    for item in items:
        item.add_marker(tier_of(item.path))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _log_levels() -> Iterator[None]:
    """A verb that quietens Lightning quietens its own process, which here goes on."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def _parsing_settings() -> Iterator[None]:
    """A verb restricts imports of its own process, which here goes on."""
    before = dict(parsing_settings)
    yield
    parsing_settings.update(before)


@pytest.fixture(autouse=True, scope="module")
def _no_workers_of_another_file() -> Iterator[None]:
    """A fit that failed keeps its environments, and their workers, until its data is collected as garbage."""
    yield
    if multiprocessing.active_children():
        gc.collect()


@pytest.fixture
def forked_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork for the programs that a test starts; tests of how they start leave this fixture out."""
    monkeypatch.setattr(subprocess, "Popen", ForkedPopen)


@pytest.fixture(scope="session")
def ranks() -> Iterator[TwoRanks]:
    """Two ranks, which start with the first test that calls a function on them."""
    with TwoRanks() as ranks:
        yield ranks


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
