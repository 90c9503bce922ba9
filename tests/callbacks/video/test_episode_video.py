"""EpisodeVideo records beside training, and training does not wait for it."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from callbacks.run_control.graceful_stop import GracefulStop
from callbacks.video import episode_video
from callbacks.video.episode_video import TAG, EpisodeVideo, own_modules
from datamodules.core.errors import ConfigurationError


def test_episodes_are_recorded_into_the_run_folder_and_tensorboard(
    make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = EpisodeVideo(every_n_evaluations=2, max_steps=20)
    started = []
    start = recorder.start
    monkeypatch.setattr(recorder, "start", lambda *args: (started.append(time.monotonic()), start(*args)))

    run = make_run(recorder, iterations=2).fit()

    folder = Path(run.trainer.log_dir)
    videos = [path.name for path in (folder / "videos").iterdir()]
    events = EventAccumulator(str(folder), {"images": 0}).Reload()
    assert len(started) == 1 and not recorder.failed
    assert videos in (["env_steps=64.mp4"], ["env_steps=64.gif"]), "no temporary file is left"
    (image,) = events.Images(TAG)
    assert image.step == 64 and image.encoded_image_string.startswith(b"GIF89a")


def test_the_seed_and_the_steps_reach_the_recording(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    popen = episode_video.subprocess.Popen
    monkeypatch.setattr(
        episode_video.subprocess,
        "Popen",
        lambda command, **options: (commands.append(command), popen(["true"], **options))[1],
    )
    monkeypatch.setattr(EpisodeVideo, "finish", lambda self, wait: self.clear())

    make_run(EpisodeVideo(every_n_evaluations=2, max_steps=7, seed=5), iterations=8).fit()

    assert len(commands) == 2, "evaluations 1 and 3 of 4"
    assert all(" ".join(command).endswith("--max_steps 7 --seed 5") for command in commands)


def test_a_failure_is_said_once_and_stops_nothing(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    popen = episode_video.subprocess.Popen
    broken = ["sh", "-c", "echo the screen is gone >&2; exit 3"]
    monkeypatch.setattr(episode_video.subprocess, "Popen", lambda command, **options: popen(broken, **options))
    recorder = EpisodeVideo(every_n_evaluations=1)

    with pytest.warns(UserWarning, match="cannot record this run, and stops trying: the screen is gone"):
        run = make_run(recorder, iterations=2).fit()

    assert recorder.failed and run.trainer.global_step == 2
    assert [*(Path(run.trainer.log_dir) / "videos").iterdir()] == []


class SignalInIteration(Callback):
    """Sends SIGTERM to this process in an iteration."""

    def __init__(self, iteration: int):
        self.iteration = iteration

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step + 1 == self.iteration:
            signal.raise_signal(signal.SIGTERM)


def record_with(monkeypatch: pytest.MonkeyPatch, *command: str) -> list[Any]:
    """Replace the processes that record by a command; return the list to which they are added."""
    processes: list[Any] = []
    popen = episode_video.subprocess.Popen
    monkeypatch.setattr(
        episode_video.subprocess,
        "Popen",
        lambda _, **options: (processes.append(popen([*command], **options)), processes[-1])[1],
    )
    return processes


def test_a_run_that_a_signal_stopped_drops_its_recording(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_video, "WAIT_S", 20.0)
    processes = record_with(monkeypatch, "sleep", "60")
    began = time.monotonic()

    run = make_run(EpisodeVideo(), GracefulStop(), SignalInIteration(3), iterations=8).fit()

    assert run.trainer.global_step == 3 and time.monotonic() - began < 20
    assert [process.returncode for process in processes] == [-signal.SIGKILL]
    assert [*(Path(run.trainer.log_dir) / "videos").iterdir()] == []


def test_a_recording_that_is_due_during_another_is_skipped(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_video, "WAIT_S", 0.1)
    processes = record_with(monkeypatch, "sleep", "60")

    make_run(EpisodeVideo(every_n_evaluations=1), iterations=8).fit()

    assert len(processes) == 1, "that of evaluation 1 of 4"


def test_a_resumed_run_counts_its_evaluations() -> None:
    recorder = EpisodeVideo()
    recorder.load_state_dict({"evaluations": 7})

    assert recorder.state_dict() == {"evaluations": 7}


def test_values_below_one_are_refused() -> None:
    for settings in ({"every_n_evaluations": 0}, {"max_steps": 0}):
        with pytest.raises(ConfigurationError, match="it must be at least 1"):
            EpisodeVideo(**settings)


def test_only_modules_of_the_run_are_passed_on() -> None:
    hparams = {
        "env": "tests.support.counting_env.Counting",
        "file": "data/x.csv",
        "network": {"class_path": "torch.nn.X"},
    }

    assert {*own_modules(hparams)} == {"tests"}
    assert {*own_modules([EpisodeVideo, "os.path", "not_imported.X", 3])} == set()
