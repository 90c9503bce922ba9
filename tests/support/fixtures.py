"""One thread, fixed seeds, and the fixtures of all tests; a plugin that tests/conftest.py loads."""

import gc
import logging
import multiprocessing
import os
import random
import subprocess
from collections.abc import Iterator
from functools import cache

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

if os.environ.get("TORCHINDUCTOR_CACHE_DIR", default_cache_dir()) == default_cache_dir():
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = default_cache_dir() + "_leyden_tests"  # not that of the user's runs
torch.set_num_threads(1)
registry.entry_points = cache(registry.entry_points)  # every Trainer would search all packages for them
cloudpickle.register_pickle_by_value(tests)  # workers receive environments whole: by name, they would import torch


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
