"""Frames of an episode: the image of each state beside the decision taken in it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Array = np.ndarray[Any, Any]

HEIGHT, PANEL = 400, 240
"""Least height of a frame, and width of the panel beside the image, in pixels."""

MAX_HEIGHT = 640
LINE, MARGIN, FONT_SIZE = 19, 12, 14
MAX_BARS, MAX_NUMBERS = 10, 8
INK, GREY, PAPER, BAR, CHOSEN = (31, 35, 40), (110, 119, 129), (255, 255, 255), (190, 205, 220), (0, 114, 178)
OPTION_COLOURS = (
    (0, 114, 178), (230, 159, 0), (0, 158, 115), (204, 121, 167), (213, 94, 0), (86, 180, 233), (140, 109, 49),
)  # fmt: skip
"""Colours of options, in the order of their numbers, repeated."""


def draw_frame(step: Any, details: Mapping[str, Any]) -> Array:
    """Draw one frame of an episode, uint8 `[H, W, 3]` with even sides.

    Args:
        step: `datamodules.rendering.episode.RenderedStep`.
        details: what the algorithm says of its decision (`Algorithm.action_details`), one row.
    """
    picture = _picture(step)
    height = picture.height + picture.height % 2
    frame = Image.new("RGB", (picture.width + picture.width % 2 + PANEL, height), PAPER)
    frame.paste(picture, (0, 0))
    panel = Panel(frame, frame.width - PANEL)
    panel.text(f"step {step.step:,}")
    panel.text(f"reward {step.reward:+.4g}")
    panel.text(f"return {step.episode_return:.6g}")
    if step.output is None:
        panel.text("end of the episode", GREY)
        return np.asarray(frame)
    _decision(panel, step, details)
    return np.asarray(frame)


def _decision(panel: "Panel", step: Any, details: Mapping[str, Any]) -> None:
    """Write action, value, option, belief, and probabilities or action values."""
    panel.text(f"action {numbers(step.action)}", CHOSEN)
    if "value" in details:
        panel.text(f"value {float(details['value'][0]):.4g}")
    if "std" in details:
        panel.text(f"std {numbers(details['std'][0].tolist())}", GREY)
    if "option" in step.state:
        option, age = (int(step.state[name][0]) for name in ("option", "option_age"))
        panel.stripe(OPTION_COLOURS[option % len(OPTION_COLOURS)], f"option {option}, step {age}")
    if "latent" in details:
        panel.text("belief", GREY)
        pairs = zip(details["latent"][0].tolist(), details["latent_variance"][0].tolist(), strict=True)
        for index, (mean, variance) in enumerate([*pairs][:MAX_NUMBERS]):
            panel.text(f"  z{index} {mean:+.3f} ± {max(variance, 0.0) ** 0.5:.3f}")
    for name in ("probabilities", "q_values"):
        if name in details:
            panel.text(name.replace("_", " "), GREY)
            panel.bars(details[name][0].tolist(), step.action, from_zero=name == "probabilities")


class Panel:
    """Column of text and bars beside the image; what does not fit is left out.

    Args:
        frame: image that it is drawn on.   left: pixels from its left side.
    """

    def __init__(self, frame: Image.Image, left: int):
        self.draw, self.left, self.top, self.bottom = ImageDraw.Draw(frame), left + MARGIN, MARGIN, frame.height
        self.font = ImageFont.load_default(FONT_SIZE)
        self.width = PANEL - 2 * MARGIN

    def text(self, line: str, colour: tuple[int, int, int] = INK) -> None:
        """Write a line."""
        if self.top + LINE <= self.bottom:
            self.draw.text((self.left, self.top), line, fill=colour, font=self.font)
        self.top += LINE

    def stripe(self, colour: tuple[int, int, int], line: str) -> None:
        """Write a line on a coloured stripe."""
        self.draw.rectangle((self.left - 4, self.top, self.left + self.width, self.top + LINE - 2), fill=colour)
        self.text(line, PAPER)

    def bars(self, values: list[float], action: Any, from_zero: bool) -> None:
        """Draw a bar for each value, longer for larger ones; of many values the largest."""
        order = sorted(range(len(values)), key=lambda index: values[index], reverse=True)[:MAX_BARS]
        low, high = (0.0, 1.0) if from_zero else (min(values), max(values))
        chosen = int(np.reshape(action, ())) if np.size(action) == 1 and len(values) > 1 else -1
        room = self.width - 84
        for index in sorted(order):
            share = (values[index] - low) / max(high - low, 1e-9)
            if self.top + LINE <= self.bottom:
                place = (self.left + 24, self.top + 3, self.left + 24 + room * share, self.top + LINE - 3)
                self.draw.rectangle(place, fill=CHOSEN if index == chosen else BAR)
                self.draw.text((self.left + 30 + room, self.top), f"{values[index]:.3g}", fill=INK, font=self.font)
            self.text(str(index))


def numbers(value: Any) -> str:
    """Return a number or the first numbers of an array, short."""
    flat = np.asarray(value).ravel()
    shown = [f"{each:+.3f}" if flat.dtype.kind == "f" else str(each) for each in flat[:MAX_NUMBERS]]
    words = " ".join(shown)
    return words if flat.size <= MAX_NUMBERS else f"{words} ..."


def _picture(step: Any) -> Image.Image:
    """Return the image of the state, enlarged or reduced to a readable height; without one, its observation."""
    image = step.image if step.image is not None else _image_in(step.inputs.obs)
    if image is None:
        return _numbers_of(step.inputs.obs)
    picture = Image.fromarray(image)
    if picture.height < HEIGHT:
        factor = -(-HEIGHT // picture.height)
        return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
    if picture.height > MAX_HEIGHT:
        width = round(picture.width * MAX_HEIGHT / picture.height)
        return picture.resize((width, MAX_HEIGHT), Image.Resampling.LANCZOS)
    return picture


def _image_in(obs: Any) -> Array | None:
    """Return the observation as an image, if it is one of bytes with the channels first or last."""
    if isinstance(obs, dict) or str(obs.dtype) != "torch.uint8" or obs.dim() not in (3, 4):
        return None
    array: Array = obs[0].cpu().numpy()
    if array.ndim == 3 and array.shape[0] <= 4:
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] != 3:
        array = array[..., -1]
    return np.repeat(array[..., None], 3, -1) if array.ndim == 2 else array


def _numbers_of(obs: Any) -> Image.Image:
    """Return a picture of an observation's numbers."""
    picture = Image.new("RGB", (HEIGHT, HEIGHT), (246, 248, 250))
    panel = Panel(picture, 0)
    panel.text("observation", GREY)
    for name, part in obs.items() if isinstance(obs, dict) else [("", obs)]:
        for index, value in enumerate(part[0].flatten().tolist()[:40]):
            panel.text(f"{name} {index}: {value:.4g}" if name else f"{index}: {value:.4g}")
    return picture
