"""The heartbeat says when the last iteration ended, and is not written more often than asked."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from callbacks.performance.heartbeat import FILE, Heartbeat
from datamodules.core.errors import ConfigurationError


def beat(folder: Path) -> dict[str, Any]:
    """What the file holds."""
    return json.loads((folder / FILE).read_text())


def test_it_holds_the_time_and_the_counters_of_the_last_iteration(make_run: Any) -> None:
    before = time.time()

    run = make_run(Heartbeat(interval_s=0)).fit()

    found = beat(run.folder)
    assert before <= found["time"] <= time.time()
    assert (found["iteration"], found["env_steps"]) == (4, run.module.env_steps)
    assert not [*run.folder.glob(".*unfinished")]


def test_the_interval_acts(make_run: Any) -> None:
    assert beat(make_run(Heartbeat(interval_s=3600)).fit().folder)["iteration"] == 1


def test_a_file_that_cannot_be_written_does_not_end_the_run(make_run: Any) -> None:
    run = make_run(Heartbeat(interval_s=0))
    (run.folder / FILE).mkdir(parents=True)

    assert run.fit().module.env_steps > 0


def test_a_negative_interval_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="interval_s is -1"):
        Heartbeat(interval_s=-1)
