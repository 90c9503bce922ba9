"""What an action does to the latent state: inputs `[..., D]` of actions `[..., A]`, which dynamics add to f.

No action, no input: what happens by itself is f's to say, which vector fields are compared by.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from modules.networks.base import silu_layers


class Pushed(nn.Module):
    """Actions as inputs to known axes of the state: B u, where B is made of columns of the identity.

    Args:
        axes: that the parts of an action push.
        dimensions: D, of the latent state.

    Raises: ValueError for an axis that the state does not have.
    """

    matrix: Tensor

    def __init__(self, axes: list[int], dimensions: int):
        super().__init__()
        if not axes or not all(0 <= axis < dimensions for axis in axes):
            raise ValueError(f"axes is {axes}; a state of {dimensions} dimensions has axes 0 to {dimensions - 1}.")
        self.register_buffer("matrix", torch.eye(dimensions)[axes], persistent=False)

    def forward(self, action: Tensor) -> Tensor:
        """`[..., D]` of `[..., A]`."""
        return action @ self.matrix


class LinearActions(nn.Module):
    """B u with a matrix that is learned.

    Args:
        actions: A, parts of an action.
        dimensions: D, of the latent state.

    Raises: ValueError if a number is not positive.
    """

    def __init__(self, actions: int, dimensions: int = 2):
        super().__init__()
        _check(self, actions=actions, dimensions=dimensions)
        self.linear = nn.Linear(actions, dimensions, bias=False)

    def forward(self, action: Tensor) -> Tensor:
        """`[..., D]` of `[..., A]`."""
        return self.linear(action)


class MLPActions(nn.Module):
    """g(u) - g(0), g a network with SiLU units: what an action does need not be in proportion to it.

    Args:
        actions: A, parts of an action.
        dimensions: D, of the latent state.
        hidden: widths of the layers; none leaves B u.

    Raises: ValueError if a number is not positive.
    """

    def __init__(self, actions: int, dimensions: int = 2, hidden: Sequence[int] = (32,)):
        super().__init__()
        _check(self, actions=actions, dimensions=dimensions)
        widths = (actions, *hidden)
        self.body = nn.Sequential(*silu_layers(widths), nn.Linear(widths[-1], dimensions, bias=False))

    def forward(self, action: Tensor) -> Tensor:
        """`[..., D]` of `[..., A]`."""
        return self.body(action) - self.body(action.new_zeros(action.shape[-1]))


class Unchanged(nn.Module):
    """The action as it is, for dynamics that know what to do with it."""

    def forward(self, action: Tensor) -> Tensor:
        """`[..., A]`."""
        return action


class StateDependent(nn.Module):
    """Dynamics whose input depends on where they are: z' = z + dt (f(z) + B(z) u), B a network; use with `Unchanged`.

    It is a `modules.networks.latent.dynamics.Dynamics`; its `field` is f, without input.

    Args:
        dynamics: f.
        actions: A, parts of an action.
        hidden: widths of B's layers; none leaves B linear in the state.

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
        """Variance `[D]` of one step's noise."""
        return self.dynamics.variance

    def input(self, z: Tensor, u: Tensor) -> Tensor:
        """B(z) u `[..., D]` of actions `[..., A]`."""
        matrix = self.body(z).unflatten(-1, (self.dimensions, self.actions))
        return (matrix @ u.unsqueeze(-1)).squeeze(-1)

    def field(self, z: Tensor) -> Tensor:
        """f(z)."""
        return self.dynamics.field(z)

    def step(self, z: Tensor, u: Tensor) -> Tensor:
        """The mean of the next state, of actions `[..., A]`."""
        return self.dynamics.step(z, self.input(z, u))

    def features(self, z: Tensor) -> Tensor:
        """What f is linear in."""
        return self.dynamics.features(z)

    def jacobian(self, z: Tensor, u: Tensor) -> Tensor:
        """Derivative of `step` by z, `[..., D, D]`: f's, and dt d(B(z) u) / dz."""
        rows, drive = z.reshape(-1, self.dimensions), u.expand(*z.shape[:-1], self.actions).reshape(-1, self.actions)
        slope = vmap(jacrev(self.input))(rows, drive).view(*z.shape, self.dimensions)
        return self.dynamics.jacobian(z, self.input(z, u)) + self.dt * slope

    def members(self, z: Tensor, u: Tensor) -> Tensor:
        """Next states of every model."""
        return self.dynamics.members(z, self.input(z, u))


def _check(part: nn.Module, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{type(part).__name__}: {name} is {size}; it must be at least 1.")
