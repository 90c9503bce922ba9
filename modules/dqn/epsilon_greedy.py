"""Epsilon-greedy exploration of DQN and PQN."""

import torch
from torch import Tensor, nn

from modules.base.checks import check_values
from modules.functional.sampling import epsilon_greedy
from modules.functional.schedules import schedule_value


class EpsilonGreedy(nn.Module):
    """Epsilon-greedy policy; epsilon decays linearly in environment steps.

    Args:
        actions: number of actions.
        start: epsilon at the start.
        end: epsilon from `steps` environment steps on.
        steps: environment steps of the decay.

    Attributes:
        epsilon: current probability of a random action, 0-d, which a captured step reads.

    Raises: ConfigurationError for a probability outside [0, 1], and if `steps` is not positive.
    """

    epsilon: Tensor

    def __init__(self, actions: int, start: float, end: float, steps: int) -> None:
        super().__init__()
        check_values(epsilon_start=start, epsilon_end=end, epsilon_decay_steps=steps)
        self.actions, self.start, self.end, self.steps = actions, start, end, steps
        self.register_buffer("epsilon", torch.tensor(start), persistent=False)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw uniforms `[*shape, actions + 1]`: one per action for the random action, one to compare with epsilon."""
        return torch.rand((*shape, self.actions + 1), generator=generator, device=generator.device)

    def forward(self, best: Tensor, noise: Tensor, mask: Tensor | None) -> Tensor:
        """Return actions `[B]`, given the greedy ones `[B]`."""
        return epsilon_greedy(best, self.epsilon, noise, mask)

    def update_(self, env_steps: int, learning_starts: int = 0) -> None:
        """Set epsilon for the environment steps taken; 1 until learning starts."""
        progress = env_steps / self.steps
        decayed = schedule_value("linear", self.start, progress, self.end)
        self.epsilon.fill_(decayed if env_steps >= learning_starts else 1.0)
