"""Where an agent believes that it is: it predicts where it will be, and corrects that with what it sees there."""

from typing import Any

import torch
from torch import Tensor

from datamodules.core.types import State
from modules.exploration.policies import Belief


class Tracker:
    """Keeps a belief over a latent state from one observation to the next.

    The correction weighs what was expected against what the encoder says of the newest observation, by their variances
    (a Kalman gain with the encoder as the sensor). An encoder that remembers is given the newest `window` observations
    of the episode.

    Args:
        model: a latent model.   size: numbers in an observation.
    """

    def __init__(self, model: Any, size: int):
        self.model, self.size = model, size

    def initial_state(self, batch: int, device: torch.device) -> State:
        """What is expected, with what variance, `[B, D]`; for an encoder that remembers, what it is to be shown."""
        blank = torch.zeros(batch, int(self.model.dynamics.dimensions), device=device)
        state = {"mean": blank, "variance": blank.clone()}
        if self.model.window > 1:
            state["seen"] = torch.zeros(batch, self.model.window, self.size, device=device)
            state["age"] = torch.zeros(batch, dtype=torch.int64, device=device)
        return state

    def correct(self, obs: Tensor, state: State, reset: Tensor) -> tuple[Belief, State]:
        """The belief at observations `[B, size]`, and what to keep of them; where an episode begins that alone."""
        seen, kept = self._encoded(obs, state, reset)
        if self.model.observed:
            return seen, kept
        share = state["variance"] / (state["variance"] + seen.variance)
        share = torch.where(reset.unsqueeze(1), 1.0, share)
        return Belief(torch.lerp(state["mean"], seen.mean, share), share * seen.variance), kept

    def predict(self, belief: Belief, control: Tensor) -> State:
        """What to expect after a step with encoded inputs `[B, D]`."""
        dynamics = self.model.dynamics
        return {"mean": dynamics.step(belief.mean, control), "variance": belief.variance + dynamics.variance}

    def _encoded(self, obs: Tensor, state: State, reset: Tensor) -> tuple[Belief, State]:
        if self.model.window == 1:
            return Belief(*(part[0] for part in self.model.encode(obs.unsqueeze(0)))), {}
        window = self.model.window
        age = state["age"].masked_fill(reset, 0).add(1).clamp(max=window)
        seen = torch.cat([state["seen"][:, 1:], obs.unsqueeze(1)], dim=1)
        begins = torch.arange(window, device=obs.device).unsqueeze(1) <= window - age
        mean, variance = self.model.encode(seen.transpose(0, 1), begins)
        return Belief(mean[-1], variance[-1]), {"seen": seen, "age": age}
