"""Options whose actions are continuous: squashed Gaussian heads, and critics that read the action."""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from datamodules.types import Spaces, UsageError
from modules.functional.options import gaussian_divergence
from modules.functional.soft import soft_value
from modules.networks.option_heads import OnTorso, Torso
from modules.networks.squashed import SquashedGaussianHead
from modules.options.scripted import OptionPolicy, ScriptedOptions

MakeCritic = Callable[[tuple[int, ...], int, int], nn.Module]
"""Makes twin critics (`modules.networks.twin.Critic`) from the shape of an observation, action parts and outputs."""


class ContinuousOptions(nn.Module):
    """K squashed Gaussian policies on one torso, and twin critics Q(s, w, a) with a column an option.

    Inside, an action lies in (-1, 1); densities and the entropy's target are of that action, whatever the environment's
    bounds. Scripts replace or scale the heads' actions, in the environment's units.

    Args:
        spaces: of the environment; the bounds must be finite.
        network: makes the actor's torso.   critic: makes the twin critics.   options: K.
        scripted: hand-written options, or None.   entropy: the target for each part, in nats; None for -1.

    Raises: UsageError for bounds that are not finite.
    """

    learned: Tensor
    middle: Tensor
    reach: Tensor

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
        low, high = torch.tensor(spaces["action_low"]), torch.tensor(spaces["action_high"])
        if not (torch.isfinite(low).all() and torch.isfinite(high).all()):
            raise UsageError("The action space has no finite bounds, which a squashed policy needs: rescale it.")
        self.register_buffer("middle", (low + high) / 2, persistent=False)
        self.register_buffer("reach", (high - low) / 2, persistent=False)
        self.scripted = None if scripted is None else ScriptedOptions(scripted)
        learned = [True] * options if scripted is None else [policy.uses_actor for policy in scripted]
        self.register_buffer("learned", torch.tensor(learned), persistent=False)
        self.parts, self.options = len(low), options
        head = partial(SquashedGaussianHead, dims=self.parts, options=options)
        self.actor = OnTorso(network, spaces["obs_shape"], head)
        self.critics = critic(spaces["obs_shape"], self.parts, options)
        self.targets = deepcopy(self.critics).requires_grad_(False)
        self.target_entropy = (-1.0 if entropy is None else entropy) * self.parts

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Standard normal noise for an action at each index of `shape`, `[*shape, parts]`."""
        return torch.randn((*shape, self.parts), generator=generator, device=generator.device)

    def act(self, obs: Tensor, option: Tensor, age: Tensor, noise: Tensor | None, mask: Tensor | None) -> Tensor:
        """Action `[B, parts]` of each row's option, in the environment's units; the mode where there is no noise."""
        policy = self.actor(obs)
        squashed = policy.mode if noise is None else policy.sample(noise.unsqueeze(1))
        action = self.played(obs, age.unsqueeze(1).expand(-1, self.options), self.unsquashed(squashed))
        index = option.view(-1, 1, 1).expand(-1, 1, self.parts)
        return action.gather(1, index).squeeze(1)

    def random(self, noise: Tensor, mask: Tensor | None) -> Tensor:
        """An action that is uniform between the bounds, from standard normal noise."""
        return self.unsquashed(torch.erf(noise * math.sqrt(0.5)))

    def value(
        self, critics: nn.Module, obs: Tensor, age: Tensor, noise: Tensor, alpha: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """V(s, w) = min_i Q_i(s, w, a) - alpha log pi(a | s, w) of an action an option; and log pi, `[N, K]`."""
        action, log_prob = self.actor(obs).sample_with_log_prob(noise)
        if self.scripted is not None:
            action = self.squashed(self.played(obs, age, self.unsquashed(action)))
            log_prob = log_prob * self.learned
        rows = obs.unsqueeze(1).expand(-1, self.options, *obs.shape[1:]).flatten(0, 1)
        q = critics(rows, action.flatten(0, 1)).unflatten(1, (-1, self.options)).diagonal(dim1=2, dim2=3)
        return soft_value(q[0], q[1], log_prob, alpha), log_prob

    def q(self, obs: Tensor, action: Tensor) -> Tensor:
        """Q_i(s, w, a) `[2, N, K]` of an action in the environment's units."""
        return self.critics(obs, self.squashed(action))

    def played(self, obs: Tensor, age: Tensor, action: Tensor) -> Tensor:
        """What every option does, `[N, K, parts]`, from the heads' actions: scripts have the last word."""
        return action if self.scripted is None else self.scripted.action(obs, age, action)

    def squashed(self, action: Tensor) -> Tensor:
        """From the environment's units to [-1, 1]."""
        return (action - self.middle) / self.reach

    def unsquashed(self, action: Tensor) -> Tensor:
        """From [-1, 1] to the environment's units."""
        return action * self.reach + self.middle

    def divergence(self, obs: Tensor) -> Tensor:
        """Mean KL between the policies of two options, 0-d."""
        policy = self.actor(obs)
        return gaussian_divergence(policy.mean, policy.log_std)
