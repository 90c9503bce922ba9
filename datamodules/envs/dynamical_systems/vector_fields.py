"""Vector fields of dynamical systems: dx/dt = f(x), two-dimensional unless stated otherwise.

A field is batched and pure, `[..., D]` to `[..., D]`. To add one, write its function and an entry in `SYSTEMS`.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.env_interface.device_constants import DeviceConstants

Field = Callable[[Tensor], Tensor]

FOURIER_FEATURES = 128
"""Number of cosines in a random field."""


class System(NamedTuple):
    """Vector field with its region of interest and its control.

    make: creates the field, from a seed that only random fields use.
    low, high: corners of the box of interest, `D` each; episodes start in it.
    control: largest input along each axis, in units of the field; 0 for axes without input.
    dt: seconds per step.
    """

    make: Callable[[int], Field]
    low: tuple[float, ...]
    high: tuple[float, ...]
    control: tuple[float, ...]
    dt: float = 0.05


def duffing(x: Tensor) -> Tensor:
    """Return the Duffing field: x'' = x - x^3 - 0.3 x'. Source: Guckenheimer and Holmes 1983, section 2.2."""
    position, velocity = x.unbind(-1)
    return torch.stack([velocity, position - position**3 - 0.3 * velocity], -1)


def van_der_pol(x: Tensor) -> Tensor:
    """Return the Van der Pol field: x'' = (1 - x^2) x' - x. Source: van der Pol 1926, doi:10.1080/14786442608564127."""
    position, velocity = x.unbind(-1)
    return torch.stack([velocity, (1 - position.square()) * velocity - position], -1)


def double_well(x: Tensor) -> Tensor:
    """Return the negative gradient of a potential with minima at (-1, 0) and (1, 0): (x - x^3, -y)."""
    first, second = x.unbind(-1)
    return torch.stack([first - first**3, -second], -1)


def limit_cycle(x: Tensor) -> Tensor:
    """Return a field with the unit circle as limit cycle, period 2 pi: r' = r (1 - r^2). The Hopf normal form."""
    first, second = x.unbind(-1)
    grow = 1 - x.square().sum(-1)
    return torch.stack([first * grow - second, second * grow + first], -1)


def double_limit_cycle(x: Tensor) -> Tensor:
    """Return an attracting unit circle whose rotation reverses at twice its radius: r' = r (1 - r)."""
    first, second = x.unbind(-1)
    radius = x.norm(dim=-1)
    grow, turn = 1 - radius, 2 - radius
    return torch.stack([first * grow - second * turn, second * grow + first * turn], -1)


def ring_attractor(x: Tensor) -> Tensor:
    """Return a field whose unit circle consists of fixed points that attract along the radius: r' = 2 (1 - r)."""
    radius = x.norm(dim=-1, keepdim=True).clamp(min=1e-3)
    return 2 * (1 - radius) * x / radius


def snowman(x: Tensor) -> Tensor:
    """Return two limit cycles, one above the other, of radius 1 and 0.6, counter-rotating and blended in between."""
    first, second = x.unbind(-1)
    below = limit_cycle(torch.stack([first, second + 0.8], -1))
    above = limit_cycle(torch.stack([-first, second - 0.8], -1) / 0.6) * 0.6
    above = torch.stack([-above[..., 0], above[..., 1]], -1)
    return torch.lerp(below, above, torch.sigmoid(8 * second).unsqueeze(-1))


def lorenz(x: Tensor) -> Tensor:
    """Return the Lorenz field at a tenth of its scale. Source: Lorenz 1963, eq. 25-27: sigma 10, rho 28, b 8/3."""
    first, second, third = x.unbind(-1)
    rates = (10 * (second - first), first * (28 - 10 * third) - second, 10 * first * second - 8 / 3 * third)
    return torch.stack(rates, -1)


def multi_attractor(seed: int) -> Field:
    """Return a smooth random field with several fixed points, bounded by an inward pull.

    Each component is a draw of a Gaussian process with kernel exp(-|d|^2 / (2 0.5^2)), by random Fourier features.

    Source: Rahimi and Recht 2007, "Random features for large-scale kernel machines", section 3.
    """
    generator = torch.Generator().manual_seed(seed)
    frequency = torch.randn(2, FOURIER_FEATURES, generator=generator) / 0.5
    phase = 2 * math.pi * torch.rand(FOURIER_FEATURES, generator=generator)
    weight = torch.randn(FOURIER_FEATURES, 2, generator=generator) * math.sqrt(2 / FOURIER_FEATURES)

    constants = DeviceConstants(frequency, phase, weight)

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
"""Systems by name. Van der Pol's control acts on its velocity only; control of its position makes it diverge."""
