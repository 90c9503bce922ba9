"""Shows what a model of dynamics has learned: its vector field, paths it predicts, and how it was explored."""

import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from PIL import Image

from callbacks.atomic import atomic_file
from callbacks.boards import boards, show
from callbacks.canvas import INK, PREDICTED, Canvas, animated, tiled
from callbacks.film import Film
from callbacks.views import View, views


class DynamicsFigures(Callback):
    """Draws what was learned at every so many evaluations, and a film of the exploration when the run ends.

    Systems of more than two dimensions are shown in the planes of their first axes (`callbacks.views`).
    `dynamics/field`: the true vector field, the learned one with the states visited so far as dots, and their
    difference at the same scale, a row for each plane; where no true field is known, the learned one at held-out
    states. `dynamics/paths`: held-out paths in black, and in blue what the model predicts from their first states
    alone. `dynamics/plan_ms`: milliseconds of one decision about all agents, measured apart. `exploration.gif`
    in the run folder, and its frames as `dynamics/exploration`: the states visited, the newest in blue, over the field
    as it was learned.

    Args:
        every: evaluations between two drawings; the last one is always drawn.
        paths: held-out paths to draw.   steps: of each.
    """

    def __init__(self, every: int = 20, paths: int = 8, steps: int = 40):
        self.every, self.paths, self.steps = every, paths, steps
        self.film = Film()

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Measure and draw, if it is time."""
        if trainer.state.fn != TrainerFn.FITTING or trainer.sanity_checking:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if self.film.due and trainer.is_global_zero and data.collector is not None:
            with torch.no_grad():
                self.film.take(pl_module, self.views(pl_module, data))
        due = self.film.evaluations % self.every == 0 or trainer.should_stop
        self.film.evaluations += 1
        if not due:
            return
        if data.collector is not None:
            pl_module.log_values({"dynamics/plan_ms": 1e3 * decision_seconds(pl_module, data.collector)})
        if writers := boards(trainer):
            show(writers, self.pictures(pl_module, data), pl_module.env_steps)

    @torch.no_grad()
    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Show the film."""
        folder = trainer.log_dir or trainer.default_root_dir  # asks all ranks
        if not self.film.shots or not trainer.is_global_zero:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        frames = self.film.frames(self.views(pl_module, data), pl_module.visited(), trainer.world_size)
        with atomic_file(Path(folder) / "exploration.gif") as file:
            file.write(animated(list(frames.values())))
        for env_steps, frame in frames.items():
            show(boards(trainer), {"dynamics/exploration": frame}, env_steps)

    def views(self, pl_module: Any, data: Any) -> list[View]:
        """The planes to look at."""
        return views(pl_module, data.held_out_sequences(), self.steps)

    @torch.no_grad()
    def pictures(self, pl_module: Any, data: Any) -> dict[str, Image.Image]:
        """The pictures by tag."""
        planes = self.views(pl_module, data)
        return {
            "dynamics/field": tiled([fields(pl_module, plane) for plane in planes]),
            "dynamics/paths": tiled([self.predictions(pl_module, data.held_out_sequences(), planes)]),
        }

    def predictions(self, pl_module: Any, held_out: Any, planes: list[View]) -> list[Canvas]:
        """Held-out paths as they were and as they were predicted, as far as no episode ended; a panel a plane."""
        predicted, lived = pl_module.predicted(held_out, self.paths, self.steps)
        lengths = held_out.sequences.joined[: len(lived) - 1].int().cumprod(0).sum(0) + 1
        canvases = []
        for plane in planes:
            canvas = plane.canvas()
            for number, length in enumerate(lengths[: lived.shape[1]].tolist()):
                canvas.line(plane.seen(lived[:length, number]), INK)
                canvas.line(plane.seen(predicted[:length, number]), PREDICTED)
            canvases.append(canvas)
        return canvases

    def state_dict(self) -> dict[str, Any]:
        """The film so far, which counts the evaluations."""
        return self.film.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.film.load_state_dict(state_dict)


def fields(pl_module: Any, plane: View) -> list[Canvas]:
    """A plane's panels: the true field, the learned one and their difference, or the learned one alone."""
    learned = pl_module.field(plane.states)
    shown = [learned] if plane.true is None else [plane.true, learned, learned - plane.true]
    canvases = [plane.canvas() for _ in shown]
    speed = canvases[0].speed(plane.seen(shown[0]))
    for canvas, field in zip(canvases, shown, strict=True):
        canvas.arrows(plane.seen(plane.states), plane.seen(field), speed)
    canvases[0 if plane.true is None else 1].dots(plane.seen(pl_module.visited()))
    return canvases


@torch.no_grad()
def decision_seconds(pl_module: Any, collector: Any) -> float:
    """Wall-clock time of one decision about what the collector sees; nothing goes on from it."""
    live = collector.live
    noise = torch.zeros_like(pl_module.noise((collector.rows,), torch.Generator(device=live.obs.device)))
    began = time.perf_counter()
    decision, _ = pl_module.act(live.obs, live.actor, live.reset, noise=noise)
    decision.action.flatten()[0].item()  # waits for the device
    return time.perf_counter() - began
