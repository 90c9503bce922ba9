"""Shows what a model of dynamics has learned: its vector field beside the true one, and paths it predicts."""

import time
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from PIL import Image, ImageDraw
from torch import Tensor

from callbacks.boards import boards, show

SIDE, FINE = 360, 2  # pixels of a panel; drawn so many times larger, then reduced: smooth lines
PAPER, INK, SEEN, PREDICTED = "#ffffff", "#1f2328", "#e69f00", "#0072b2"
ARROWS = 15
"""Arrows along each side of a panel."""


class DynamicsFigures(Callback):
    """Draws systems of two dimensions at every so many evaluations, and the time that one decision takes.

    `dynamics/field`: the true vector field, the learned one with the states visited so far as dots, and their
    difference at the same scale. `dynamics/paths`: held-out paths in black, and in blue what the model predicts from
    their first states alone. `dynamics/plan_ms`: milliseconds of one decision about all agents, measured apart.

    Args:
        every: evaluations between two drawings; the last one is always drawn.
        paths: held-out paths to draw.   steps: of each.
    """

    def __init__(self, every: int = 20, paths: int = 8, steps: int = 40):
        self.every, self.paths, self.steps = every, paths, steps
        self.evaluations = 0

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Measure and draw, if it is time."""
        if trainer.state.fn != TrainerFn.FITTING or trainer.sanity_checking:
            return
        due = self.evaluations % self.every == 0 or trainer.should_stop
        self.evaluations += 1
        if not due:
            return
        collector = trainer.datamodule.collector  # type: ignore[attr-defined]
        if collector is not None:
            pl_module.log_values({"dynamics/plan_ms": 1e3 * decision_seconds(pl_module, collector)})
        if writers := boards(trainer):
            show(writers, self.pictures(pl_module, trainer.datamodule), pl_module.env_steps)  # type: ignore[attr-defined]

    @torch.no_grad()
    def pictures(self, pl_module: Any, data: Any) -> dict[str, Image.Image]:
        """The pictures by tag; none where the true field is unknown or not in the plane."""
        held_out = data.held_out_sequences()
        if held_out.grid is None or held_out.grid.shape[1] != 2:
            return {}
        low, high = held_out.grid.amin(0).cpu().numpy(), held_out.grid.amax(0).cpu().numpy()
        points, true = sparse(held_out.grid, held_out.field)
        learned = pl_module.field(points)
        scale = float(true.norm(dim=1).quantile(0.9))
        canvases = [Canvas(low, high) for _ in range(3)]
        for canvas, field in zip(canvases, (true, learned, learned - true), strict=True):
            canvas.arrows(points, field, scale)
        canvases[1].dots(pl_module.visited())
        paths = Canvas(low, high)
        predicted, lived = pl_module.predicted(held_out, self.paths, self.steps)
        for number in range(lived.shape[1]):
            paths.line(lived[:, number], INK)
            paths.line(predicted[:, number], PREDICTED)
        return {"dynamics/field": side_by_side(canvases), "dynamics/paths": side_by_side([paths])}

    def state_dict(self) -> dict[str, Any]:
        """How many evaluations there were."""
        return {"evaluations": self.evaluations}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.evaluations = state_dict["evaluations"]


class Canvas:
    """A panel of the plane between two corners.

    Args:
        low, high: the corners.
    """

    def __init__(self, low: np.ndarray, high: np.ndarray):
        self.low, self.high = low, high
        self.image = Image.new("RGB", (SIDE * FINE, SIDE * FINE), PAPER)
        self.draw = ImageDraw.Draw(self.image)
        self.draw.rectangle([0, 0, SIDE * FINE - 1, SIDE * FINE - 1], outline=INK)

    def at(self, points: Tensor) -> list[tuple[float, float]]:
        """Pixels of points `[M, 2]`; the second dimension points up."""
        share = (points.cpu().numpy() - self.low) / (self.high - self.low)
        return [(SIDE * FINE * x, SIDE * FINE * (1 - y)) for x, y in np.clip(share, -9, 10).tolist()]

    def arrows(self, points: Tensor, field: Tensor, scale: float) -> None:
        """Arrows from points; one of length `scale` reaches the next point."""
        longest = torch.as_tensor((self.high - self.low) / ARROWS, dtype=field.dtype, device=field.device)
        length = field / scale
        length = length / length.norm(dim=1, keepdim=True).clamp(min=1)
        for start, end in zip(self.at(points), self.at(points + length * longest), strict=True):
            self.draw.line([start, end], INK, FINE)
            self.draw.ellipse([start[0] - FINE, start[1] - FINE, start[0] + FINE, start[1] + FINE], fill=INK)

    def dots(self, points: Tensor) -> None:
        """A small dot at every point."""
        for x, y in self.at(points):
            self.draw.ellipse([x - FINE, y - FINE, x + FINE, y + FINE], fill=SEEN)

    def line(self, points: Tensor, colour: str) -> None:
        """A path, with a dot where it begins."""
        pixels = self.at(points)
        self.draw.line(pixels, colour, 2 * FINE, joint="curve")
        x, y = pixels[0]
        self.draw.ellipse([x - 3 * FINE, y - 3 * FINE, x + 3 * FINE, y + 3 * FINE], fill=colour)


def side_by_side(canvases: list[Canvas]) -> Image.Image:
    """Panels in a row."""
    picture = Image.new("RGB", (SIDE * len(canvases), SIDE), PAPER)
    for number, canvas in enumerate(canvases):
        picture.paste(canvas.image.resize((SIDE, SIDE), Image.Resampling.LANCZOS), (SIDE * number, 0))
    return picture


def sparse(grid: Tensor, field: Tensor) -> tuple[Tensor, Tensor]:
    """Every so many points of a square grid, `ARROWS` along each side at most."""
    side = round(len(grid) ** 0.5)
    kept = torch.arange(0, side, -(-side // ARROWS), device=grid.device)
    index = (kept[:, None] * side + kept).flatten()
    return grid[index], field[index]


@torch.no_grad()
def decision_seconds(pl_module: Any, collector: Any) -> float:
    """Wall-clock time of one decision about what the collector sees; nothing goes on from it."""
    live = collector.live
    noise = torch.zeros_like(pl_module.noise((collector.rows,), torch.Generator(device=live.obs.device)))
    began = time.perf_counter()
    decision, _ = pl_module.act(live.obs, live.actor, live.reset, noise=noise)
    decision.action.flatten()[0].item()  # waits for the device
    return time.perf_counter() - began
