import logging
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from lightning.pytorch import Callback
from lightning.pytorch.cli import LightningArgumentParser

from callbacks.performance.gpu_monitor import GPUMonitor, SamplerThread, gpu_metrics
from callbacks.performance.nvml import GpuReading
from datamodules.core.errors import ConfigurationError

BUSY = GpuReading(96.0, 1000.0, 80_000.0, 60.0, 400.0, 1980.0)
IDLE = BUSY._replace(utilisation=10.0)


class Steady:
    """A sampler of one device that always shows the same."""

    def __init__(self, reading: GpuReading):
        self.reading = reading

    def sample(self) -> dict[int, GpuReading]:
        return {0: self.reading}


class SlowIterations(Callback):
    """Gives the thread time for a few samples an iteration."""

    def on_train_batch_start(self, *_: Any) -> None:
        time.sleep(0.03)


class Failing(Callback):
    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == 2:
            raise RuntimeError("on purpose")


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What was said about GPUs, in order."""
    words: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: words.append(record.getMessage())  # type: ignore[method-assign]
    listener.addFilter(lambda record: record.getMessage().startswith(("GPU 0", "No GPU")))
    logging.getLogger("lightning.pytorch").addHandler(listener)
    yield words
    logging.getLogger("lightning.pytorch").removeHandler(listener)


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, SamplerThread)]


def test_means_and_peaks_of_a_window_are_measured_and_the_unknown_is_left_out() -> None:
    first = BUSY._replace(power_w=math.nan)
    second = first._replace(utilisation=50.0, memory_mib=3000.0, temperature_c=70.0, clock_mhz=1000.0)

    values = gpu_metrics([(0.0, {1: first}), (1.0, {1: second})])

    assert values == {
        "gpu/1/utilisation": 73.0,
        "gpu/1/memory_mib": 2000.0,
        "gpu/1/memory_peak_mib": 3000.0,
        "gpu/1/temperature_c": 70.0,
        "gpu/1/clock_mhz": 1490.0,
    }


def test_a_run_logs_its_devices_and_its_thread_ends_with_it(make_run: Any, told: list[str]) -> None:
    run = make_run(GPUMonitor(interval_s=0.005, sampler=Steady(BUSY)), SlowIterations())

    run.fit()

    assert run.module.last_logged["gpu/0/utilisation"] == 96 and run.module.last_logged["gpu/0/power_w"] == 400
    assert told == [] and watchers() == []


def test_the_thread_ends_with_an_exception(make_run: Any) -> None:
    run = make_run(GPUMonitor(interval_s=0.005, sampler=Steady(BUSY)), Failing())

    with pytest.raises(RuntimeError, match="on purpose"):
        run.fit()

    assert watchers() == []


def test_nothing_is_logged_where_nothing_was_sampled(make_run: Any) -> None:
    logged: list[str] = []
    run = make_run(GPUMonitor(interval_s=60.0, sampler=Steady(BUSY)), SlowIterations(), iterations=6)
    log = run.module.log_values
    run.module.log_values = lambda values, *steps: (logged.extend(values), log(values, *steps))

    run.fit()

    assert logged.count("gpu/0/utilisation") == 1


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        (IDLE, ("under 50 % busy", "--data.num_envs")),
        (
            BUSY._replace(memory_mib=78_000.0),
            ("78,000 of its 80,000 MiB", "--data.num_envs or the size of the network"),
        ),
        (BUSY._replace(temperature_c=91.0), ("91 C, over 85 C", "cooling")),
    ],
)
def test_each_kind_of_bad_use_is_said_once_with_its_remedy(
    make_run: Any, told: list[str], reading: GpuReading, words: tuple[str, ...]
) -> None:
    make_run(GPUMonitor(0.005, warn_after_s=0.02, sampler=Steady(reading)), SlowIterations()).fit()

    (sentence,) = told
    assert all(word in sentence for word in words)


def test_a_moment_of_work_ends_the_wait_that_is_warned_of(told: list[str]) -> None:
    monitor = GPUMonitor(warn_after_s=30.0)

    monitor.warn([(at, {0: BUSY if at == 29.0 else IDLE}) for at in (0.0, 10.0, 29.0, 40.0, 58.0)])
    before = [*told]
    monitor.warn([(60.0, {0: IDLE})])

    assert before == []
    assert "has been under 50 % busy for 31 s (10 % now)" in told[0]


def test_the_limit_of_the_temperature_is_a_setting(told: list[str]) -> None:
    GPUMonitor(max_temperature=50.0).warn([(0.0, {0: BUSY})])

    assert "60 C, over 50 C" in told[0]


def test_without_a_gpu_it_says_so_once_and_stays_silent(make_run: Any, told: list[str]) -> None:
    monitor = GPUMonitor()

    runs = [make_run(monitor, version="first").fit()]
    assert len(told) == 1
    runs.append(make_run(monitor, version="second").fit())

    assert told == ["No GPU is monitored: this run is on cpu."]
    assert not any(tag.startswith("gpu/") for run in runs for tag in run.module.last_logged)


@pytest.mark.parametrize("interval_s", [0.0, -1.0, math.nan])
def test_an_interval_that_is_none_is_refused(interval_s: float) -> None:
    with pytest.raises(ConfigurationError, match="interval_s is"):
        GPUMonitor(interval_s=interval_s)


def test_a_config_names_it() -> None:
    parser = LightningArgumentParser()
    parser.add_subclass_arguments(GPUMonitor, "watch")

    parsed = parser.parse_args(["--watch=callbacks.GPUMonitor", "--watch.interval_s=2"])

    assert parser.instantiate(parsed).watch.interval_s == 2.0


@pytest.mark.gpu
def test_a_run_on_a_gpu_logs_what_nvml_tells(make_run: Any) -> None:
    pytest.importorskip("pynvml")
    run = make_run(GPUMonitor(interval_s=0.01), SlowIterations(), accelerator="cuda", devices=1)

    latest = run.fit().module.last_logged

    assert 0 <= latest["gpu/0/utilisation"] <= 100 and latest["gpu/0/clock_mhz"] > 0
    assert 0 < latest["gpu/0/memory_mib"] <= latest["gpu/0/memory_peak_mib"]
