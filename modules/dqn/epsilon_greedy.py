"""Epsilon-greedy exploration, as DQN and PQN share it."""

import torch
from torch import Tensor, nn

from modules.base.checks import check_values
from modules.functional.sampling import epsilon_greedy
from modules.functional.schedules import scheduled


class EpsilonGreedy(nn.Module):
    """Takes the best action, or with a probability that falls linearly in environment steps any allowed one.

    Args:
        actions: how many there are.
        start, end: probability at first, and from `steps` environment steps on.

    Attributes:
        now: the probability, 0-d, where a captured step reads it.

    Raises: UsageError for a probability outside [0, 1], and if `steps` is not positive.
    """

    now: Tensor

    def __init__(self, actions: int, start: float, end: float, steps: int) -> None:
        super().__init__()
        check_values(epsilon_start=start, epsilon=end, epsilon_steps=steps)
        self.actions, self.start, self.end, self.steps = actions, start, end, steps
        self.register_buffer("now", torch.tensor(start), persistent=False)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Uniforms `[*shape, actions + 1]`: a lot for every action, and whether to draw one."""
        return torch.rand((*shape, self.actions + 1), generator=generator, device=generator.device)

    def forward(self, best: Tensor, noise: Tensor, mask: Tensor | None) -> Tensor:
        """Actions `[B]` for the best ones `[B]`."""
        return epsilon_greedy(best, self.now, noise, mask)

    def set_(self, env_steps: int, learning_starts: int = 0) -> None:
        """To the probability after so many environment steps; 1 until learning starts."""
        share = env_steps / self.steps
        self.now.fill_(scheduled("linear", self.start, share, self.end) if env_steps >= learning_starts else 1.0)
