"""How a latent state goes on: z_{t+1} = z_t + dt (f(z_t) + u_t) + noise, or directly f(z_t) + dt u_t + noise.

Shapes: `[..., D]` for states and encoded inputs, whatever comes before. The variance of the noise belongs to one step,
dt softplus(q) with a floor, and is computed from its parameter each time it is asked for.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap
from torch.nn import functional as F

from modules.networks.base import silu_layers

SMALLEST_NOISE = 1e-4
"""Variance a second that is always there."""


class Dynamics(Protocol):
    """What models, planners and acquisitions ask of dynamics; bring your own with these members.

    dimensions: D.   dt: seconds a step.   gain: what multiplies f in `step`: dt, or 1 where f gives the next state.
    """

    dimensions: int
    dt: float
    gain: float

    @property
    def variance(self) -> Tensor:
        """Variance `[D]` of one step's noise."""
        ...

    def field(self, z: Tensor) -> Tensor:
        """f(z) `[..., D]`."""
        ...

    def step(self, z: Tensor, u: Tensor) -> Tensor:
        """The mean of the next state."""
        ...

    def features(self, z: Tensor) -> Tensor:
        """What f is linear in, `[..., P]`: f is their product with `weight`."""
        ...

    def jacobian(self, z: Tensor, u: Tensor) -> Tensor:
        """Derivative of `step` by z, `[..., D, D]`: the row is what changes, the column what it changes with."""
        ...

    def members(self, z: Tensor, u: Tensor) -> Tensor:
        """Next states `[E, ..., D]` by each of E models; one for dynamics that are no ensemble."""
        ...


class LastLayer(nn.Module):
    """Dynamics that are linear in features: f(z) = features(z) weight.

    Args:
        dimensions: D.
        features: P, how many there are.
        dt: seconds a step.
        residual: f is a velocity (True) or the next state.
        noise: the noise's standard deviation a root second, at first. Where it is learned, begin with a step's
            variance of 0.01 or more, as the defaults do: with a smaller one early gradients can explode.
        learn_noise: whether it changes with training.

    Raises: ValueError if a number is out of range.
    """

    def __init__(self, dimensions: int, features: int, dt: float, residual: bool, noise: float, learn_noise: bool):
        super().__init__()
        if dimensions < 1 or dt <= 0 or noise**2 <= SMALLEST_NOISE:
            raise ValueError(
                f"Dynamics cannot have dimensions {dimensions}, dt {dt} and noise {noise}: dimensions must be at least"
                f" 1, dt positive, and noise more than {math.sqrt(SMALLEST_NOISE):g}."
            )
        self.dimensions, self.dt, self.residual = dimensions, dt, residual
        self.gain = dt if residual else 1.0
        self.weight = nn.Parameter(torch.zeros(features, dimensions))
        raw = math.log(math.expm1(noise**2 - SMALLEST_NOISE))
        self.raw_noise = nn.Parameter(torch.full((dimensions,), raw), requires_grad=learn_noise)

    @property
    def variance(self) -> Tensor:
        """Variance `[D]` of one step's noise."""
        return self.dt * (F.softplus(self.raw_noise) + SMALLEST_NOISE)

    def features(self, z: Tensor) -> Tensor:
        """What f is linear in, `[..., P]`."""
        raise NotImplementedError

    def field(self, z: Tensor) -> Tensor:
        """f(z) `[..., D]`."""
        return self.features(z) @ self.weight

    def step(self, z: Tensor, u: Tensor) -> Tensor:
        """The mean of the next state."""
        if self.residual:
            return torch.add(z, self.field(z) + u, alpha=self.dt)
        return torch.add(self.field(z), u, alpha=self.dt)

    def jacobian(self, z: Tensor, u: Tensor) -> Tensor:
        """Derivative of `step` by z, `[..., D, D]`; the input is added, so it does not matter."""
        slope = vmap(jacrev(self.field))(z.reshape(-1, self.dimensions)).view(*z.shape, self.dimensions)
        return self._with_identity(slope)

    def members(self, z: Tensor, u: Tensor) -> Tensor:
        """The one next state, `[1, ..., D]`."""
        return self.step(z, u).unsqueeze(0)

    def _with_identity(self, slope: Tensor) -> Tensor:
        if not self.residual:
            return slope
        return torch.eye(self.dimensions, dtype=slope.dtype, device=slope.device) + self.dt * slope


class RBF(LastLayer):
    """Gaussian bumps on a grid, and a constant: f(z) = sum_j exp(-|z - c_j|^2 / (2 h^2)) w_j + b.

    Args:
        low: lower corner of the box that the grid covers, with a margin of 15 % of its width.
        high: upper corner of that box.
        centres: along each axis.
        width: h, in spacings of the grid, along each axis.
        dt: seconds per step.
        residual: f is a velocity (true) or the next state.
        noise: standard deviation of the process noise per root second, at first.
        learn_noise: learn the noise from the data.

    Raises: ValueError if a number is out of range.
    """

    centres: Tensor
    scale: Tensor
    exponents: Tensor

    def __init__(
        self,
        low: Sequence[float] = (-2.0, -2.0),
        high: Sequence[float] = (2.0, 2.0),
        centres: int = 11,
        width: float = 1.2,
        dt: float = 0.05,
        residual: bool = True,
        noise: float = 0.05,
        learn_noise: bool = False,
    ):
        if len(low) != len(high) or any(a >= b for a, b in zip(low, high, strict=False)) or centres < 2 or width <= 0:
            raise ValueError(
                f"RBF cannot have low {list(low)}, high {list(high)}, centres {centres} and width {width}: each low"
                " must be under its high, centres at least 2 and width positive."
            )
        super().__init__(len(low), centres ** len(low) + 1, dt, residual, noise, learn_noise)
        margin = [0.075 * (b - a) for a, b in zip(low, high, strict=True)]
        axes = [torch.linspace(a - m, b + m, centres) for a, b, m in zip(low, high, margin, strict=True)]
        self.register_buffer("centres", torch.cartesian_prod(*axes).view(-1, len(low)), persistent=False)
        spacing = torch.stack([axis[1] - axis[0] for axis in axes])
        self.register_buffer("scale", (width * spacing).reciprocal(), persistent=False)
        centre = self.centres * self.scale
        square = centre.square().sum(-1, keepdim=True)
        each = torch.cat([centre, torch.full_like(square, -0.5), -0.5 * square], -1)
        self.register_buffer("exponents", F.pad(each.T, (0, 1)), persistent=False)

    def features(self, z: Tensor) -> Tensor:
        """The bumps and a one, `[..., centres^D + 1]`.

        -|z - c|^2 / 2 = z c - |z|^2 / 2 - |c|^2 / 2: one product gives the exponents of all, and zero for the one.
        """
        scaled = z * self.scale
        square = scaled.square().sum(-1, keepdim=True)
        return torch.exp(torch.cat([scaled, square, torch.ones_like(square)], -1) @ self.exponents)

    def jacobian(self, z: Tensor, u: Tensor) -> Tensor:
        """Derivative of `step` by z in closed form: d phi_j / d z = -phi_j (z - c_j) / h^2."""
        bumps = self.features(z)[..., :-1]
        weighted = bumps.unsqueeze(-2) * self.weight[:-1].T
        centres = self.exponents[: self.dimensions, :-1].T
        moment = weighted @ centres - weighted.sum(-1, keepdim=True) * (z * self.scale).unsqueeze(-2)
        return self._with_identity(moment * self.scale)


class LinearDynamics(LastLayer):
    """f(z) = A z + b.

    Args:
        dimensions: D.
        dt: seconds per step.
        residual: f is a velocity (true) or the next state.
        noise: standard deviation of the process noise per root second, at first.
        learn_noise: learn the noise from the data.
    """

    def __init__(
        self,
        dimensions: int = 2,
        dt: float = 0.05,
        residual: bool = True,
        noise: float = 0.45,
        learn_noise: bool = True,
    ):
        super().__init__(dimensions, dimensions + 1, dt, residual, noise, learn_noise)
        if not residual:
            with torch.no_grad():
                self.weight[:dimensions].copy_(torch.eye(dimensions))

    def features(self, z: Tensor) -> Tensor:
        """The state and a one, `[..., D + 1]`."""
        return torch.cat([z, torch.ones_like(z[..., :1])], -1)


class MLPDynamics(LastLayer):
    """A network with SiLU units, whose last layer begins at a hundredth of its usual size.

    Args:
        dimensions: D.
        hidden: widths of the hidden layers.
        dt: seconds per step.
        residual: f is a velocity (true) or the next state.
        noise: standard deviation of the process noise per root second, at first.
        learn_noise: learn the noise from the data.
    """

    def __init__(
        self,
        dimensions: int = 2,
        hidden: Sequence[int] = (64, 64),
        dt: float = 0.05,
        residual: bool = True,
        noise: float = 0.45,
        learn_noise: bool = True,
    ):
        super().__init__(dimensions, hidden[-1] + 1, dt, residual, noise, learn_noise)
        self.body = nn.Sequential(*silu_layers((dimensions, *hidden)))
        nn.init.normal_(self.weight, std=0.01 / math.sqrt(hidden[-1]))

    def features(self, z: Tensor) -> Tensor:
        """The last hidden layer and a one, `[..., hidden + 1]`."""
        hidden = self.body(z)
        return torch.cat([hidden, torch.ones_like(hidden[..., :1])], -1)


class Ensemble(nn.Module):
    """Several `MLPDynamics`, each with weights of its own; together they are their mean.

    Args:
        dimensions: D.
        count: E, how many; at least two.
        hidden: widths of the hidden layers of each member.
        dt: seconds per step.
        residual: f is a velocity (true) or the next state.
        noise: standard deviation of the process noise per root second, at first.
        learn_noise: learn the noise from the data.

    Raises: ValueError for fewer than two.
    """

    def __init__(
        self,
        dimensions: int = 2,
        count: int = 5,
        hidden: Sequence[int] = (64, 64),
        dt: float = 0.05,
        residual: bool = True,
        noise: float = 0.45,
        learn_noise: bool = True,
    ):
        super().__init__()
        if count < 2:
            raise ValueError(f"Ensemble: count is {count}; it must be at least 2.")
        made = [MLPDynamics(dimensions, hidden, dt, residual, noise, learn_noise) for _ in range(count)]
        self.each = nn.ModuleList(made)
        self.dimensions, self.dt, self.residual, self.gain = dimensions, dt, residual, made[0].gain

    @property
    def models(self) -> list[MLPDynamics]:
        """The members."""
        return [each for each in self.each if isinstance(each, MLPDynamics)]

    @property
    def weight(self) -> Tensor:
        """Last layers of all members, one below the other, `[E (hidden + 1), D]`."""
        return torch.cat([each.weight for each in self.models])

    @property
    def variance(self) -> Tensor:
        """Mean variance `[D]` of one step's noise."""
        return torch.stack([each.variance for each in self.models]).mean(0)

    def field(self, z: Tensor) -> Tensor:
        """The members' mean f(z)."""
        return torch.stack([each.field(z) for each in self.models]).mean(0)

    def step(self, z: Tensor, u: Tensor) -> Tensor:
        """The members' mean next state."""
        return self.members(z, u).mean(0)

    def members(self, z: Tensor, u: Tensor) -> Tensor:
        """Next states `[E, ..., D]`."""
        return torch.stack([each.step(z, u) for each in self.models])

    def features(self, z: Tensor) -> Tensor:
        """Those of all members side by side, `[..., E (hidden + 1)]`, over E: f is the mean of the members'."""
        return torch.cat([each.features(z) for each in self.models], -1) / len(self.each)

    def jacobian(self, z: Tensor, u: Tensor) -> Tensor:
        """The members' mean derivative of `step` by z."""
        return torch.stack([each.jacobian(z, u) for each in self.models]).mean(0)
