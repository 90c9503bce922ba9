"""DynamicsFigures: figures of a learned dynamics model: vector field, predicted paths, and exploration."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from callbacks.figures.exploration_video import ExplorationVideo, draw_states
from callbacks.figures.plotting import COLOURS, INK, WIDE, gif, legend_below, new_figure, pixels, style
from callbacks.figures.projections import View, draw_speed_bar, panel_size, views
from callbacks.figures.tensorboard import add_images, tensorboard_writers
from callbacks.run_control.atomic_write import atomic_write
from datamodules.core.files.printable import counted
from datamodules.core.types import PolicyInput

TRUE = {"color": INK, "label": "held out"}
PREDICTED = {"color": COLOURS[0], "linestyle": "--", "label": "predicted from the first state"}


class DynamicsFigures(Callback):
    """Draw the learned dynamics at every `every`-th evaluation, and a video of the exploration at the end of the run.

    Systems of more than two dimensions are drawn in the planes of their first axes (`callbacks.figures.projections`).
    `dynamics/field`: the true vector field, the learned one over the states visited so far, and their difference, side
    by side at one scale, one row per plane; if no true field is known, the learned one at held-out states.
    `dynamics/paths`: held-out paths, and the model's predictions from their first states alone. `dynamics/plan_ms`:
    milliseconds of one policy call for all agents, measured separately. `exploration.gif` in the run folder, and its
    frames as `dynamics/exploration`: the states visited, the newest in another colour, over the field learned so far.

    Args:
        every: evaluations between two drawings; the last one is always drawn.
        paths: number of held-out paths to draw.
        steps: length of each path in steps.
    """

    def __init__(self, every: int = 20, paths: int = 8, steps: int = 40):
        self.every, self.paths, self.steps = every, paths, steps
        self.video = ExplorationVideo()

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Measure and draw, if due."""
        if trainer.state.fn != TrainerFn.FITTING or trainer.sanity_checking:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if self.video.due and trainer.is_global_zero and data.collector is not None:
            with torch.no_grad():
                self.video.record(pl_module, self.views(pl_module, data))
        due = self.video.evaluations % self.every == 0 or trainer.should_stop
        self.video.evaluations += 1
        if not due:
            return
        if data.collector is not None:
            pl_module.log_values({"dynamics/plan_ms": 1e3 * decision_seconds(pl_module, data.collector)})
        if writers := tensorboard_writers(trainer):
            add_images(writers, self.pictures(pl_module, data), pl_module.env_steps)

    @torch.no_grad()
    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Draw the video."""
        folder = trainer.log_dir or trainer.default_root_dir  # a collective call of all ranks
        if not self.video.snapshots or not trainer.is_global_zero:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        frames = self.video.frames(self.views(pl_module, data), pl_module.visited_states(), trainer.world_size)
        with atomic_write(Path(folder) / "exploration.gif") as file:
            file.write(gif(list(frames.values())))
        for env_steps, frame in frames.items():
            add_images(tensorboard_writers(trainer), {"dynamics/exploration": frame}, env_steps)

    def views(self, pl_module: Any, data: Any) -> list[View]:
        """Return the planes to draw."""
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
        """Draw held-out and predicted paths, up to the end of an episode, with one column per plane."""
        predicted, actual = pl_module.predicted(held_out, self.paths, self.steps)
        lengths = held_out.sequences.contiguous[: len(actual) - 1].int().cumprod(0).sum(0) + 1
        figure, panels = new_figure(columns=len(planes), size=panel_size(len(planes)), layout="compressed")
        lines: list[Any] = []
        for plane, axes in zip(planes, panels[0], strict=True):
            plane.draw_axes(axes)
            for number, length in enumerate(lengths[: actual.shape[1]].tolist()):
                for path, line_style in ((actual, TRUE), (predicted, PREDICTED)):
                    points = plane.project(path[:length, number]).cpu().T.numpy()
                    lines += axes.plot(*points, markevery=[0], marker="o", markersize=4, **line_style)
        figure.suptitle(f"Held-out paths of {counted(len(actual) - 1, 'step')} at {pl_module.env_steps:,} env steps")
        legend_below(figure, lines[:2])
        return figure

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the video, which counts the evaluations."""
        return self.video.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore from `state_dict`."""
        self.video.load_state_dict(state_dict)


def draw_fields(pl_module: Any, planes: list[View]) -> Any:
    """Draw one row per plane: the true field, the learned one and their difference, or the learned one alone."""
    has_true_field = planes[0].true is not None
    titles = ["true field", "learned field", "learned - true, same scale"] if has_true_field else ["learned field"]
    size = (WIDE, 1.0 + 3.1 * len(planes)) if has_true_field else (5.6, 1.0 + 3.6 * len(planes))
    figure, panels = new_figure(len(planes), len(titles), size, "compressed", sharex="row", sharey="row")
    figure.suptitle(f"Vector field at {pl_module.env_steps:,} env steps")
    for plane, row in zip(planes, panels, strict=True):
        learned = pl_module.field(plane.states)
        shown = [learned] if plane.true is None else [plane.true, learned, learned - plane.true]
        scale = plane.scale(plane.project(shown[0]))
        for axes, field, title in zip(row, shown, titles, strict=True):
            plane.draw_axes(axes)
            axes.set_title(title if plane is planes[0] else "")
            plane.draw_arrows(axes, plane.project(plane.states), plane.project(field), scale)
        for axes in row[1:]:
            axes.set_ylabel("")
        draw_speed_bar(figure, scale, row)
        dots = draw_states(row[int(has_true_field)], plane.project(pl_module.visited_states()), "states visited so far")
    legend_below(figure, [dots], markerscale=2)
    return figure


@torch.no_grad()
def decision_seconds(pl_module: Any, collector: Any) -> float:
    """Measure the wall-clock time of one policy call on the collector's observations; the result is discarded."""
    state = collector.state
    noise = torch.zeros_like(pl_module.noise((collector.rows,), torch.Generator(device=state.obs.device)))
    start_time = time.perf_counter()
    decision, _ = pl_module.act(PolicyInput(state.obs, state.policy_state, state.episode_start), noise=noise)
    decision.action.flatten()[0].item()  # waits for the device
    return time.perf_counter() - start_time
