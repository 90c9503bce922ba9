"""EpisodeVideo: record evaluation episodes beside training, in a process of their own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities import rank_zero_warn
from PIL import Image
from tensorboard.compat.proto.summary_pb2 import Summary

from callbacks.figures.tensorboard import tensorboard_writers
from callbacks.run_control.atomic_write import save_tensors
from callbacks.run_control.checkpoint import keeps_checkpoints
from callbacks.run_control.graceful_stop import GracefulStop
from callbacks.video.encoding import require_mp4
from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import tree_map

HOME = Path(__file__).resolve().parents[2]
TAG = "eval/episode"
NICENESS = 10
"""Priority of the recording process: it gets the processor time that training leaves."""

LIBRARIES = {"callbacks", "datamodules", "gymnasium", "lightning", "modules", "numpy", "torch"}
"""Modules that a checkpoint may name anyway."""

WAIT_S = 120.0
"""Seconds that a run that ends by itself waits for its last recording."""


class MemoryCheckpointIO(TorchCheckpointIO):
    """Checkpoint IO that copies what it should save into memory, as `checkpoint`."""

    def __init__(self) -> None:
        self.checkpoint: dict[str, Any] = {}

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Copy the tensors to the CPU."""
        self.checkpoint = tree_map(lambda each: each.detach().to("cpu", copy=True), checkpoint)


class Recording(Thread):
    """Recording in progress: a thread that writes the weights, waits for the process that plays, and logs its GIF.

    Args:
        checkpoint: copy of the weights.   snapshot: file that they are written to.
        command, environ: of the process.
        gif: hidden file of its GIF.   keep_gif: give it a visible name.   log_gif: called with it.
    """

    def __init__(
        self,
        checkpoint: dict[str, Any],
        snapshot: Path,
        command: list[str],
        environ: dict[str, str],
        gif: Path,
        keep_gif: bool,
        log_gif: Callable[[Path], None],
    ):
        super().__init__(name="EpisodeVideo", daemon=True)
        self.checkpoint, self.snapshot, self.command, self.environ = checkpoint, snapshot, command, environ
        self.gif, self.keep_gif, self.log_gif = gif, keep_gif, log_gif
        self.log = gif.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None
        self.cancelled, self.failure = Event(), ""

    def run(self) -> None:
        """Record; what fails is the text of `failure`."""
        try:
            save_tensors(self.checkpoint, self.snapshot)
            if self.play() == 0:
                self.log_gif(self.gif)
                if self.keep_gif:
                    self.gif.replace(self.gif.with_name(self.gif.name.removeprefix(".")))
        except OSError as error:
            self.failure = str(error)
        finally:
            for path in (self.snapshot, self.log, self.gif):
                path.unlink(missing_ok=True)

    def play(self) -> int:
        """Play and encode the episode in another process; return its exit code."""
        with self.log.open("wb") as file:
            self.process = subprocess.Popen(
                self.command,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,  # a Ctrl-C is for the run, which ends the recording
            )
        if self.cancelled.is_set():
            self.process.kill()
        code = self.process.wait()
        if code != 0:
            lines = self.log.read_text(errors="replace").split("\n")
            self.failure = next((line for line in reversed(lines) if line.strip()), f"exit code {code}")
        return code

    def cancel(self) -> None:
        """End the process and the thread; temporary files are removed."""
        self.cancelled.set()
        if self.process is not None:
            self.process.kill()
        self.join()


class EpisodeVideo(Callback):
    """Record one evaluation episode every so often: an MP4 in the run folder, a GIF in TensorBoard (`eval/episode`).

    Training copies the weights and goes on. A thread writes them; `python -m app play` renders and encodes the episode
    in another process, on the CPU, with low priority and one thread. A recording that is due while another is in
    progress is skipped; one in progress when a signal stops the run is dropped. Frames show the environment and the
    decision: action, value, probabilities, reward, return, option and belief. Without imageio and imageio-ffmpeg
    (`pip install -e '.[video]'`) the run folder gets a GIF.

    Args:
        every_n_evaluations: evaluations between two recordings; the first evaluation is recorded.
        max_steps: maximum number of steps of a recorded episode.
        seed: seed of the recorded episodes.

    Raises: ConfigurationError for values below 1.
    """

    acts_per_iteration = False

    def __init__(self, every_n_evaluations: int = 10, max_steps: int = 1_000, seed: int = 1):
        for name, value in (("every_n_evaluations", every_n_evaluations), ("max_steps", max_steps)):
            if value < 1:
                raise ConfigurationError(f"EpisodeVideo has {name} {value}; it must be at least 1.")
        self.every_n_evaluations, self.max_steps, self.seed = every_n_evaluations, max_steps, seed
        self.evaluations, self.mp4, self.failed = 0, True, False
        self.recording: Recording | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Check once whether MP4 can be written."""
        try:
            require_mp4()
        except ConfigurationError as error:
            self.mp4 = False
            rank_zero_warn(f"EpisodeVideo writes GIFs only. {error}")

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Log a finished recording, and start the next one if it is due."""
        if not keeps_checkpoints(trainer):
            return
        self.finish(wait=0)
        due = self.evaluations % self.every_n_evaluations == 0
        self.evaluations += 1
        if due and trainer.strategy.broadcast(self.recording is None and not self.failed):
            self.start(trainer, pl_module.env_steps)

    def start(self, trainer: Trainer, env_steps: int) -> None:
        """Copy the weights, and start to record an episode of them; called on all ranks."""
        folder = Path(trainer.log_dir or trainer.default_root_dir) / "videos"
        snapshot, gif = folder / f".env_steps={env_steps}.ckpt", folder / f".env_steps={env_steps}.gif"
        usual, memory = trainer.strategy.checkpoint_io, MemoryCheckpointIO()
        trainer.strategy.checkpoint_io = memory
        try:
            trainer.save_checkpoint(snapshot, weights_only=True)
        finally:
            trainer.strategy.checkpoint_io = usual
        if not trainer.is_global_zero:
            return
        videos = [folder / f"env_steps={env_steps}.mp4"] if self.mp4 else []
        words = ["--ckpt_path", snapshot, "--video", *videos, gif, "--max_steps", self.max_steps, "--seed", self.seed]
        nice = ["nice", "-n", str(NICENESS)] if shutil.which("nice") else []
        command = [*nice, sys.executable, "-P", "-m", "app", "play", *map(str, words)]
        log_gif = partial(add_gif, tensorboard_writers(trainer), env_steps=env_steps)
        self.recording = Recording(memory.checkpoint, snapshot, command, environ(trainer), gif, not videos, log_gif)
        self.recording.start()

    def finish(self, wait: float) -> None:
        """Forget the recording in progress if it ends within `wait` seconds; warn of its failure once."""
        if self.recording is None:
            return
        self.recording.join(wait)
        if self.recording.is_alive():
            return
        if self.recording.failure:
            self.failed = True
            rank_zero_warn(f"EpisodeVideo cannot record this run, and stops trying: {self.recording.failure}")
        self.recording = None

    def clear(self) -> None:
        """End the recording in progress, and remove its temporary files."""
        if self.recording is not None:
            self.recording.cancel()
            self.recording = None

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Wait for the last recording, or end it if a signal stopped the run."""
        if any(isinstance(each, GracefulStop) and each.stopped_by is not None for each in trainer.callbacks):
            self.clear()
        else:
            self.finish(WAIT_S)

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """End a recording that is still in progress."""
        self.clear()

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """End a recording that is still in progress."""
        self.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the number of evaluations, so that a resumed run records at the same ones."""
        return {"evaluations": self.evaluations}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore from `state_dict`."""
        self.evaluations = state_dict["evaluations"]


def environ(trainer: Any) -> dict[str, str]:
    """Return the environment of the recording process: one thread, no GPU, no screen, the modules of this run."""
    trusted = {*os.environ.get("LEYDEN_TRUST", "").split(",")} | {*own_modules(trainer.lightning_module.hparams)}
    trusted |= {*own_modules(trainer.datamodule.hparams)}
    paths = [str(HOME), *(path or str(Path.cwd()) for path in sys.path)]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "LEYDEN_TRUST": ",".join(sorted(trusted - {""})),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "SDL_VIDEODRIVER": "dummy",
        "SDL_AUDIODRIVER": "dummy",
    }


def own_modules(value: Any) -> Iterator[str]:
    """Yield the top-level modules, imported in this process, of the classes and environments that settings name."""
    if isinstance(value, partial):
        yield from own_modules([value.func, value.keywords])
    elif isinstance(value, Mapping):
        yield from own_modules(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from own_modules(each)
    elif isinstance(value, str) and ("." in value or ":" in value):
        top = value.partition(":")[0].partition(".")[0]
        if top in sys.modules and top not in LIBRARIES and top not in sys.stdlib_module_names:
            yield top
    elif isinstance(value, type):
        yield from own_modules(f"{value.__module__}.{value.__name__}")


def add_gif(writers: list[Any], path: Path, env_steps: int) -> None:
    """Log a GIF as an image, which TensorBoard plays."""
    with Image.open(path) as picture:
        width, height = picture.size
    image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=path.read_bytes())
    for writer in writers:
        writer.file_writer.add_summary(Summary(value=[Summary.Value(tag=TAG, image=image)]), env_steps)
