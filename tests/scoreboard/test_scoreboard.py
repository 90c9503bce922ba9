"""The scoreboard's page is what its records say, and its tasks name shipped configs."""

import platform
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from app.cli.config_files import shipped_configs
from tests.scoreboard import __main__ as scoreboard
from tests.scoreboard.records import (
    PAGE,
    Record,
    line,
    mean_and_interval,
    missing_seeds,
    outcome,
    page,
    read_records,
    read_tasks,
    records_of,
    write_records,
)

TASK = read_tasks()[0]


def made(values: list[float]) -> list[Record]:
    """Records of the first task, by seed."""
    return [
        Record(TASK.config, TASK.env, seed, TASK.version, TASK.metric, value, 1.0, "a machine")
        for seed, value in enumerate(values, 1)
    ]


def test_the_page_is_what_the_command_writes() -> None:
    assert page(read_tasks(), read_records()) == PAGE.read_text(encoding="utf-8")


def test_tasks_name_shipped_configs_and_differ() -> None:
    tasks = read_tasks()

    assert {task.config for task in tasks} <= set(shipped_configs())
    assert len({(task.config, task.env) for task in tasks}) == len(tasks)


def test_a_task_passes_if_the_mean_of_all_seeds_reaches_the_bar() -> None:
    assert outcome(TASK, made([500, 500])) == "2 of 3 runs made"
    assert outcome(TASK, made([500, 500, 425])) == "passes"
    assert outcome(TASK, made([500, 500, 424])) == "**fails**"


def test_the_bar_is_the_reference_less_its_deviation_unless_named() -> None:
    task = replace(TASK, reference=10.0, deviation=2.0, bar=None)

    assert task.least == 8.0 and replace(task, bar=9.0).least == 9.0


def test_records_of_an_older_version_of_the_config_do_not_count() -> None:
    old = [replace(record, version="older") for record in made([500, 500, 500])]

    assert not records_of(TASK, old)
    assert "0 of 3 runs made" in line(TASK, old)


def test_records_of_another_metric_do_not_count() -> None:
    records = made([500, 500, 500])
    records[1] = replace(records[1], metric="length_mean")

    assert missing_seeds(TASK, records) == [2]


def test_the_version_of_a_task_is_that_of_its_settings() -> None:
    assert replace(TASK, settings=("--data.num_envs", "7")).version != TASK.version


def test_records_are_written_in_order_and_read_back(tmp_path: Path) -> None:
    records = made([3, 2, 1])
    write_records(reversed(records), tmp_path / "records.json")

    assert read_records(tmp_path / "records.json") == records


def test_the_interval_is_that_of_student() -> None:
    assert mean_and_interval([1.0]) == "1"
    assert mean_and_interval([1.0, 2.0, 3.0]) == "2 ± 2.48"


def test_records_of_several_processes_are_all_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "records.json"
    monkeypatch.setattr(scoreboard, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(scoreboard, "run", lambda task, seed, *_: replace(made([1.0])[0], seed=seed))
    monkeypatch.setattr(scoreboard, "read_records", partial(read_records, file))
    monkeypatch.setattr(scoreboard, "write_records", partial(write_records, path=file))
    with get_context("fork").Pool(4) as pool:
        pool.starmap(scoreboard.record, [(TASK, seed, tmp_path, ()) for seed in range(1, 21)], chunksize=1)

    assert [each.seed for each in read_records(file)] == [*range(1, 21)]


def start(monkeypatch: pytest.MonkeyPatch, folder: Path, run: Callable[..., Any], *words: str) -> None:
    """Start the command in a folder, with a function in place of training."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(scoreboard, "PAGE", folder / "page.md")
    monkeypatch.setattr(scoreboard, "read_records", list)
    monkeypatch.setattr(scoreboard, "run", run)
    monkeypatch.setattr(sys, "argv", ["scoreboard", *words])
    scoreboard.main()


def test_a_run_that_fails_is_reported_and_others_follow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seeds: list[int] = []

    def fail(task: Any, seed: int, *_: Any) -> None:
        seeds.append(seed)
        raise RuntimeError("fit failed")

    with pytest.raises(SystemExit, match="1"):
        start(monkeypatch, tmp_path, fail, TASK.config)

    assert seeds == [1, 2, 3]


def test_an_interruption_cancels_the_runs_that_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[int] = []

    def interrupt(task: Any, seed: int, *_: Any) -> None:
        started.append(seed)
        if len(started) == 1:
            raise KeyboardInterrupt
        time.sleep(0.3)
        raise RuntimeError("stopped")

    with pytest.raises(KeyboardInterrupt):
        start(monkeypatch, tmp_path, interrupt)

    assert len(started) <= 2 < sum(task.seeds for task in read_tasks())


@pytest.mark.parametrize("words", [["no.yaml"], ["--jobs", "0"]])
def test_bad_arguments_are_refused(words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        start(monkeypatch, tmp_path, lambda *_: None, *words)


def test_the_machine_of_a_run_on_the_cpu_is_named_by_its_cpu() -> None:
    assert scoreboard.machine("cpu").startswith(platform.machine())
