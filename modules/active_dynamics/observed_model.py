"""The model of a system whose state is observed: nothing to encode, nothing to decode, dynamics to learn."""

from typing import Any

import torch
from torch import Tensor, nn

from modules.networks.latent.action_encoders import Pushed


class ObservedModel(nn.Module):
    """A latent model whose latent state is the observation, and whose inputs push known axes of it.

    Args:
        dynamics: how the state goes on (`modules.networks.latent.dynamics.Dynamics`).
        axes: which axis of the state each part of the action pushes; null for each its own.
        strength: what a unit of each part adds to its axis in a second; null for 1.

    Raises: ValueError for an axis that the state does not have, and for strengths that are not one a part.
    """

    observed = causal = True
    window = 1
    measures: tuple[str, ...] = ()
    dynamics: Any

    def __init__(self, dynamics: nn.Module, axes: list[int] | None = None, strength: list[float] | None = None):
        super().__init__()
        self.dynamics = dynamics
        dimensions = int(self.dynamics.dimensions)
        self.action_encoder = Pushed(list(range(dimensions)) if axes is None else axes, dimensions)
        parts = len(self.action_encoder.matrix)
        if strength is not None and len(strength) != parts:
            raise ValueError(f"strength is {strength}; it needs one number for each of {parts} parts of the action.")
        self.action_encoder.matrix *= torch.ones(parts, 1) if strength is None else torch.tensor(strength).view(-1, 1)
        self.decoder = Shown(dimensions)

    def encode(self, obs: Tensor, begins: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Means and variances `[T, N, D]` of the state, from observations of the same shape: known without doubt."""
        return obs, torch.zeros_like(obs)

    def decode(self, latent: Tensor) -> Tensor:
        """The observation that is to be expected."""
        return latent

    def start_(self, obs: Tensor, counts: Tensor) -> None:
        """Nothing to set."""

    def schedule_(self, progress: float) -> None:
        """Nothing changes over a run."""

    def draws(self, joined: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """`loss` draws nothing."""
        return ()

    def loss(self, obs: Tensor, action: Tensor, joined: Tensor, draws: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Negative log-likelihood of the next state, a step and dimension; the mean over an ensemble's members.

        With nothing to encode or decode this is what the evidence lower bound amounts to, up to a constant.

        Args:
            obs: `[L+1, N, D]`.   action: `[L, N, A]`.   joined: `[L, N]`, steps that count.   draws: none.

        Returns: the loss, and no measures.
        """
        variance = self.dynamics.variance
        expected = self.dynamics.members(obs[:-1], self.action_encoder(action))
        surprise = 0.5 * ((obs[1:] - expected).square() / variance + variance.log()).mean(-1)
        return (surprise * joined).sum() / (joined.sum() * len(surprise)).clamp(min=1), obs.new_zeros(0)


class Shown(nn.Module):
    """A decoder that shows the state with next to no noise.

    Args:
        dimensions: D.
    """

    def __init__(self, dimensions: int):
        super().__init__()
        self.dimensions = dimensions

    def sensitivity(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """dy/dz `[..., D, D]`, and the variances of an observation `[..., D]`."""
        eye = torch.eye(self.dimensions, dtype=latent.dtype, device=latent.device)
        return eye.expand(*latent.shape, self.dimensions), torch.full_like(latent, 1e-8)
