"""Statistics of a comparison of settings, each with several seeds, for one metric."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

RESAMPLES = 2_000
"""Bootstrap samples of the seeds; the interval's ends then vary by about a percent of its width."""

Mode = Literal["max", "min"]
Points = Sequence[tuple[int, float]]


class Estimate(NamedTuple):
    """Estimate and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


class Result(NamedTuple):
    """Result of one setting.

    curves: the metric's points of every seed.   crossings: environment steps to the threshold, infinite if it was never
    reached.   steps: their median.   final, mean: interquartile mean, and mean, of the finite last values.
    left_out: seeds whose last value is not finite.
    """

    name: str
    curves: Sequence[Points]
    crossings: list[float]
    steps: Estimate
    final: Estimate
    mean: Estimate
    left_out: int = 0


class ConfidenceBand(NamedTuple):
    """Curve of a setting over its seeds: the interquartile mean and its 95 % interval at every step."""

    steps: list[int]
    estimates: list[Estimate]


def summarize_setting(name: str, curves: Sequence[Points], threshold: float | None, mode: Mode) -> Result:
    """Return the result of a setting from its seeds' curves; without a threshold, no steps are counted."""
    crossings = [math.inf if threshold is None else steps_to_threshold(points, threshold, mode) for points in curves]
    last = [points[-1][1] for points in curves]
    finite = [value for value in last if math.isfinite(value)]
    final, mean = (
        bootstrap(finite, statistic) if finite else Estimate(math.nan, math.nan, math.nan)
        for statistic in (interquartile_mean, statistics.fmean)
    )
    steps = bootstrap(crossings, statistics.median)
    return Result(name, curves, crossings, steps, final, mean, len(last) - len(finite))


def steps_to_threshold(points: Points, threshold: float, mode: Mode) -> float:
    """Return the first step at which the metric reaches the threshold, infinite if it never does."""
    for step, value in points:
        if (value >= threshold) if mode == "max" else (value <= threshold):
            return step
    return math.inf


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean of the middle half: a quarter of the values, rounded down, is left out at either end.

    Source: Agarwal et al. 2021, arXiv:2108.13264, section 4.3.
    """
    cut = len(values) // 4
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def bootstrap(values: Sequence[float], statistic: Callable[[Sequence[float]], float]) -> Estimate:
    """Return a statistic of the seeds' values with its 95 % percentile bootstrap interval; deterministic.

    Source: Efron 1979; Agarwal et al. 2021, arXiv:2108.13264, section 4.1.
    """
    draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    resampled = sorted(statistic([values[index] for index in draw]) for draw in draws.tolist())
    cut = round(0.025 * RESAMPLES)
    return Estimate(statistic(values), resampled[cut], resampled[-cut - 1])


def paired_differences(first: Result, other: Result) -> tuple[Estimate, Estimate]:
    """Return the mean over seeds of `first` minus `other`: of the last values, and of the means of the curves.

    Runs of the same seed are paired. A curve's mean is that over the steps of both curves, from the later of their
    first steps on; a curve is constant between its points. Seeds with values that are not finite are left out.
    """
    pairs = list(zip(first.curves, other.curves, strict=True))
    last = [a[-1][1] - b[-1][1] for a, b in pairs]
    whole = [curve_mean(a, steps) - curve_mean(b, steps) for a, b in pairs for steps in [common_steps((a, b))]]
    last, whole = ([value for value in each if math.isfinite(value)] for each in (last, whole))
    nothing = Estimate(math.nan, math.nan, math.nan)
    found = [bootstrap(each, statistics.fmean) if each else nothing for each in (last, whole)]
    return found[0], found[1]


def paired_table(results: Sequence[Result], metric: str) -> str:
    """Format the differences of the first setting from each other, one row for each."""
    lines = []
    for result in results[1:]:
        last, whole = paired_differences(results[0], result)
        ends, means = (f"{each.value:+.4g} [{each.low:+.4g}, {each.high:+.4g}]" for each in (last, whole))
        lines.append(f"{results[0].name} minus {result.name}: final {ends}, mean of the curve {means}")
    return "\n".join([f"Difference in {metric}, runs of the same seed paired: mean [95 %]", *lines])


def confidence_band(curves: Sequence[Points], most: int = 100) -> ConfidenceBand:
    """Return the band of several seeds from the latest first step on, at `most` steps; constant between points.

    A single seed keeps all its steps.

    Non-finite values are left out, as are curves without finite values; without any curve there are no steps.
    """
    curves = [kept for points in curves if (kept := [point for point in points if math.isfinite(point[1])])]
    if not curves:
        return ConfidenceBand([], [])
    if len(curves) == 1:
        return ConfidenceBand(
            [step for step, _ in curves[0]], [Estimate(value, value, value) for _, value in curves[0]]
        )
    steps = common_steps(curves)
    steps = [steps[round(i * (len(steps) - 1) / (most - 1))] for i in range(most)] if len(steps) > most else steps
    columns = [value_at(points, steps) for points in curves]
    estimates = [bootstrap([column[i] for column in columns], interquartile_mean) for i in range(len(steps))]
    return ConfidenceBand(steps, estimates)


def common_steps(curves: Sequence[Points]) -> list[int]:
    """Return the steps of all points, from the latest first step of a curve on."""
    first = max(points[0][0] for points in curves)
    return sorted({step for points in curves for step, _ in points if step >= first})


def curve_mean(points: Points, steps: Sequence[int]) -> float:
    """Return the mean of a curve over steps."""
    return statistics.fmean(value_at(points, steps))


def value_at(points: Points, steps: Sequence[int]) -> list[float]:
    """Return the latest value at or before each step."""
    known = [step for step, _ in points]
    places = np.searchsorted(known, steps, side="right") - 1
    return [points[place][1] for place in places.tolist()]


def table(results: Sequence[Result], metric: str, threshold: float | None) -> str:
    """Format the comparison: one row per setting, with steps relative to the first setting's."""
    width = max(len(result.name) for result in results) + 2
    reach = "" if threshold is None else f"{f'env steps to {metric} {threshold:g}':<40}"
    lines = [f"{'':<{width}}{reach}final {'value' if threshold is not None else metric}: IQM and mean [95 %]"]
    for result in results:
        reached = sum(math.isfinite(steps) for steps in result.crossings)
        steps = f"{step(result.steps.value)} [{step(result.steps.low)}, {step(result.steps.high)}]"
        known = result is not results[0] and math.isfinite(result.steps.value + results[0].steps.value)
        times = f" x{result.steps.value / results[0].steps.value:.2f}" if known else ""
        final = f"{result.final.value:.4g} [{result.final.low:.4g}, {result.final.high:.4g}], mean"
        final += f" {result.mean.value:.4g} [{result.mean.low:.4g}, {result.mean.high:.4g}]"
        seeds = f"{reached} of {len(result.crossings)}"
        final += f", {result.left_out} of {len(result.curves)} left out: not finite" if result.left_out else ""
        reach = "" if threshold is None else f"{f'{steps}{times}, {seeds}':<40}"
        lines.append(f"{result.name:<{width}}{reach}{final}")
    return "\n".join(lines)


def step(value: float) -> str:
    """Format a number of steps."""
    return f"{value:,.0f}" if math.isfinite(value) else "never"
