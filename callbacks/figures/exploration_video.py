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

OLD_COLOUR, NEW_COLOUR = "#a3abb5", COLOURS[4]


class FieldSnapshot(NamedTuple):
    """Learned field after `env_steps`: for each view start points and displacements of the arrows, `[M, 2]` each."""

    env_steps: int
    arrows: list[tuple[Tensor, Tensor]]


class ExplorationVideo:
    """Recorder of the learned field at evenly spaced evaluations of a run of any length, drawn at its end."""

    def __init__(self) -> None:
        self.snapshots: list[FieldSnapshot] = []
        self.interval, self.evaluations = 1, 0

    @property
    def due(self) -> bool:
        """Return whether the next evaluation is to be recorded."""
        return self.evaluations % self.interval == 0

    def record(self, pl_module: Any, views: list[View]) -> None:
        """Record the current field; if there are too many snapshots, drop every second one."""
        arrows = [(view.project(view.states).cpu(), view.project(pl_module.field(view.states)).cpu()) for view in views]
        self.snapshots.append(FieldSnapshot(pl_module.env_steps, arrows))
        if len(self.snapshots) == 2 * FRAMES:
            self.snapshots, self.interval = self.snapshots[::2], 2 * self.interval

    def frames(self, views: list[View], visited: Tensor, share: int) -> dict[int, np.ndarray]:
        """Draw frames `[H, W, 3]` by environment steps; all arrows use the scale of the last frame.

        Args:
            views: current views.   visited: states `[M, D]`, the oldest first.
            share: environment steps per state, summed over ranks.
        """
        last = self.snapshots[-1]
        scales = [view.scale(field) for view, (_, field) in zip(views, last.arrows, strict=True)]

        def draw(snapshot: FieldSnapshot) -> list[Any]:
            count = max(0, len(visited) - (last.env_steps - snapshot.env_steps) // share)
            title = f"Exploration and learned field at {snapshot.env_steps:,} env steps"
            artists = [figure.text(0.5, 0.985, title, size="large", ha="center", va="top")]
            for view, axes, arrows, scale in zip(views, panels[0], snapshot.arrows, scales, strict=True):
                states = view.project(visited[:count])
                artists += [
                    draw_states(axes, states, "states visited so far"),
                    draw_states(axes, states[-NEWEST:], f"the newest {NEWEST}", NEW_COLOUR, size=5),
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
            for snapshot in self.snapshots:
                figure.canvas.restore_region(background)
                for artist in draw(snapshot):
                    figure.draw_artist(artist)
                    artist.remove()
                pictures[snapshot.env_steps] = canvas_pixels(figure)
        return pictures

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain types."""
        snapshots = [(snapshot.env_steps, snapshot.arrows) for snapshot in self.snapshots]
        return {"shots": snapshots, "gap": self.interval, "evaluations": self.evaluations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from `state_dict`."""
        self.snapshots = [FieldSnapshot(env_steps, arrows) for env_steps, arrows in state["shots"]]
        self.interval, self.evaluations = state["gap"], state["evaluations"]


def blank(figure: Any, artists: list[Any]) -> Any:
    """Remove artists from a figure and return the rest as the background of every frame."""
    for artist in artists:
        artist.remove()
    figure.canvas.draw()
    return figure.canvas.copy_from_bbox(figure.bbox)


def draw_states(axes: Any, states: Tensor, label: str, colour: str = OLD_COLOUR, size: float = 3) -> Any:
    """Draw states `[M, 2]` as dots under the arrows; return the artist."""
    x, y = states.cpu().T.numpy()
    (dots,) = axes.plot(x, y, ".", color=colour, markersize=size, label=label, zorder=2)
    return dots
