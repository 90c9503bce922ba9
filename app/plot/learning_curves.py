"""Draw learning curves: one panel per tag, one line per setting, the interval of its seeds as a band."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.plot.statistics import ConfidenceBand
from callbacks.figures.plotting import COLOURS, INK, SIZE, legend_below, new_figure

BESIDE = 0.02
"""Distance of two dots at one step, as a share of the axis."""

Panels = Mapping[str, Mapping[str, ConfidenceBand]]
"""Bands by setting, by tag."""


def draw_learning_curves(panels: Panels, references: Mapping[str, float], title: str | None = None) -> Any:
    """Draw the bands of every tag against environment steps, and a dashed line at each reference.

    A setting has one colour in all panels. A band of a single step is a dot with its interval; several of them are
    drawn beside one another, `BESIDE` of the axis apart, around their step.
    """
    settings = list(dict.fromkeys(name for bands in panels.values() for name in bands))
    figure, rows = new_figure(len(panels), size=(SIZE[0], 1.0 + 3.0 * len(panels) + 0.2 * (len(settings) // 3)))
    handles: dict[str, Any] = {}
    for (tag, bands), (axes,) in zip(panels.items(), rows, strict=True):
        end = max(band.steps[-1] for band in bands.values()) or 1
        dots = [name for name, band in bands.items() if len(band.steps) == 1]
        for name, band in bands.items():
            place = dots.index(name) - (len(dots) - 1) / 2 if name in dots else 0
            colour = COLOURS[settings.index(name) % len(COLOURS)]
            handles.setdefault(name, draw_band(axes, band, colour, name, place * BESIDE * end))
        for number, (name, value) in enumerate(references.items()):
            dashes = (0, (4 + 3 * number, 3))
            handles.setdefault(name, axes.axhline(value, color=INK, linewidth=1.2, linestyle=dashes, label=name))
        axes.set(ylabel=tag, xlim=(0, (1.02 + BESIDE * len(dots) / 2) * end))
        axes.set_ylim(*limits([*bands.values()], list(references.values())))
        label_steps(axes)
    axes.set_xlabel("environment steps")
    figure.suptitle(title or ", ".join(panels))
    seeds = any(estimate.low < estimate.high for bands in panels.values() for b in bands.values() for estimate in b[1])
    legend_below(figure, list(handles.values()), title="mean of the middle half of seeds, 95 % interval" * seeds)
    return figure


def draw_band(axes: Any, band: ConfidenceBand, colour: str, name: str, shift: float) -> Any:
    """Draw one setting, a single step shifted by `shift` steps; return the artist for the legend."""
    value, low, high = np.array(band.estimates).T
    if len(band.steps) == 1:
        reach = np.abs([value - low, high - value])
        return axes.errorbar([band.steps[0] + shift], value, reach, color=colour, marker="o", capsize=4, label=name)
    axes.fill_between(band.steps, low, high, color=colour, alpha=0.2, linewidth=0)
    (line,) = axes.plot(band.steps, value, color=colour, label=name)
    return line


def limits(bands: list[ConfidenceBand], references: list[float]) -> tuple[float, float]:
    """Return limits of the value axis: whole intervals of single steps, but of curves no few extreme values.

    Extreme values would flatten the curves. An interval of median width is inside the limits.
    """
    values = np.concatenate([np.array(band.estimates) for band in bands])
    low, high = np.quantile(values[:, 0], [0.03, 0.97])
    reach = max(high - low, np.median(values[:, 2] - values[:, 1])) or 1.0
    whole = [bound for band in bands if len(band.steps) == 1 for bound in band.estimates[0]]
    low = min(max(values[:, 1].min(), low - reach), *references, *whole, low)
    high = max(min(values[:, 2].max(), high + reach), *references, *whole, high)
    margin = 0.05 * (high - low) or 1.0
    return float(low - margin), float(high + margin)


def label_steps(axes: Any) -> None:
    """Format steps as 500, 20 k, 6 M."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
