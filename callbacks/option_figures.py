"""Pictures of options in TensorBoard, drawn without a plotting library: one colour an option, in the same order."""

from typing import Any

import numpy as np
from lightning.pytorch import Callback, Trainer

from callbacks.boards import boards, show

COLOURS = np.array(
    [
        [0, 114, 178],
        [230, 159, 0],
        [0, 158, 115],
        [204, 121, 167],
        [213, 94, 0],
        [86, 180, 233],
        [240, 228, 66],
        [120, 120, 120],
    ],
    np.uint8,
)
"""Told apart by colour-blind eyes too (Okabe and Ito 2008)."""

HEIGHT = 160
BAND = 40


class OptionFigures(Callback):
    """Draws, at every evaluation while training, which option ran when and how much each is used.

    `option/timeline`: the latest steps of the first environment from left to right. Below, a band in the colours of the
    options, dark where one begins; above, a curve over the same steps; a white line where an episode begins.
    `option/usage`: one bar an option, options 0, 1, ... from left to right; the grey line is an even share.

    Args:
        curve: which entry of the flat observation to draw; null for the reward.
        running_sum: draw the sum of the curve since the episode began: log returns become a log price, rewards become
            the return.
    """

    def __init__(self, curve: int | None = None, running_sum: bool = True):
        self.curve, self.running_sum = curve, running_sum

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Draw, for every TensorBoard there is."""
        writers, recent = boards(trainer), getattr(getattr(pl_module, "statistics", None), "recent", {})
        if not (writers and recent):
            return
        steps = {name: column.cpu().numpy() for name, column in recent.items()}
        pictures = {"option/timeline": timeline(steps["option"], steps["begun"], steps["reset"], self._curve(steps))}
        latest = pl_module.latest
        shares = [value for tag, value in latest.items() if tag.removeprefix("option/usage_").isdigit()]
        pictures |= {"option/usage": bars(np.array(shares))} if shares else {}
        show(writers, pictures, pl_module.env_steps)

    def _curve(self, steps: dict[str, np.ndarray]) -> np.ndarray:
        """What to draw over the band, `[steps]`."""
        values = steps["reward"] if self.curve is None else steps["obs"][:, self.curve]
        return summed_since(values, steps["reset"]) if self.running_sum else values


def summed_since(values: np.ndarray, reset: np.ndarray) -> np.ndarray:
    """Running sum that begins anew where `reset` is True."""
    total = np.cumsum(values, dtype=np.float64)
    start = np.maximum.accumulate(np.where(reset, np.arange(len(values)), 0))
    return total - total[start] + values[start]


def timeline(option: np.ndarray, begun: np.ndarray, reset: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """Picture `[HEIGHT + BAND, 2 x steps, 3]` uint8 of one row's options under a curve over the same steps."""
    picture = np.full((HEIGHT + BAND, len(option), 3), 24, np.uint8)
    colour = COLOURS[option % len(COLOURS)]
    picture[HEIGHT:] = np.where(begun[:, None], colour // 2, colour)
    picture[:, reset] = 255
    low, span = curve.min(), max(float(np.ptp(curve)), 1e-12)
    height = np.rint((HEIGHT - 5) * (1 - (curve - low) / span)).astype(int)
    for column, (top, shade) in enumerate(zip(height, colour, strict=True)):
        picture[top : top + 4, column] = shade
    return picture.repeat(2, 1)


def bars(shares: np.ndarray) -> np.ndarray:
    """Picture `[HEIGHT, 40 x K, 3]` uint8 of shares in [0, 1]."""
    picture = np.full((HEIGHT, 40 * len(shares), 3), 24, np.uint8)
    for option, share in enumerate(shares):
        top = HEIGHT - int(np.rint(share * (HEIGHT - 1))) - 1
        picture[top:, 40 * option + 6 : 40 * option + 34] = COLOURS[option % len(COLOURS)]
    picture[HEIGHT - 1 - int(np.rint((HEIGHT - 1) / len(shares)))] = 160
    return picture
