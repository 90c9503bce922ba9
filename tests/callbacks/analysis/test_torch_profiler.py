"""Traces: by the interval, in the run folder, readable, and none is left open."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback
from torch.autograd import _profiler_enabled

from callbacks.analysis.torch_profiler import TorchProfiler
from datamodules.core.errors import ConfigurationError


def traces(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The events of every trace by the file's name."""
    found = {}
    for path in sorted((folder / "traces").glob("*")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            found[path.name] = json.load(file)["traceEvents"]
    return found


def test_a_trace_is_written_every_so_many_iterations(make_run: Any) -> None:
    run = make_run(TorchProfiler(every_n_iterations=2), iterations=6).fit()

    found = traces(run.folder)

    assert set(found) == {"iteration=3.pt.trace.json.gz", "iteration=5.pt.trace.json.gz"}
    assert all(any(event.get("name", "").startswith("aten::") for event in events) for events in found.values())


def test_settings_of_the_profiler_act(make_run: Any) -> None:
    def events(version: str, **settings: bool) -> list[dict[str, Any]]:
        return next(iter(traces(make_run(TorchProfiler(1, **settings), version=version).fit().folder).values()))

    def has(key: str, found: list[dict[str, Any]]) -> bool:
        return any(key in event.get("args", {}) for event in found)

    plain = events("plain")
    assert not has("Input Dims", plain) and has("Input Dims", events("shapes", record_shapes=True))
    memory = events("memory", profile_memory=True)
    assert any(each.get("name") == "[memory]" for each in memory) > any(
        each.get("name") == "[memory]" for each in plain
    )
    assert any(each.get("cat") == "python_function" for each in events("stack", with_stack=True))


class Fails(Callback):
    """Fails while the trace is open."""

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == 2:
            raise RuntimeError("in the middle")


def test_a_run_that_fails_leaves_no_trace_open(make_run: Any) -> None:
    run = make_run(TorchProfiler(every_n_iterations=2), Fails())

    with pytest.raises(RuntimeError, match="in the middle"):
        run.fit()

    assert not _profiler_enabled() and not traces(run.folder)


def test_an_interval_below_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="every_n_iterations is 0; it must be at least 1"):
        TorchProfiler(0)
