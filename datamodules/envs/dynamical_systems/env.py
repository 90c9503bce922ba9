"""Dynamical systems to explore: a vector field, pushed by the action, seen through an observation model."""

import math
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from datamodules.core.errors import UsageError
from datamodules.core.types import Spaces, State
from datamodules.envs.dynamical_systems.vector_fields import SYSTEMS, Constants

FEW = 6.0
"""Rate of counts up to which their distribution function is summed; above it, the quantile is expanded."""

TERMS = 24
"""Of that sum: at a rate of `FEW` a larger count is rarer than the smallest uniform above 0."""

SMALLEST_UNIFORM = 2.0**-25
"""Stands for a uniform of zero, whose normal would be infinite."""

REACH = 4.0
"""Width, in boxes, of what a state cannot leave."""

HIDDEN = 32
"""Units of the `mlp` observation."""


class Dynamical:
    """A system of `datamodules.envs.dynamical_systems.vector_fields` as a `TensorEnv`; it pays nothing and never terminates.

    x_{t+1} = x_t + int_0^dt (f(x) + B u) + process_noise sqrt(dt) e,   y_t = h(x_t) + noise

    The integral is by Runge-Kutta's fourth-order method in `substeps`, the action u held. An action has one part for
    each axis that can be pushed (B is made of columns of the identity), bounded by the system's control. States are
    float32 and stay within a box four times as wide.

    Args:
        system: a name in `SYSTEMS`.
        dt: seconds a step; None takes the system's.
        process_noise: standard deviation gained in a second.
        substeps: of the integration, a step.
        observation: identity (y is x), linear (C x, C from N(0, 1/D)), mlp (a random network of 32 tanh units).
        observation_dim: Dy; identity needs none.
        noise: gaussian, or poisson counts at rate `count` exp(0.6 h(x)).
        observation_noise: standard deviation of the gaussian noise.
        count: expected count where h(x) is 0.
        length: steps of an episode, truncated then; None never ends it.
        seed: of the observation model and of random fields.

    Raises: UsageError if an argument is out of range.
    """

    episode_keys = ()

    def __init__(
        self,
        system: str = "duffing",
        dt: float | None = None,
        process_noise: float = 0.05,
        substeps: int = 2,
        observation: Literal["identity", "linear", "mlp"] = "identity",
        observation_dim: int | None = None,
        noise: Literal["gaussian", "poisson"] = "gaussian",
        observation_noise: float = 0.0,
        count: float = 1.0,
        length: int | None = None,
        seed: int = 0,
    ):
        if system not in SYSTEMS:
            raise UsageError(f"There is no dynamical system {system!r}; choose one of {', '.join(SYSTEMS)}.")
        found = SYSTEMS[system]
        self.low, self.high = torch.tensor(found.low), torch.tensor(found.high)
        self.dimensions = len(found.low)
        self.dt = found.dt if dt is None else dt
        shown = self.dimensions if observation == "identity" else observation_dim
        _check(self.dt, process_noise, substeps, observation, shown, self.dimensions, noise, observation_noise, count)
        if length is not None and length < 1:
            raise UsageError(f"The system's length is {length}; it must be at least 1 step, or null for no end.")
        self.field, self.process_noise, self.substeps = found.make(seed), process_noise, substeps
        self.observation_noise, self.count, self.poisson = observation_noise, count, noise == "poisson"
        self.length = self.shortest_truncation = length
        self.axes = [axis for axis, bound in enumerate(found.control) if bound > 0]
        self.shown = int(shown or 0)
        self._layers = Constants(*_observation_model(observation, self.dimensions, self.shown, seed))
        self.noise_size = self.dimensions + self.shown
        self._limits = self._corners([found.control[axis] for axis in self.axes])

    def _corners(self, bounds: list[float]) -> Constants:
        """Declare the spaces; the box of interest, what no state leaves, and the largest action."""
        self.spaces = Spaces(
            obs_shape=(self.shown,),
            obs_dtype="float32",
            action_kind="continuous",
            action_sizes=[],
            action_low=[-bound for bound in bounds],
            action_high=bounds,
            action_start=[],
            agents=1,
        )
        centre, reach = (self.low + self.high) / 2, REACH * (self.high - self.low) / 2
        return Constants(self.low, self.high, centre - reach, centre + reach, torch.tensor(bounds))

    def initial(self, noise: Tensor) -> State:
        """First states, uniform in the box."""
        low, high, *_ = self._limits.on(noise.device)
        x = torch.lerp(low, high, noise[:, : self.dimensions])
        return {"x": x, "draw": noise[:, self.dimensions :], "age": torch.zeros_like(noise[:, 0], dtype=torch.int64)}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Integrate over one step."""
        x, control = state["x"], self.control(action)
        for _ in range(self.substeps):
            x = self._runge_kutta(x, control, self.dt / self.substeps)
        x = x + self.process_noise * math.sqrt(self.dt) * normal(noise[:, : self.dimensions])
        *_, least, most, _ = self._limits.on(x.device)
        x = x.clamp(least, most)
        age = state["age"] + 1
        terminated = torch.zeros_like(age, dtype=torch.bool)
        truncated = terminated if self.length is None else age >= self.length
        following = {"x": x, "draw": noise[:, self.dimensions :], "age": age}
        return following, torch.zeros_like(x[:, 0]), terminated, truncated

    def observation(self, state: State) -> Tensor:
        """What is seen of a state, noise included."""
        mean, draw = self.mean(state), state["draw"]
        if self.poisson:
            return poisson(mean, draw)
        return torch.add(mean, normal(draw), alpha=self.observation_noise) if self.observation_noise else mean

    def info(self, state: State) -> dict[str, Tensor]:
        """Nothing to report."""
        return {}

    def control(self, action: Tensor) -> Tensor:
        """B u, `[..., D]`, of actions `[..., axes]`."""
        *_, bound = self._limits.on(action.device)
        clipped = action.clamp(-bound, bound)
        parts = dict(zip(self.axes, clipped.unbind(-1), strict=True))
        nothing = torch.zeros_like(action[..., 0])
        return torch.stack([parts.get(axis, nothing) for axis in range(self.dimensions)], -1)

    def latent(self, state: State) -> Tensor:
        """The true state x, `[B, D]`."""
        return state["x"]

    def mean(self, state: State) -> Tensor:
        """The observation that is to be expected, `[B, Dy]`."""
        shown = state["x"]
        for index, weight in enumerate(self._layers.on(shown.device)):
            shown = (shown if index == 0 else shown.tanh()) @ weight
        return self.count * torch.exp(0.6 * shown) if self.poisson else shown

    def grid(self, points: int = 30) -> Tensor:
        """States that cover the box, `[points^D, D]`; a third of the points an axis in three dimensions."""
        points = points if self.dimensions < 3 else points // 3
        axes = [torch.linspace(float(a), float(b), points) for a, b in zip(self.low, self.high, strict=True)]
        return torch.cartesian_prod(*axes)

    def _runge_kutta(self, x: Tensor, control: Tensor, dt: float) -> Tensor:
        first = self.field(x) + control
        second = self.field(torch.add(x, first, alpha=dt / 2)) + control
        third = self.field(torch.add(x, second, alpha=dt / 2)) + control
        fourth = self.field(torch.add(x, third, alpha=dt)) + control
        return torch.add(x, first + 2 * (second + third) + fourth, alpha=dt / 6)


def normal(uniform: Tensor) -> Tensor:
    """Standard normal draws from uniforms in [0, 1)."""
    return math.sqrt(2) * torch.erfinv(2 * uniform.clamp(SMALLEST_UNIFORM, 1 - SMALLEST_UNIFORM) - 1)


def poisson(rate: Tensor, uniform: Tensor) -> Tensor:
    """Counts at rates `[...]` from uniforms `[...]`: the smallest count whose distribution function reaches them.

    Exact, but for the dtype's rounding, up to a rate of `FEW`. Above, at most one count in a thousand is one off, ever
    fewer as the rate grows; there is no largest count.
    """
    return torch.where(rate <= FEW, _summed(rate, uniform), _expanded(rate, uniform))


def _summed(rate: Tensor, uniform: Tensor) -> Tensor:
    """Counts at small rates. What rounding keeps the sum from reaching counts as the largest that it tells apart."""
    rate = rate.clamp(torch.finfo(rate.dtype).tiny, FEW)
    count = torch.arange(TERMS, device=rate.device, dtype=rate.dtype).view(-1, *[1] * rate.dim())
    reached = torch.exp(count * rate.log() - rate - torch.lgamma(count + 1)).cumsum(0)
    return (reached < torch.minimum(uniform, reached[-1])).sum(0, dtype=rate.dtype)


def _expanded(rate: Tensor, uniform: Tensor) -> Tensor:
    """Counts at large rates, by the expansion of the quantile around the normal one.

    Source: Giles 2016, "Algorithm 955: approximation of the inverse Poisson cumulative distribution function".
    """
    rate = rate.clamp(min=FEW)
    w, root = normal(uniform), rate.sqrt()
    square = w.square()
    first = w * (1 + square / 2) / (36 * root)
    second = (square * (square / 270 + 7 / 810) - 8 / 405) / rate
    return (rate + root * w + (2 + square) / 6 - first + second).floor().clamp(min=0)


def _observation_model(kind: str, dimensions: int, shown: int, seed: int) -> list[Tensor]:
    """Weights of the layers, with tanh in between; none for the identity."""
    generator = torch.Generator().manual_seed(seed)
    widths = {"identity": [], "linear": [dimensions, shown], "mlp": [dimensions, HIDDEN, shown]}[kind]
    return [torch.randn(a, b, generator=generator) / math.sqrt(a) for a, b in pairwise(widths)]


def _check(
    dt: float,
    process: float,
    substeps: int,
    kind: str,
    shown: int | None,
    least: int,
    noise: str,
    std: float,
    count: float,
) -> None:
    """Raises: UsageError for the first argument that is out of range."""
    if kind not in ("identity", "linear", "mlp"):
        raise UsageError(f"There is no observation {kind!r} of a system; choose identity, linear or mlp.")
    if noise not in ("gaussian", "poisson"):
        raise UsageError(f"There is no observation noise {noise!r}; choose gaussian or poisson.")
    if shown is None or shown < least:
        raise UsageError(f"observation_dim is {shown}; a system of {least} dimensions needs at least as many.")
    if dt <= 0 or substeps < 1 or min(process, std) < 0 or count <= 0:
        raise UsageError(
            f"A system cannot have dt {dt}, substeps {substeps}, process_noise {process}, observation_noise {std} and"
            f" count {count}: dt and count must be positive, substeps at least 1, noises at least 0."
        )
