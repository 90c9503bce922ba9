"""Signals heard, a tier for every test by its folder, and the fixtures, except where xdist hands out the tests."""

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as what a shell runs in the background and all its children do
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as under nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


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


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures, which import torch, but not in the process that only hands out tests to those of xdist."""
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        config.pluginmanager.import_plugin("tests.support.fixtures")


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
