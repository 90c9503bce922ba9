"""Options over a finite set of actions: categorical heads, critics with a value for each option and action."""

import math
from collections.abc import Sequence
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.types import Spaces, UsageError
from modules.functional.options import MASKED, categorical_divergence
from modules.functional.soft import expected_soft_value
from modules.networks.option_heads import OnTorso, OptionHead, Torso
from modules.options.continuous import MakeCritic
from modules.options.scripted import OptionPolicy, ScriptedOptions


class DiscreteOptions(nn.Module):
    """K categorical policies on one torso, and twin critics Q(s, w, a) with a number for each option and action.

    Expectations over actions are exact sums. A scripted option must not depend on the actor: it is a policy that is
    certain.

    Args:
        spaces: of the environment.
        network: makes the actor's torso.   critic: makes the twin critics.   options: K.
        scripted: hand-written options, or None.
        entropy: the target, as a part of that of an even choice; None for 0.3.

    Raises: UsageError for a script that uses the actor.
    """

    learned: Tensor

    def __init__(
        self,
        spaces: Spaces,
        network: Torso,
        critic: MakeCritic,
        options: int,
        scripted: Sequence[OptionPolicy] | None = None,
        entropy: float | None = None,
    ):
        super().__init__()
        if scripted is not None and any(policy.uses_actor for policy in scripted):
            raise UsageError("A scripted option with discrete actions cannot use the actor: say uses_actor = False.")
        self.scripted = None if scripted is None else ScriptedOptions(scripted)
        self.actions, self.options = spaces["action_sizes"][0], options
        self.register_buffer("learned", torch.full((options,), scripted is None), persistent=False)
        head = partial(OptionHead, options=options, outputs=self.actions)
        self.actor = OnTorso(network, spaces["obs_shape"], head)
        self.critics = critic(spaces["obs_shape"], 0, options * self.actions)
        self.targets = deepcopy(self.critics).requires_grad_(False)
        self.target_entropy = (0.3 if entropy is None else entropy) * math.log(self.actions)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Standard Gumbel noise for a choice at each index of `shape`, `[*shape, actions]`."""
        return (
            torch.empty((*shape, self.actions), device=generator.device).exponential_(generator=generator).log_().neg_()
        )

    def act(self, obs: Tensor, option: Tensor, age: Tensor, noise: Tensor | None, mask: Tensor | None) -> Tensor:
        """Action `[B]` of each row's option; the mode where there is no noise."""
        logits = self.log_probs(obs, age.unsqueeze(1).expand(-1, self.options), mask)
        logits = logits.gather(1, option.view(-1, 1, 1).expand(-1, 1, self.actions)).squeeze(1)
        return (logits if noise is None else logits + noise).argmax(-1)

    def random(self, noise: Tensor, mask: Tensor | None) -> Tensor:
        """An action that is uniform over those allowed, from Gumbel noise."""
        return (noise if mask is None else noise.masked_fill(~mask, MASKED)).argmax(-1)

    def log_probs(self, obs: Tensor, age: Tensor, mask: Tensor | None) -> Tensor:
        """Log-probabilities `[N, K, actions]`."""
        logits = self.actor(obs)
        if self.scripted is not None:
            certain = self.scripted.action(obs, age, logits.argmax(-1))
            logits = torch.where(F.one_hot(certain, self.actions).bool(), 0.0, MASKED)
        if mask is not None:
            logits = logits.masked_fill(~mask.unsqueeze(1), MASKED)
        return F.log_softmax(logits, -1)

    def value(
        self, critics: nn.Module, obs: Tensor, age: Tensor, noise: Tensor, alpha: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """V(s, w) = sum_a pi(a | s, w) (min_i Q_i(s, w, a) - alpha log pi), and sum_a pi log pi, `[N, K]` each."""
        log_probs = self.log_probs(obs, age, mask)
        q = critics(obs).unflatten(-1, (self.options, self.actions))
        alpha = alpha if self.scripted is None else torch.zeros_like(alpha)
        return expected_soft_value(q[0], q[1], log_probs, alpha), (log_probs.exp() * log_probs).sum(-1)

    def q(self, obs: Tensor, action: Tensor) -> Tensor:
        """Q_i(s, w, a) `[2, N, K]` of actions `[N]`."""
        q = self.critics(obs).unflatten(-1, (self.options, self.actions))
        index = action.long().view(1, -1, 1, 1).expand(len(q), -1, self.options, 1)
        return q.gather(-1, index).squeeze(-1)

    def divergence(self, obs: Tensor) -> Tensor:
        """Mean KL between the policies of two options, 0-d."""
        age = torch.zeros(len(obs), self.options, dtype=torch.int64, device=obs.device)
        return categorical_divergence(self.log_probs(obs, age, None))
