"""Dynamics model of a fully observed state: no encoder or decoder."""

from typing import Any

import torch
from torch import Tensor, nn

from modules.networks.latent.action_encoders import AxisActions


class FullyObservedModel(nn.Module):
    """Latent model whose latent state is the observation, with inputs along known axes.

    Args:
        dynamics: model of the next state (`modules.networks.latent.dynamics.Dynamics`).
        axes: axis of the state that each part of the action acts on; null: part i acts on axis i.
        strength: input to its axis per unit of each part and second; null for 1.

    Raises: ValueError for an axis that the state does not have, and unless there is one strength per part.
    """

    observed = causal = True
    window = 1
    measures: tuple[str, ...] = ()
    dynamics: Any

    def __init__(self, dynamics: nn.Module, axes: list[int] | None = None, strength: list[float] | None = None):
        super().__init__()
        self.dynamics = dynamics
        dimensions = int(self.dynamics.dimensions)
        self.action_encoder = AxisActions(list(range(dimensions)) if axes is None else axes, dimensions)
        parts = len(self.action_encoder.matrix)
        if strength is not None and len(strength) != parts:
            raise ValueError(f"strength is {strength}; it needs one number for each of {parts} parts of the action.")
        self.action_encoder.matrix *= torch.ones(parts, 1) if strength is None else torch.tensor(strength).view(-1, 1)
        self.decoder = ObservedStateDecoder(dimensions)

    def encode(self, obs: Tensor, begins: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the observations as means and zeros as variances, `[T, N, D]`."""
        return obs, torch.zeros_like(obs)

    def decode(self, latent: Tensor) -> Tensor:
        """Return the expected observation."""
        return latent

    def init_bias_(self, obs: Tensor, counts: Tensor) -> None:
        """Do nothing: the decoder has no bias."""

    def update_schedules(self, progress: float) -> None:
        """Do nothing: the model has no schedules."""

    def draws(self, contiguous: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return an empty tuple: `loss` uses no random numbers."""
        return ()

    def loss(self, obs: Tensor, action: Tensor, contiguous: Tensor, draws: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the negative log-likelihood of the next state per step and dimension, the mean over ensemble members.

        With an observed state it equals the negative evidence lower bound, up to a constant.

        Args:
            obs: `[L+1, N, D]`.
            action: `[L, N, A]`.
            contiguous: `[L, N]`, steps that count.
            draws: empty.

        Returns: the loss, and no measures.
        """
        variance = self.dynamics.variance
        expected = self.dynamics.members(obs[:-1], self.action_encoder(action))
        surprise = 0.5 * ((obs[1:] - expected).square() / variance + variance.log()).mean(-1)
        return (surprise * contiguous).sum() / (contiguous.sum() * len(surprise)).clamp(min=1), obs.new_zeros(0)


class ObservedStateDecoder(nn.Module):
    """Decoder that returns the state with negligible noise.

    Args:
        dimensions: D, number of dimensions of the latent state.
    """

    def __init__(self, dimensions: int):
        super().__init__()
        self.dimensions = dimensions

    def sensitivity(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Return dy/dz `[..., D, D]`, and the variances of an observation `[..., D]`."""
        eye = torch.eye(self.dimensions, dtype=latent.dtype, device=latent.device)
        return eye.expand(*latent.shape, self.dimensions), torch.full_like(latent, 1e-8)
