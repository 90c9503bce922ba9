"""OptionFigures: figures of the active options over time and of their usage, in TensorBoard."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from lightning.pytorch import Callback, Trainer

from callbacks.figures.plotting import COLOURS, GREY, INK, legend_below, new_figure, pixels, style
from callbacks.figures.tensorboard import add_images, tensorboard_writers


class OptionFigures(Callback):
    """Draw, at every evaluation during training, the active options over time and the usage of each.

    `option/timeline`: the latest steps of the first environment: a curve over a band in the colours of the options,
    with a white line at the start of an option and a dotted one at the start of an episode.
    `option/usage`: fraction of steps of each option; the dashed line is uniform usage.

    Args:
        curve: index in the flat observation of the curve; null for the reward.
        running_sum: draw the sum of the curve since the episode start: log returns become a log price, rewards become
            the return.
        curve_name: axis label of the curve, with its unit; null for a label derived from the two above.
    """

    def __init__(self, curve: int | None = None, running_sum: bool = True, curve_name: str | None = None):
        self.curve, self.running_sum = curve, running_sum
        quantity = "reward" if curve is None else f"obs[{curve}]"
        self.curve_name = curve_name or (f"{quantity}, summed over\nthe episode" if running_sum else quantity)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Draw the figures for every TensorBoard logger."""
        writers, recent = tensorboard_writers(trainer), getattr(getattr(pl_module, "statistics", None), "recent", {})
        if not (writers and recent):
            return
        steps = {name: column.cpu().numpy() for name, column in recent.items()}
        names = option_names(pl_module)
        shares = [value for tag, value in pl_module.last_logged.items() if tag.removeprefix("option/usage_").isdigit()]
        at = f"at {pl_module.env_steps:,} env steps"
        with style():
            figures = {"option/timeline": draw_timeline(steps, self._curve(steps), self.curve_name, names, at)}
            figures |= {"option/usage": draw_usage(shares, names, at)} if shares else {}
            add_images(writers, {tag: pixels(figure) for tag, figure in figures.items()}, pl_module.env_steps)

    def _curve(self, steps: dict[str, np.ndarray]) -> np.ndarray:
        """Return the curve over the band, `[steps]`."""
        values = steps["reward"] if self.curve is None else steps["obs"][:, self.curve]
        return sum_since_start(values, steps["episode_start"]) if self.running_sum else values


def sum_since_start(values: np.ndarray, episode_start: np.ndarray) -> np.ndarray:
    """Return the running sum, restarted where `episode_start` is True."""
    total = np.cumsum(values, dtype=np.float64)
    start = np.maximum.accumulate(np.where(episode_start, np.arange(len(values)), 0))
    return total - total[start] + values[start]


def option_names(pl_module: Any) -> list[str]:
    """Return number and, for scripted options, class of every option."""
    scripted = getattr(getattr(pl_module, "controller", None), "scripted_options", None)
    if scripted is None:
        return [f"option {option}" for option in range(pl_module.num_options)]
    return [f"{option} {type(policy).__name__}" for option, policy in enumerate(scripted.policies)]


def colour_of(option: int) -> str:
    """Return the colour of an option; colours repeat for many options."""
    return COLOURS[option % len(COLOURS)]


def draw_timeline(
    steps: dict[str, np.ndarray], curve: np.ndarray, curve_name: str, names: Sequence[str], at: str
) -> Any:
    """Draw one environment's options under a curve over the same steps.

    Args:
        steps: columns `option`, `started` and `episode_start`, `[steps]`.   curve: `[steps]`.
        at: when, for the title.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Patch

    option, time = steps["option"], np.arange(len(curve))
    colours = [colour_of(each) for each in option]
    figure, panels = new_figure(2, sharex=True, height_ratios=[5, 1])
    (upper,), (band,) = panels
    points = np.stack([time, curve], 1)
    pieces = np.stack([points[:-1], points[1:]], 1)
    within = ~steps["episode_start"][1:]
    pieces_colours = [colour for colour, inside in zip(colours[1:], within, strict=True) if inside]
    upper.add_collection(LineCollection(pieces[within], colors=pieces_colours, linewidths=1.8))
    upper.scatter(time, curve, s=3, c=colours, zorder=3)
    upper.set(ylabel=curve_name, xlim=(-0.5, len(curve) - 0.5), title=f"Options of the first environment {at}")
    band.bar(time, 1, width=1, color=colours)
    band.vlines(np.flatnonzero(steps["started"]) - 0.5, 0, 1, color="white", linewidth=0.8)
    band.set(ylim=(0, 1), yticks=[], xlabel="latest steps of this environment", ylabel="option")
    band.grid(False)
    for place in np.flatnonzero(steps["episode_start"]):
        upper.axvline(place - 0.5, color=GREY, linestyle=":", linewidth=1)
    handles: list[Any] = [Patch(color=colour_of(each), label=names[each]) for each in np.unique(option)]
    if steps["episode_start"].any():
        handles.append(upper.plot([], [], color=GREY, linestyle=":", linewidth=1, label="episode start")[0])
    legend_below(figure, handles)
    return figure


def draw_usage(shares: Sequence[float], names: Sequence[str], at: str) -> Any:
    """Draw a bar with its value for each fraction in [0, 1]."""
    figure, ((axes,),) = new_figure()
    bars = axes.bar(range(len(shares)), shares, width=0.7, color=[colour_of(each) for each in range(len(shares))])
    axes.bar_label(bars, [f"{share:.1%}" for share in shares], padding=3, fontsize=9, bbox={"color": "white", "pad": 1})
    uniform = axes.axhline(1 / len(shares), color=INK, linestyle="--", linewidth=1, zorder=1.5, label="uniform usage")
    crowded = len(shares) * max(map(len, names)) > 60
    axes.set_xticks(range(len(shares)), names, rotation=30 if crowded else 0, ha="right" if crowded else "center")
    axes.set(ylim=(0, 1.08), ylabel="share of steps", title=f"Usage of options {at}")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.grid(axis="x", visible=False)
    legend_below(figure, [uniform])
    return figure
