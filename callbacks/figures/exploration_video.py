"""ExplorationVideo: video of the visited states over the vector field learned so far."""

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from callbacks.figures.plotting import COLOURS, canvas_pixels, legend_below, new_figure, style
from callbacks.figures.projections import View, draw_speed_bar, panel_size

FRAMES = 40
"""Minimum number of frames, if there were as many evaluations; the maximum is below twice as many."""

NEWEST = 40
"""Number of newest states, drawn larger and in another colour."""


SEEN, NEW = "#a3abb5", COLOURS[4]


class FieldSnapshot(NamedTuple):
    """Learned field after `env_steps`: for each view start points and displacements of the arrows, `[M, 2]` each."""

    env_steps: int
    arrows: list[tuple[Tensor, Tensor]]


class ExplorationVideo:
    """Recorder of the learned field at evenly spaced evaluations of a run of any length, drawn at its end."""

    def __init__(self) -> None:
        self.shots: list[FieldSnapshot] = []
        self.gap, self.evaluations = 1, 0

    @property
    def due(self) -> bool:
        """Return whether the next evaluation is to be recorded."""
        return self.evaluations % self.gap == 0

    def record(self, pl_module: Any, views: list[View]) -> None:
        """Record the current field; if there are too many snapshots, drop every second one."""
        arrows = [(view.project(view.states).cpu(), view.project(pl_module.field(view.states)).cpu()) for view in views]
        self.shots.append(FieldSnapshot(pl_module.env_steps, arrows))
        if len(self.shots) == 2 * FRAMES:
            self.shots, self.gap = self.shots[::2], 2 * self.gap

    def frames(self, views: list[View], visited: Tensor, share: int) -> dict[int, np.ndarray]:
        """Draw frames `[H, W, 3]` by environment steps; all arrows use the scale of the last frame.

        Args:
            views: current views.   visited: states `[M, D]`, the oldest first.
            share: environment steps per state, summed over ranks.
        """
        last = self.shots[-1]
        scales = [view.scale(field) for view, (_, field) in zip(views, last.arrows, strict=True)]

        def draw(shot: FieldSnapshot) -> list[Any]:
            count = max(0, len(visited) - (last.env_steps - shot.env_steps) // share)
            words = f"Exploration and learned field at {shot.env_steps:,} env steps"
            artists = [figure.text(0.5, 0.985, words, size="large", ha="center", va="top")]
            for view, axes, arrows, scale in zip(views, panels[0], shot.arrows, scales, strict=True):
                states = view.project(visited[:count])
                artists += [
                    draw_states(axes, states, "states visited so far"),
                    draw_states(axes, states[-NEWEST:], f"the newest {NEWEST}", NEW, size=5),
                    view.draw_arrows(axes, *arrows, scale),
                ]
            return artists

        pictures = {}
        with style():
            figure, panels = new_figure(columns=len(views), size=panel_size(len(views)), layout="compressed")
            for view, axes, scale in zip(views, panels[0], scales, strict=True):
                view.draw_axes(axes)
                draw_speed_bar(figure, scale, [axes])
            figure.suptitle(" ")  # room for the text of a frame
            drawn = draw(last)
            legend_below(figure, drawn[1:3], markerscale=2)
            figure.canvas.draw()
            figure.set_layout_engine("none")  # all frames have the layout of the last
            background = blank(figure, drawn)
            for shot in self.shots:
                figure.canvas.restore_region(background)
                for artist in draw(shot):
                    figure.draw_artist(artist)
                    artist.remove()
                pictures[shot.env_steps] = canvas_pixels(figure)
        return pictures

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain types."""
        shots = [(shot.env_steps, shot.arrows) for shot in self.shots]
        return {"shots": shots, "gap": self.gap, "evaluations": self.evaluations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from `state_dict`."""
        self.shots = [FieldSnapshot(env_steps, arrows) for env_steps, arrows in state["shots"]]
        self.gap, self.evaluations = state["gap"], state["evaluations"]


def blank(figure: Any, artists: list[Any]) -> Any:
    """Remove artists from a figure and return the rest as the background of every frame."""
    for artist in artists:
        artist.remove()
    figure.canvas.draw()
    return figure.canvas.copy_from_bbox(figure.bbox)


def draw_states(axes: Any, states: Tensor, label: str, colour: str = SEEN, size: float = 3) -> Any:
    """Draw states `[M, 2]` as dots under the arrows; return the artist."""
    x, y = states.cpu().T.numpy()
    (dots,) = axes.plot(x, y, ".", color=colour, markersize=size, label=label, zorder=2)
    return dots
