"""UniformPolicy: actions drawn uniformly, whatever is observed."""

import torch
from torch import Tensor, nn

from datamodules.core.types import PolicyInput, PolicyOutput, SpaceSpec, State


class UniformPolicy(nn.Module):
    """Policy that draws every part of an action uniformly from the allowed choices, or from the range.

    Args:
        spaces: observation and action space of an agent.
    """

    low: Tensor
    high: Tensor

    def __init__(self, spaces: SpaceSpec):
        super().__init__()
        self.action_type, self.sizes = spaces["action_type"], spaces["action_sizes"]
        self.register_buffer("low", torch.tensor(spaces["action_low"]))
        self.register_buffer("high", torch.tensor(spaces["action_high"]))

    def initial_state(self, batch: int) -> State:
        """Return `{}`: the policy has no state."""
        return {}

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw uniforms in [0, 1), one for each choice or continuous part, `[*shape, parts]`."""
        parts = sum(self.sizes) or len(self.low)
        return torch.rand((*shape, parts), generator=generator, device=generator.device)

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Return uniform actions; without noise the first choice or the middle of the range.

        Args:
            inputs: policy input; only its mask and its number of rows are used.
            noise: from `noise`, `[B, parts]`.   greedy: not used.
        """
        if noise is None:
            noise = torch.full(
                (len(inputs.episode_start), sum(self.sizes) or len(self.low)), 0.5, device=self.low.device
            )
        if self.action_type == "continuous":
            return PolicyOutput(self.low + (self.high - self.low) * noise, {}), {}
        if inputs.action_mask is not None:
            noise = noise.masked_fill(~inputs.action_mask, -1.0)
        parts = torch.stack([part.argmax(1) for part in noise.split(self.sizes, 1)], 1)
        return PolicyOutput(parts[:, 0] if self.action_type == "discrete" else parts, {}), {}
