"""DynamicalSystemEnv: a controlled vector field with an observation model, for learning its dynamics."""

import math
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from datamodules.core.arguments import check_ranges
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec, State
from datamodules.env_interface.device_constants import DeviceConstants
from datamodules.envs.dynamical_systems.rendering import draw_field
from datamodules.envs.dynamical_systems.vector_fields import SYSTEMS

POISSON_SUM_MAX_RATE = 6.0
"""Largest Poisson rate for which the distribution function is summed; above it, the quantile is expanded."""

POISSON_SUM_TERMS = 24
"""Terms of that sum: at `POISSON_SUM_MAX_RATE` a larger count is less likely than the smallest positive uniform."""

SMALLEST_UNIFORM = 2.0**-25
"""Replaces a uniform of zero, for which the normal quantile is infinite."""

STATE_LIMIT = 4.0
"""Bound of the states, relative to the box of interest."""

HIDDEN = 32
"""Units of the `mlp` observation."""


class DynamicalSystemEnv:
    """Dynamical system as a `TorchFuncEnv`; rewards are zero and episodes never terminate (fields: `vector_fields`).

    x_{t+1} = x_t + int_0^dt (f(x) + B u) + process_noise sqrt(dt) e,   y_t = h(x_t) + noise

    The integral uses the fourth-order Runge-Kutta method with `substeps`, the action u held constant. An action has one
    part for each controlled axis (B consists of columns of the identity), bounded by the system's control. States are
    float32 and stay within a box four times as wide as the box of interest.

    Args:
        system: a name in `SYSTEMS`.
        dt: seconds per step; None uses the system's.
        process_noise: standard deviation after one second.
        substeps: integration steps per step.
        observation: identity (y is x), linear (C x, C from N(0, 1/D)), mlp (a random network of 32 tanh units).
        observation_dim: Dy; not used by identity.
        noise: gaussian, or poisson counts at rate `count` exp(0.6 h(x)).
        observation_noise: standard deviation of the gaussian noise.
        count: expected count if h(x) is 0.
        length: steps after which an episode is truncated; None never truncates.
        seed: seed of the observation model and of random fields.

    Raises: ConfigurationError if an argument is out of range.
    """

    episode_stat_keys = ()

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
            raise ConfigurationError(f"There is no dynamical system {system!r}; choose one of {', '.join(SYSTEMS)}.")
        found = SYSTEMS[system]
        self.low, self.high = torch.tensor(found.low), torch.tensor(found.high)
        self.dimensions = len(found.low)
        self.dt = found.dt if dt is None else dt
        shown = self.dimensions if observation == "identity" else observation_dim
        _check(self.dt, process_noise, substeps, observation, shown, self.dimensions, noise, observation_noise, count)
        if length is not None and length < 1:
            raise ConfigurationError(
                f"The system's length is {length}; it must be at least 1 step, or null for no end."
            )
        self.field, self.process_noise, self.substeps = found.make(seed), process_noise, substeps
        self.observation_noise, self.count, self.poisson = observation_noise, count, noise == "poisson"
        self.length = self.min_truncation_step = length
        self.axes = [axis for axis, bound in enumerate(found.control) if bound > 0]
        self.shown = int(shown or 0)
        self._layers = DeviceConstants(*_observation_model(observation, self.dimensions, self.shown, seed))
        self.observes_layers = observation != "identity"
        self.noise_size = self.dimensions + self.shown
        self._limits = self._corners([found.control[axis] for axis in self.axes])

    def _corners(self, bounds: list[float]) -> DeviceConstants:
        """Set the spaces; return the box of interest, the bounds of the state, and the largest action."""
        self.spaces = SpaceSpec(
            obs_shape=(self.shown,),
            obs_dtype="float32",
            action_type="continuous",
            action_sizes=[],
            action_low=[-bound for bound in bounds],
            action_high=bounds,
            action_start=[],
            num_agents=1,
        )
        centre, reach = (self.low + self.high) / 2, STATE_LIMIT * (self.high - self.low) / 2
        least, most = centre - reach, centre + reach
        if not (self.observes_layers or self.poisson or self.observation_noise):  # else they have no bounds
            self.obs_bounds = least.numpy(), most.numpy()
        return DeviceConstants(self.low, self.high, least, most, torch.tensor(bounds))

    def initial(self, noise: Tensor) -> State:
        """Return initial states, uniform in the box."""
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
        """Return the observation of a state, with noise."""
        mean, draw = self.mean(state), state["draw"]
        if self.poisson:
            return poisson(mean, draw)
        return torch.add(mean, normal(draw), alpha=self.observation_noise) if self.observation_noise else mean

    def info(self, state: State) -> dict[str, Tensor]:
        """Return an empty info."""
        return {}

    def control(self, action: Tensor) -> Tensor:
        """Return B u, `[..., D]`, for actions `[..., axes]`."""
        *_, bound = self._limits.on(action.device)
        clipped = action.clamp(-bound, bound)
        parts = dict(zip(self.axes, clipped.unbind(-1), strict=True))
        nothing = torch.zeros_like(action[..., 0])
        return torch.stack([parts.get(axis, nothing) for axis in range(self.dimensions)], -1)

    def latent(self, state: State) -> Tensor:
        """Return the true state x, `[B, D]`."""
        return state["x"]

    def mean(self, state: State) -> Tensor:
        """Return the expected observation, `[B, Dy]`."""
        shown = state["x"]
        for index, weight in enumerate(self._layers.on(shown.device)):
            shown = (shown if index == 0 else shown.tanh()) @ weight
        return self.count * torch.exp(0.6 * shown) if self.poisson else shown

    def grid(self, points: int = 30) -> Tensor:
        """Return states that cover the box, `[points^D, D]`; a third of the points per axis in three dimensions."""
        points = points if self.dimensions < 3 else points // 3
        axes = [torch.linspace(float(a), float(b), points) for a, b in zip(self.low, self.high, strict=True)]
        return torch.cartesian_prod(*axes)

    def render(self, state: State, row: int, mode: str) -> Tensor | str:
        """Render one row: `rgb_array`, uint8 `[400, 400, 3]`, the field around the state, or `ansi`, the state."""
        x = state["x"][row].cpu()
        if mode == "ansi":
            return ", ".join(f"{value:+.3f}" for value in x.tolist())
        return draw_field(self.field, x, self.low, self.high)

    def _runge_kutta(self, x: Tensor, control: Tensor, dt: float) -> Tensor:
        first = self.field(x) + control
        second = self.field(torch.add(x, first, alpha=dt / 2)) + control
        third = self.field(torch.add(x, second, alpha=dt / 2)) + control
        fourth = self.field(torch.add(x, third, alpha=dt)) + control
        return torch.add(x, first + 2 * (second + third) + fourth, alpha=dt / 6)


def normal(uniform: Tensor) -> Tensor:
    """Return standard normal draws from uniforms in [0, 1)."""
    return math.sqrt(2) * torch.erfinv(2 * uniform.clamp(SMALLEST_UNIFORM, 1 - SMALLEST_UNIFORM) - 1)


def poisson(rate: Tensor, uniform: Tensor) -> Tensor:
    """Return counts at rates `[...]` from uniforms `[...]`: the smallest count whose CDF reaches them.

    Exact, except for rounding, up to a rate of `POISSON_SUM_MAX_RATE`. Above, at most one count in a thousand is off by
    one, fewer at larger rates; counts are unbounded.
    """
    return torch.where(rate <= POISSON_SUM_MAX_RATE, _poisson_by_sum(rate, uniform), _by_expansion(rate, uniform))


def _poisson_by_sum(rate: Tensor, uniform: Tensor) -> Tensor:
    """Return counts at small rates; uniforms above the rounded sum give the largest distinguishable count."""
    rate = rate.clamp(torch.finfo(rate.dtype).tiny, POISSON_SUM_MAX_RATE)
    count = torch.arange(POISSON_SUM_TERMS, device=rate.device, dtype=rate.dtype).view(-1, *[1] * rate.dim())
    reached = torch.exp(count * rate.log() - rate - torch.lgamma(count + 1)).cumsum(0)
    return (reached < torch.minimum(uniform, reached[-1])).sum(0, dtype=rate.dtype)


def _by_expansion(rate: Tensor, uniform: Tensor) -> Tensor:
    """Return counts at large rates, by the expansion of the quantile around the normal quantile.

    Source: Giles 2016, "Algorithm 955: approximation of the inverse Poisson cumulative distribution function".
    """
    rate = rate.clamp(min=POISSON_SUM_MAX_RATE)
    w, root = normal(uniform), rate.sqrt()
    square = w.square()
    first = w * (1 + square / 2) / (36 * root)
    second = (square * (square / 270 + 7 / 810) - 8 / 405) / rate
    return (rate + root * w + (2 + square) / 6 - first + second).floor().clamp(min=0)


def _observation_model(kind: str, dimensions: int, shown: int, seed: int) -> list[Tensor]:
    """Return the weights of the layers, with tanh in between; none for the identity."""
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
    """Raise ConfigurationError for the first argument that is out of range."""
    if kind not in ("identity", "linear", "mlp"):
        raise ConfigurationError(f"There is no observation {kind!r} of a system; choose identity, linear or mlp.")
    if noise not in ("gaussian", "poisson"):
        raise ConfigurationError(f"There is no observation noise {noise!r}; choose gaussian or poisson.")
    if shown is None or shown < least:
        raise ConfigurationError(f"observation_dim is {shown}; a system of {least} dimensions needs at least as many.")
    check_ranges(
        "The system",
        ("dt", dt, dt > 0, "a positive number"),
        ("substeps", substeps, substeps >= 1, "at least 1"),
        ("process_noise", process, process >= 0, "at least 0"),
        ("observation_noise", std, std >= 0, "at least 0"),
        ("count", count, count > 0, "a positive number"),
    )
