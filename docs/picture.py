"""Draws the README's picture from a finished run: `python docs/picture.py runs/ppo_fast/version_0`.

Left, what the run logged while it learned Snake; right, a game of its best checkpoint as the environment renders it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image, ImageDraw, ImageFont
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from datamodules.device_env import DeviceEnv
from datamodules.envs.snake import Snake
from modules.ppo import PPO

PICTURE = Path(__file__).with_name("ppo_fast.png")
SIZE = (1660, 640)
FINE = 3  # drawn so many times larger, then reduced: smooth lines and letters
REFERENCES = {"greedy heuristic": 19.9, "random play": 0.15}
PAPER, INK, GREY, PALE = "#ffffff", "#1f2328", "#6e7781", "#d8dee4"
GREEN, MINT = "#2f7d43", "#a5d3ad"

Points = Sequence[tuple[float, float]]


class Panel(NamedTuple):
    """Where curves go: pixels of the frame, and the values at its right and upper edge; both axes begin at 0."""

    left: int
    top: int
    right: int
    bottom: int
    env_steps: float
    food: float

    def at(self, env_steps: float, food: float) -> tuple[float, float]:
        """The pixel of a point."""
        x = self.left + (self.right - self.left) * env_steps / self.env_steps
        return x, self.bottom - (self.bottom - self.top) * food / self.food


class Canvas:
    """A picture in its final pixels, kept `FINE` times larger."""

    def __init__(self) -> None:
        self.image = Image.new("RGB", (SIZE[0] * FINE, SIZE[1] * FINE), PAPER)
        self.draw = ImageDraw.Draw(self.image)

    def text(self, place: tuple[float, float], words: str, size: int, colour: str = INK, anchor: str = "ls") -> None:
        """Words at a place; the anchor is Pillow's, such as `ls` for left on the baseline."""
        font = ImageFont.load_default(size * FINE)
        self.draw.text((place[0] * FINE, place[1] * FINE), words, colour, font, anchor)

    def line(self, points: Points, width: float, colour: str, dash: int = 0) -> None:
        """A line through points; with a dash, horizontal, of dashes that long."""
        fine = [(x * FINE, y * FINE) for x, y in points]
        if not dash:
            self.draw.line(fine, colour, round(width * FINE), joint="curve")
            return
        (x, y), (end, _) = fine
        for start in range(round(x), round(end), 2 * dash * FINE):
            self.draw.line([(start, y), (start + dash * FINE, y)], colour, round(width * FINE))

    def dot(self, place: tuple[float, float], radius: float, colour: str) -> None:
        """A dot with a rim of paper."""
        for reach, fill in ((radius + 2, PAPER), (radius, colour)):
            self.draw.circle((place[0] * FINE, place[1] * FINE), reach * FINE, fill)

    def square(self, place: tuple[float, float], side: float, radius: float, colour: Sequence[int]) -> None:
        """A square with round corners."""
        corners = [value * FINE for value in (*place, place[0] + side, place[1] + side)]
        self.draw.rounded_rectangle(corners, radius * FINE, tuple(colour))

    def save(self, path: Path) -> None:
        """Reduce to the final size and write."""
        self.image.resize(SIZE, Image.Resampling.LANCZOS).quantize(128).save(path, optimize=True)


def draw_curves(canvas: Canvas, panel: Panel, greedy: Points, sampled: Points, pace: float) -> None:
    """Axes, references and the two curves; `pace` is seconds for each environment step."""
    for food in range(0, int(panel.food) + 1, 5):
        if all(abs(food - reference) > 0.5 for reference in REFERENCES.values()):
            canvas.line([panel.at(0, food), panel.at(panel.env_steps, food)], 1, PALE)
        canvas.text((panel.left - 14, panel.at(0, food)[1]), str(food), 20, GREY, "rm")
    for million in range(1, int(panel.env_steps / 1e6) + 1):
        x, y = panel.at(million * 1e6, 0)
        canvas.text((x, y + 32), f"{million} M", 20, GREY, "ms")
        canvas.text((x, y + 58), f"{million * 1e6 * pace:.0f} s", 20, GREY, "ms")
    canvas.text((panel.left, panel.bottom + 32), "env steps", 20, GREY)
    canvas.text((panel.left, panel.bottom + 58), "seconds", 20, GREY)
    for name, food in REFERENCES.items():
        canvas.line([panel.at(0, food), panel.at(panel.env_steps, food)], 2, GREY, dash=8)
        place = panel.at(panel.env_steps, food)
        canvas.text((place[0], place[1] - 12 if food < 1 else place[1] + 28), f"{name} {food:g}", 20, GREY, "rs")
    canvas.line([panel.at(*point) for point in sampled], 4, MINT)
    canvas.line([panel.at(*point) for point in greedy], 4, GREEN)
    for point in greedy:
        canvas.dot(panel.at(*point), 7, GREEN)


def draw_board(canvas: Canvas, board: torch.Tensor, left: int, top: int, side: int) -> None:
    """A rendered board, `[16 dim, 16 dim, 3]`, cell by cell."""
    cells = board[8::16, 8::16]
    pitch, ground = side / len(cells), board[0, 0].new_tensor([24, 26, 32])
    canvas.square((left - 10, top - 10), side + 20, 16, ground.tolist())
    for y, row in enumerate(cells.tolist()):
        for x, colour in enumerate(row):
            shown = [value + 10 for value in colour] if colour == ground.tolist() else colour
            canvas.square((left + x * pitch + 2, top + y * pitch + 2), pitch - 4, 7, shown)


@torch.no_grad()
def played(checkpoint: Path, food: int) -> torch.Tensor:
    """The first of 64 greedy games to eat that much food, at that moment, as the environment renders it."""
    agent = PPO.load_from_checkpoint(checkpoint, map_location="cpu", weights_only=True)
    envs = DeviceEnv(Snake(observation="features"), 64, device=torch.device("cpu"))
    obs, _ = envs.reset(seed=1)
    while True:
        decision, _ = agent.act(obs, {}, torch.zeros(64, dtype=torch.bool), greedy=True)
        obs = envs.step(decision.action).obs
        eaten = envs.env.info(envs.state)["food"]
        if (eaten == food).any():
            return envs.env.render(envs.state, int(eaten.argmax()), "rgb_array")


def main() -> None:
    """Draw the run whose folder is named on the command line."""
    run = Path(sys.argv[1])
    events = EventAccumulator(str(run)).Reload()
    logged = {tag: events.Scalars(f"{tag}/food_mean") for tag in ("eval", "rollout")}
    greedy, sampled = ([(point.step, point.value) for point in logged[tag]] for tag in ("eval", "rollout"))
    seconds = logged["eval"][-1].wall_time - events.FirstEventTimestamp()
    canvas, panel = Canvas(), Panel(84, 120, 1010, 540, greedy[-1][0], 25)
    canvas.text((84, 46), "Food eaten per game while PPO learns Snake", 30)
    canvas.dot((92, 80), 7, GREEN)
    canvas.text((108, 87), "greedy, mean of 128 games", 20, GREY)
    canvas.line([(392, 80), (424, 80)], 4, MINT)
    canvas.text((434, 87), "sampled, while training", 20, GREY)
    draw_curves(canvas, panel, greedy, sampled, seconds / greedy[-1][0])
    food = round(max(value for _, value in greedy))
    draw_board(canvas, played(next((run / "checkpoints").glob("best*.ckpt")), food), 1130, 76, 480)
    canvas.text((1120, 46), "The trained agent, mid-game", 30)
    canvas.text((1120, 598), f"{food} food eaten", 20, GREY)
    canvas.save(PICTURE)


if __name__ == "__main__":
    main()
