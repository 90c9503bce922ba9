"""Vector fields that dynamical systems are made of: dx/dt = f(x), in the plane unless said otherwise.

A field is batched and pure, `[..., D]` to `[..., D]`. To add one: its function, and a line in `SYSTEMS`.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Field = Callable[[Tensor], Tensor]

FOURIER_FEATURES = 128
"""Cosines that a random field is the sum of."""


class System(NamedTuple):
    """A field, where it is worth knowing, and how it is pushed.

    make: the field, from a seed that matters to random ones only.
    low, high: corners of the box of interest, `D` each; episodes begin in it.
    control: largest input along each axis, in units of the field; 0 where none acts.
    dt: seconds a step.
    """

    make: Callable[[int], Field]
    low: tuple[float, ...]
    high: tuple[float, ...]
    control: tuple[float, ...]
    dt: float = 0.05


class Constants:
    """Tensors that are copied to a device once, so that a captured step finds them there."""

    def __init__(self, *tensors: Tensor):
        self._copies = {torch.device("cpu"): tensors}

    def on(self, device: torch.device) -> tuple[Tensor, ...]:
        """The tensors on a device."""
        if device not in self._copies:
            self._copies[device] = tuple(tensor.to(device) for tensor in self._copies[torch.device("cpu")])
        return self._copies[device]


def duffing(x: Tensor) -> Tensor:
    """Two wells and friction: x'' = x - x^3 - 0.3 x'. Source: Guckenheimer and Holmes 1983, section 2.2."""
    position, velocity = x.unbind(-1)
    return torch.stack([velocity, position - position**3 - 0.3 * velocity], -1)


def van_der_pol(x: Tensor) -> Tensor:
    """A relaxation oscillator: x'' = (1 - x^2) x' - x. Source: van der Pol 1926, doi:10.1080/14786442608564127."""
    position, velocity = x.unbind(-1)
    return torch.stack([velocity, (1 - position.square()) * velocity - position], -1)


def double_well(x: Tensor) -> Tensor:
    """Down the gradient of a potential with minima at (-1, 0) and (1, 0): (x - x^3, -y)."""
    first, second = x.unbind(-1)
    return torch.stack([first - first**3, -second], -1)


def limit_cycle(x: Tensor) -> Tensor:
    """Round the unit circle once in 2 pi, which attracts: r' = r (1 - r^2). The Hopf normal form."""
    first, second = x.unbind(-1)
    grow = 1 - x.square().sum(-1)
    return torch.stack([first * grow - second, second * grow + first], -1)


def double_limit_cycle(x: Tensor) -> Tensor:
    """An attracting unit circle, and a sense of rotation that turns round at twice its radius: r' = r (1 - r)."""
    first, second = x.unbind(-1)
    radius = x.norm(dim=-1)
    grow, turn = 1 - radius, 2 - radius
    return torch.stack([first * grow - second * turn, second * grow + first * turn], -1)


def ring_attractor(x: Tensor) -> Tensor:
    """Every point of the unit circle is at rest and attracts along its radius: r' = 2 (1 - r)."""
    radius = x.norm(dim=-1, keepdim=True).clamp(min=1e-3)
    return 2 * (1 - radius) * x / radius


def snowman(x: Tensor) -> Tensor:
    """Two limit cycles one above the other, of radius 1 and 0.6, that turn against each other and blend in between."""
    first, second = x.unbind(-1)
    below = limit_cycle(torch.stack([first, second + 0.8], -1))
    above = limit_cycle(torch.stack([-first, second - 0.8], -1) / 0.6) * 0.6
    above = torch.stack([-above[..., 0], above[..., 1]], -1)
    return torch.lerp(below, above, torch.sigmoid(8 * second).unsqueeze(-1))


def lorenz(x: Tensor) -> Tensor:
    """Chaos in three dimensions, a tenth of the usual size. Source: Lorenz 1963, eq. 25-27: sigma 10, rho 28, b 8/3."""
    first, second, third = x.unbind(-1)
    rates = (10 * (second - first), first * (28 - 10 * third) - second, 10 * first * second - 8 / 3 * third)
    return torch.stack(rates, -1)


def multi_attractor(seed: int) -> Field:
    """A smooth random field with many points of rest, held together by an inward pull.

    Each component is a draw of a Gaussian process with kernel exp(-|d|^2 / (2 0.5^2)), by random Fourier features.

    Source: Rahimi and Recht 2007, "Random features for large-scale kernel machines", section 3.
    """
    generator = torch.Generator().manual_seed(seed)
    frequency = torch.randn(2, FOURIER_FEATURES, generator=generator) / 0.5
    phase = 2 * math.pi * torch.rand(FOURIER_FEATURES, generator=generator)
    weight = torch.randn(FOURIER_FEATURES, 2, generator=generator) * math.sqrt(2 / FOURIER_FEATURES)

    constants = Constants(frequency, phase, weight)

    def field(x: Tensor) -> Tensor:
        frequency, phase, weight = (each.to(x.dtype) for each in constants.on(x.device))
        return torch.cos(x @ frequency + phase) @ weight - 0.3 * x * x.abs()

    return field


SYSTEMS: dict[str, System] = {
    "duffing": System(lambda _: duffing, (-2.0, -2.0), (2.0, 2.0), (1.0, 1.0)),
    "van_der_pol": System(lambda _: van_der_pol, (-3.0, -4.0), (3.0, 4.0), (0.0, 2.0)),
    "double_well": System(lambda _: double_well, (-2.0, -2.0), (2.0, 2.0), (1.0, 1.0)),
    "limit_cycle": System(lambda _: limit_cycle, (-1.6, -1.6), (1.6, 1.6), (1.0, 1.0)),
    "double_limit_cycle": System(lambda _: double_limit_cycle, (-2.5, -2.5), (2.5, 2.5), (1.0, 1.0)),
    "ring_attractor": System(lambda _: ring_attractor, (-2.0, -2.0), (2.0, 2.0), (1.0, 1.0)),
    "snowman": System(lambda _: snowman, (-1.6, -2.0), (1.6, 2.0), (1.0, 1.0)),
    "multi_attractor": System(multi_attractor, (-2.0, -2.0), (2.0, 2.0), (1.0, 1.0)),
    "lorenz": System(lambda _: lorenz, (-2.5, -3.0, 0.0), (2.5, 3.0, 5.0), (2.0, 2.0, 2.0), dt=0.01),
}
"""Systems by name. Van der Pol's is pushed along its velocity only: pushed along its position it runs away."""
