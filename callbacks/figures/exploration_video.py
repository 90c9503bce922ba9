"""A video of an exploration: where the agents had been, over what they had learned by then."""

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from callbacks.figures.plotting import COLOURS, canvas_pixels, legend_below, new_figure, style
from callbacks.figures.projections import View, draw_speed_bar, panel_size

FRAMES = 40
"""A film has so many at least, if there were as many evaluations, and less than twice as many."""

NEWEST = 40
"""Newest states, shown in another colour and larger."""


SEEN, NEW = "#a3abb5", COLOURS[4]


class Shot(NamedTuple):
    """What was learned after `env_steps`: for each view where arrows start, and where they go, `[M, 2]` each."""

    env_steps: int
    arrows: list[tuple[Tensor, Tensor]]


class Film:
    """Keeps what was learned at evenly spaced evaluations, of a run of any length, and draws it when the run ends."""

    def __init__(self) -> None:
        self.shots: list[Shot] = []
        self.gap, self.evaluations = 1, 0

    @property
    def due(self) -> bool:
        """Whether the next evaluation is one to be kept."""
        return self.evaluations % self.gap == 0

    def take(self, pl_module: Any, views: list[View]) -> None:
        """Keep what is known now; when there are too many shots, every second is forgotten."""
        arrows = [(view.seen(view.states).cpu(), view.seen(pl_module.field(view.states)).cpu()) for view in views]
        self.shots.append(Shot(pl_module.env_steps, arrows))
        if len(self.shots) == 2 * FRAMES:
            self.shots, self.gap = self.shots[::2], 2 * self.gap

    def frames(self, views: list[View], visited: Tensor, share: int) -> dict[int, np.ndarray]:
        """Draw frames `[H, W, 3]` by environment steps; all arrows are on the last one's scale.

        Args:
            views: as they are now.   visited: states `[M, D]`, the oldest first.
            share: environment steps for each of them, all ranks together.
        """
        last = self.shots[-1]
        scales = [view.scale(field) for view, (_, field) in zip(views, last.arrows, strict=True)]

        def draw(shot: Shot) -> list[Any]:
            count = max(0, len(visited) - (last.env_steps - shot.env_steps) // share)
            words = f"Exploration and learned field at {shot.env_steps:,} env steps"
            artists = [figure.text(0.5, 0.985, words, size="large", ha="center", va="top")]
            for view, axes, arrows, scale in zip(views, panels[0], shot.arrows, scales, strict=True):
                states = view.seen(visited[:count])
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
        """Tensors and plain types."""
        shots = [(shot.env_steps, shot.arrows) for shot in self.shots]
        return {"shots": shots, "gap": self.gap, "evaluations": self.evaluations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.shots = [Shot(env_steps, arrows) for env_steps, arrows in state["shots"]]
        self.gap, self.evaluations = state["gap"], state["evaluations"]


def blank(figure: Any, artists: list[Any]) -> Any:
    """Remove artists from a figure; what remains, as the background of every frame."""
    for artist in artists:
        artist.remove()
    figure.canvas.draw()
    return figure.canvas.copy_from_bbox(figure.bbox)


def draw_states(axes: Any, states: Tensor, label: str, colour: str = SEEN, size: float = 3) -> Any:
    """Draw states `[M, 2]` as dots under the arrows; return the artist."""
    x, y = states.cpu().T.numpy()
    (dots,) = axes.plot(x, y, ".", color=colour, markersize=size, label=label, zorder=2)
    return dots
