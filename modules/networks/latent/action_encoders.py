"""Action encoders: map actions `[..., A]` to inputs `[..., D]` of the latent state, which dynamics add to f.

The zero action has zero input, so that f is the autonomous dynamics, by which vector fields are compared.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from modules.networks.base import silu_layers


class AxisActions(nn.Module):
    """Inputs along known axes of the state: B u, with columns of the identity as B.

    Args:
        axes: axis of the state that each part of the action acts on.
        dimensions: D, number of dimensions of the latent state.

    Raises: ValueError for an axis that the state does not have.
    """

    matrix: Tensor

    def __init__(self, axes: list[int], dimensions: int):
        super().__init__()
        if not axes or not all(0 <= axis < dimensions for axis in axes):
            raise ValueError(f"axes is {axes}; a state of {dimensions} dimensions has axes 0 to {dimensions - 1}.")
        self.register_buffer("matrix", torch.eye(dimensions)[axes], persistent=False)

    def forward(self, action: Tensor) -> Tensor:
        """Return inputs `[..., D]` of actions `[..., A]`."""
        return action @ self.matrix


class LinearActions(nn.Module):
    """Linear inputs B u with a learned matrix.

    Args:
        actions: A, parts of an action.
        dimensions: D, number of dimensions of the latent state.

    Raises: ValueError if a number is not positive.
    """

    def __init__(self, actions: int, dimensions: int = 2):
        super().__init__()
        _check(self, actions=actions, dimensions=dimensions)
        self.linear = nn.Linear(actions, dimensions, bias=False)

    def forward(self, action: Tensor) -> Tensor:
        """Return inputs `[..., D]` of actions `[..., A]`."""
        return self.linear(action)


class MLPActions(nn.Module):
    """Nonlinear inputs g(u) - g(0), g an MLP with SiLU units.

    Args:
        actions: A, parts of an action.
        dimensions: D, number of dimensions of the latent state.
        hidden: widths of the layers; an empty list leaves B u.

    Raises: ValueError if a number is not positive.
    """

    def __init__(self, actions: int, dimensions: int = 2, hidden: Sequence[int] = (32,)):
        super().__init__()
        _check(self, actions=actions, dimensions=dimensions)
        widths = (actions, *hidden)
        self.body = nn.Sequential(*silu_layers(widths), nn.Linear(widths[-1], dimensions, bias=False))

    def forward(self, action: Tensor) -> Tensor:
        """Return inputs `[..., D]` of actions `[..., A]`."""
        return self.body(action) - self.body(action.new_zeros(action.shape[-1]))


class IdentityActions(nn.Module):
    """Pass the action on unchanged, for dynamics that encode it themselves."""

    def forward(self, action: Tensor) -> Tensor:
        """Return the action `[..., A]` unchanged."""
        return action


class StateDependent(nn.Module):
    """Control-affine dynamics z' = z + dt (f(z) + B(z) u), B a network; use with `IdentityActions`.

    It is a `modules.networks.latent.dynamics.Dynamics`; its `field` is f, without input.

    Args:
        dynamics: f.
        actions: A, parts of an action.
        hidden: widths of B's layers; an empty list leaves B linear in the state.

    Raises: ValueError if a number is not positive.
    """

    dynamics: Any

    def __init__(self, dynamics: nn.Module, actions: int, hidden: Sequence[int] = (32,)):
        super().__init__()
        _check(self, actions=actions)
        self.dynamics, self.actions = dynamics, actions
        self.dimensions, self.dt, self.gain = self.dynamics.dimensions, self.dynamics.dt, self.dynamics.gain
        self.residual = getattr(self.dynamics, "residual", False)
        widths = (self.dimensions, *hidden)
        self.body = nn.Sequential(*silu_layers(widths), nn.Linear(widths[-1], self.dimensions * actions))

    @property
    def variance(self) -> Tensor:
        """Return the variance `[D]` of the noise of one step."""
        return self.dynamics.variance

    def input(self, z: Tensor, u: Tensor) -> Tensor:
        """Return B(z) u `[..., D]` of actions `[..., A]`."""
        matrix = self.body(z).unflatten(-1, (self.dimensions, self.actions))
        return (matrix @ u.unsqueeze(-1)).squeeze(-1)

    def field(self, z: Tensor) -> Tensor:
        """Return f(z)."""
        return self.dynamics.field(z)

    def step(self, z: Tensor, u: Tensor) -> Tensor:
        """Return the mean of the next state, given actions `[..., A]`."""
        return self.dynamics.step(z, self.input(z, u))

    def features(self, z: Tensor) -> Tensor:
        """Return the features that f is linear in."""
        return self.dynamics.features(z)

    def jacobian(self, z: Tensor, u: Tensor) -> Tensor:
        """Return the derivative of `step` by z, `[..., D, D]`: that of f, and dt d(B(z) u) / dz."""
        rows, drive = z.reshape(-1, self.dimensions), u.expand(*z.shape[:-1], self.actions).reshape(-1, self.actions)
        slope = vmap(jacrev(self.input))(rows, drive).view(*z.shape, self.dimensions)
        return self.dynamics.jacobian(z, self.input(z, u)) + self.dt * slope

    def members(self, z: Tensor, u: Tensor) -> Tensor:
        """Return the next states of every model."""
        return self.dynamics.members(z, self.input(z, u))


def _check(part: nn.Module, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{type(part).__name__}: {name} is {size}; it must be at least 1.")
