"""Shows what a model of dynamics has learned: its vector field, paths it predicts, and how it was explored."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from callbacks.figures.exploration_video import Film, draw_states
from callbacks.figures.plotting import COLOURS, INK, WIDE, gif, legend_below, new_figure, pixels, style
from callbacks.figures.projections import View, draw_speed_bar, panel_size, views
from callbacks.figures.tensorboard import boards, show
from callbacks.run_control.atomic_write import atomic_file

TRUE = {"color": INK, "label": "held out"}
PREDICTED = {"color": COLOURS[0], "linestyle": "--", "label": "predicted from the first state"}


class DynamicsFigures(Callback):
    """Draws what was learned at every so many evaluations, and a video of the exploration when the run ends.

    Systems of more than two dimensions are shown in the planes of their first axes (`callbacks.figures.projections`).
    `dynamics/field`: the true vector field, the learned one over the states visited so far, and their difference, side
    by side at one scale, a row for each plane; where no true field is known, the learned one at held-out states.
    `dynamics/paths`: held-out paths, and what the model predicts from their first states alone. `dynamics/plan_ms`:
    milliseconds of one decision about all agents, measured apart. `exploration.gif` in the run folder, and its frames
    as `dynamics/exploration`: the states visited, the newest in another colour, over the field as it was learned.

    Args:
        every: evaluations between two drawings; the last one is always drawn.
        paths: held-out paths to draw.
        steps: of each path.
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
            file.write(gif(list(frames.values())))
        for env_steps, frame in frames.items():
            show(boards(trainer), {"dynamics/exploration": frame}, env_steps)

    def views(self, pl_module: Any, data: Any) -> list[View]:
        """The planes to look at."""
        return views(pl_module, data.held_out_sequences(), self.steps)

    @torch.no_grad()
    def pictures(self, pl_module: Any, data: Any) -> dict[str, np.ndarray]:
        """Draw the figures, by tag."""
        planes = self.views(pl_module, data)
        with style():
            return {
                "dynamics/field": pixels(draw_fields(pl_module, planes)),
                "dynamics/paths": pixels(self.draw_paths(pl_module, data.held_out_sequences(), planes)),
            }

    def draw_paths(self, pl_module: Any, held_out: Any, planes: list[View]) -> Any:
        """Draw held-out paths as they were and as they were predicted, up to the end of an episode; axes a plane."""
        predicted, lived = pl_module.predicted(held_out, self.paths, self.steps)
        lengths = held_out.sequences.joined[: len(lived) - 1].int().cumprod(0).sum(0) + 1
        figure, panels = new_figure(columns=len(planes), size=panel_size(len(planes)), layout="compressed")
        lines: list[Any] = []
        for plane, axes in zip(planes, panels[0], strict=True):
            plane.draw_axes(axes)
            for number, length in enumerate(lengths[: lived.shape[1]].tolist()):
                for path, look in ((lived, TRUE), (predicted, PREDICTED)):
                    points = plane.seen(path[:length, number]).cpu().T.numpy()
                    lines += axes.plot(*points, markevery=[0], marker="o", markersize=4, **look)
        figure.suptitle(f"Held-out paths of {len(lived) - 1} steps at {pl_module.env_steps:,} env steps")
        legend_below(figure, lines[:2])
        return figure

    def state_dict(self) -> dict[str, Any]:
        """The film so far, which counts the evaluations."""
        return self.film.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.film.load_state_dict(state_dict)


def draw_fields(pl_module: Any, planes: list[View]) -> Any:
    """Draw a row for each plane: the true field, the learned one and their difference, or the learned one alone."""
    known = planes[0].true is not None
    titles = ["true field", "learned field", "learned - true, same scale"] if known else ["learned field"]
    size = (WIDE, 1.0 + 3.1 * len(planes)) if known else (5.6, 1.0 + 3.6 * len(planes))
    figure, panels = new_figure(len(planes), len(titles), size, "compressed", sharex="row", sharey="row")
    figure.suptitle(f"Vector field at {pl_module.env_steps:,} env steps")
    for plane, row in zip(planes, panels, strict=True):
        learned = pl_module.field(plane.states)
        shown = [learned] if plane.true is None else [plane.true, learned, learned - plane.true]
        scale = plane.scale(plane.seen(shown[0]))
        for axes, field, title in zip(row, shown, titles, strict=True):
            plane.draw_axes(axes)
            axes.set_title(title if plane is planes[0] else "")
            plane.draw_arrows(axes, plane.seen(plane.states), plane.seen(field), scale)
        for axes in row[1:]:
            axes.set_ylabel("")
        draw_speed_bar(figure, scale, row)
        dots = draw_states(row[int(known)], plane.seen(pl_module.visited()), "states visited so far")
    legend_below(figure, [dots], markerscale=2)
    return figure


@torch.no_grad()
def decision_seconds(pl_module: Any, collector: Any) -> float:
    """Wall-clock time of one decision about what the collector sees; nothing goes on from it."""
    live = collector.live
    noise = torch.zeros_like(pl_module.noise((collector.rows,), torch.Generator(device=live.obs.device)))
    began = time.perf_counter()
    decision, _ = pl_module.act(live.obs, live.actor, live.reset, noise=noise)
    decision.action.flatten()[0].item()  # waits for the device
    return time.perf_counter() - began
