"""A moving picture of an exploration: where the agents had been, over what they had learned by then."""

from typing import Any, NamedTuple

from PIL import Image
from torch import Tensor

from callbacks.canvas import PREDICTED, tiled
from callbacks.views import View

FRAMES = 40
"""A film has so many at least, if there were as many evaluations, and less than twice as many."""

NEWEST = 40
"""Newest states, shown in another colour."""


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

    def frames(self, views: list[View], visited: Tensor, share: int) -> dict[int, Image.Image]:
        """Pictures by environment steps; all arrows are on the last one's scale.

        Args:
            views: as they are now.   visited: states `[M, D]`, the oldest first.
            share: environment steps for each of them, all ranks together.
        """
        last = self.shots[-1]
        speeds = [view.canvas().speed(field) for view, (_, field) in zip(views, last.arrows, strict=True)]
        pictures = {}
        for shot in self.shots:
            count = max(0, len(visited) - (last.env_steps - shot.env_steps) // share)
            canvases = []
            for view, arrows, speed in zip(views, shot.arrows, speeds, strict=True):
                canvas, states = view.canvas(), view.seen(visited[:count])
                canvas.arrows(*arrows, speed)
                canvas.dots(states)
                canvas.dots(states[-NEWEST:], PREDICTED)
                canvas.title(f"{shot.env_steps:,} env steps")
                canvases.append(canvas)
            pictures[shot.env_steps] = tiled([canvases])
        return pictures

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain types."""
        shots = [(shot.env_steps, shot.arrows) for shot in self.shots]
        return {"shots": shots, "gap": self.gap, "evaluations": self.evaluations}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.shots = [Shot(env_steps, arrows) for env_steps, arrows in state["shots"]]
        self.gap, self.evaluations = state["gap"], state["evaluations"]
