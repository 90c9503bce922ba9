"""State estimator of an acting agent: predict the belief with the dynamics, correct it with each observation."""

from typing import Any

import torch
from torch import Tensor

from datamodules.core.types import State
from modules.exploration.policies import Belief


class StateEstimator:
    """Filter of the belief over a latent state.

    The correction averages the predicted state and the encoder's estimate from the newest observation, weighted by
    their variances (a Kalman gain with the encoder as sensor). An encoder with a `window` above 1 gets the newest
    `window` observations of the episode.

    Args:
        model: a latent model.
        size: number of elements of an observation.
    """

    def __init__(self, model: Any, size: int):
        self.model, self.size = model, size

    def initial_state(self, batch: int, device: torch.device) -> State:
        """Return the predicted mean and variance `[B, D]`, and the buffer of observations of a windowed encoder."""
        blank = torch.zeros(batch, int(self.model.dynamics.dimensions), device=device)
        state = {"mean": blank, "variance": blank.clone()}
        if self.model.window > 1:
            state["seen"] = torch.zeros(batch, self.model.window, self.size, device=device)
            state["age"] = torch.zeros(batch, dtype=torch.int64, device=device)
        return state

    def correct(self, obs: Tensor, state: State, episode_start: Tensor) -> tuple[Belief, State]:
        """Return the belief after observations `[B, size]`, and the buffer; an episode starts from them alone."""
        seen, kept = self._encoded(obs, state, episode_start)
        if self.model.observed:
            return seen, kept
        share = state["variance"] / (state["variance"] + seen.variance)
        share = torch.where(episode_start.unsqueeze(1), 1.0, share)
        return Belief(torch.lerp(state["mean"], seen.mean, share), share * seen.variance), kept

    def predict(self, belief: Belief, control: Tensor) -> State:
        """Return the predicted state after a step with encoded inputs `[B, D]`."""
        dynamics = self.model.dynamics
        return {"mean": dynamics.step(belief.mean, control), "variance": belief.variance + dynamics.variance}

    def _encoded(self, obs: Tensor, state: State, episode_start: Tensor) -> tuple[Belief, State]:
        if self.model.window == 1:
            return Belief(*(part[0] for part in self.model.encode(obs.unsqueeze(0)))), {}
        window = self.model.window
        age = state["age"].masked_fill(episode_start, 0).add(1).clamp(max=window)
        seen = torch.cat([state["seen"][:, 1:], obs.unsqueeze(1)], dim=1)
        begins = torch.arange(window, device=obs.device).unsqueeze(1) <= window - age
        mean, variance = self.model.encode(seen.transpose(0, 1), begins)
        return Belief(mean[-1], variance[-1]), {"seen": seen, "age": age}
