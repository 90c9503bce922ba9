"""Dynamics of a latent state: z_{t+1} = z_t + dt (f(z_t) + u_t) + noise, or z_{t+1} = f(z_t) + dt u_t + noise.

Shapes: `[..., D]` for states and encoded inputs, any leading dimensions. The variance of the noise is per step,
dt softplus(q) with a lower bound, and computed from its parameter at every access.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap
from torch.nn import functional as F

from modules.functional.dynamics.gaussian import inverse_softplus
from modules.networks.base import silu_layers

SMALLEST_NOISE = 1e-4
"""Lower bound of the noise's variance per second."""


class Dynamics(Protocol):
    """Interface of dynamics for models, planners and acquisitions; bring your own with these members.

    dimensions: D, number of dimensions of the latent state.
    dt: seconds per step.
    gain: factor of f in `step`: dt, or 1 where f gives the next state.
    """

    dimensions: int
    dt: float
    gain: float

    @property
    def variance(self) -> Tensor:
        """Return the variance `[D]` of the noise of one step."""
        ...

    def field(self, z: Tensor) -> Tensor:
        """Return f(z) `[..., D]`."""
        ...

    def step(self, z: Tensor, u: Tensor) -> Tensor:
        """Return the mean of the next state."""
        ...

    def features(self, z: Tensor) -> Tensor:
        """Return the features that f is linear in, `[..., P]`: f is their product with `weight`."""
        ...

    def jacobian(self, z: Tensor, u: Tensor) -> Tensor:
        """Return the derivative of `step` by z, `[..., D, D]`: rows are outputs, columns inputs."""
        ...

    def members(self, z: Tensor, u: Tensor) -> Tensor:
        """Return the next states `[E, ..., D]` of each of E models; E = 1 for dynamics that are no ensemble."""
        ...


class LinearBasisDynamics(nn.Module):
    """Dynamics that are linear in features: f(z) = features(z) weight.

    Args:
        dimensions: D, number of dimensions of the latent state.
        features: P, number of features.
        dt: seconds per step.
        residual: f is a velocity (True) or the next state.
        noise: initial standard deviation of the noise per root second. If it is learned, choose a variance per step of
            0.01 or more, as the defaults do: with a smaller one early gradients can explode.
        learn_noise: learn the noise from the data.

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
        raw = inverse_softplus(torch.tensor(noise**2 - SMALLEST_NOISE, dtype=torch.float64))
        self.raw_noise = nn.Parameter(torch.full((dimensions,), float(raw)), requires_grad=learn_noise)

    @property
    def variance(self) -> Tensor:
        """Return the variance `[D]` of the noise of one step."""
        return self.dt * (F.softplus(self.raw_noise) + SMALLEST_NOISE)

    def features(self, z: Tensor) -> Tensor:
        """Return the features that f is linear in, `[..., P]`."""
        raise NotImplementedError

    def field(self, z: Tensor) -> Tensor:
        """Return f(z) `[..., D]`."""
        return self.features(z) @ self.weight

    def step(self, z: Tensor, u: Tensor) -> Tensor:
        """Return the mean of the next state."""
        if self.residual:
            return torch.add(z, self.field(z) + u, alpha=self.dt)
        return torch.add(self.field(z), u, alpha=self.dt)

    def jacobian(self, z: Tensor, u: Tensor) -> Tensor:
        """Return the derivative of `step` by z, `[..., D, D]`; it does not depend on the input, which is added."""
        slope = vmap(jacrev(self.field))(z.reshape(-1, self.dimensions)).view(*z.shape, self.dimensions)
        return self._with_identity(slope)

    def members(self, z: Tensor, u: Tensor) -> Tensor:
        """Return the next state as that of a single model, `[1, ..., D]`."""
        return self.step(z, u).unsqueeze(0)

    def _with_identity(self, slope: Tensor) -> Tensor:
        if not self.residual:
            return slope
        return torch.eye(self.dimensions, dtype=slope.dtype, device=slope.device) + self.dt * slope


class RBF(LinearBasisDynamics):
    """Radial basis functions on a grid, and a constant: f(z) = sum_j exp(-|z - c_j|^2 / (2 h^2)) w_j + b.

    Args:
        low: lower corner of the box that the grid covers, with a margin of 15 % of its width.
        high: upper corner of that box.
        centres: number of grid points along each axis.
        width: h, in spacings of the grid, along each axis.
        dt: seconds per step.
        residual: f is a velocity (true) or the next state.
        noise: initial standard deviation of the process noise per root second.
        learn_noise: learn the noise from the data.

    Raises: ValueError if a number is out of range.
    """

    low: Tensor
    high: Tensor
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
        self.register_buffer("low", torch.tensor([float(a) for a in low]), persistent=False)
        self.register_buffer("high", torch.tensor([float(b) for b in high]), persistent=False)
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
        """Return the basis functions and a constant one, `[..., centres^D + 1]`.

        -|z - c|^2 / 2 = z c - |z|^2 / 2 - |c|^2 / 2: one product gives the exponents of all, and zero for the one.
        """
        scaled = z * self.scale
        square = scaled.square().sum(-1, keepdim=True)
        return torch.exp(torch.cat([scaled, square, torch.ones_like(square)], -1) @ self.exponents)

    def jacobian(self, z: Tensor, u: Tensor) -> Tensor:
        """Return the derivative of `step` by z in closed form: d phi_j / d z = -phi_j (z - c_j) / h^2."""
        bumps = self.features(z)[..., :-1]
        weighted = bumps.unsqueeze(-2) * self.weight[:-1].T
        centres = self.exponents[: self.dimensions, :-1].T
        moment = weighted @ centres - weighted.sum(-1, keepdim=True) * (z * self.scale).unsqueeze(-2)
        return self._with_identity(moment * self.scale)


class LinearDynamics(LinearBasisDynamics):
    """Linear dynamics f(z) = A z + b.

    Args:
        dimensions: D, number of dimensions of the latent state.
        dt: seconds per step.
        residual: f is a velocity (true) or the next state.
        noise: initial standard deviation of the process noise per root second.
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
        """Return the state and a constant one, `[..., D + 1]`."""
        return torch.cat([z, torch.ones_like(z[..., :1])], -1)


class MLPDynamics(LinearBasisDynamics):
    """MLP with SiLU units, whose last layer is initialised at a hundredth of the usual scale.

    Args:
        dimensions: D, number of dimensions of the latent state.
        hidden: widths of the hidden layers.
        dt: seconds per step.
        residual: f is a velocity (true) or the next state.
        noise: initial standard deviation of the process noise per root second.
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
        """Return the last hidden layer and a constant one, `[..., hidden + 1]`."""
        hidden = self.body(z)
        return torch.cat([hidden, torch.ones_like(hidden[..., :1])], -1)


class Ensemble(nn.Module):
    """Ensemble of `MLPDynamics` with separate weights; its prediction is the members' mean.

    Args:
        dimensions: D, number of dimensions of the latent state.
        count: E, number of members; at least two.
        hidden: widths of the hidden layers of each member.
        dt: seconds per step.
        residual: f is a velocity (true) or the next state.
        noise: initial standard deviation of the process noise per root second.
        learn_noise: learn the noise from the data.

    Raises: ValueError for fewer than two members.
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
        """Return the members."""
        return [each for each in self.each if isinstance(each, MLPDynamics)]

    @property
    def weight(self) -> Tensor:
        """Return the last layers of all members, stacked, `[E (hidden + 1), D]`."""
        return torch.cat([each.weight for each in self.models])

    @property
    def variance(self) -> Tensor:
        """Return the mean variance `[D]` of the noise of one step."""
        return torch.stack([each.variance for each in self.models]).mean(0)

    def field(self, z: Tensor) -> Tensor:
        """Return the members' mean f(z)."""
        return torch.stack([each.field(z) for each in self.models]).mean(0)

    def step(self, z: Tensor, u: Tensor) -> Tensor:
        """Return the members' mean next state."""
        return self.members(z, u).mean(0)

    def members(self, z: Tensor, u: Tensor) -> Tensor:
        """Return the members' next states `[E, ..., D]`."""
        return torch.stack([each.step(z, u) for each in self.models])

    def features(self, z: Tensor) -> Tensor:
        """Return the features of all members, concatenated and divided by E, `[..., E (hidden + 1)]`.

        Their product with `weight` is the members' mean of f.
        """
        return torch.cat([each.features(z) for each in self.models], -1) / len(self.each)

    def jacobian(self, z: Tensor, u: Tensor) -> Tensor:
        """Return the members' mean derivative of `step` by z."""
        return torch.stack([each.jacobian(z, u) for each in self.models]).mean(0)
