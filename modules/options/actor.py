"""What acts under options: the controller chooses who runs, that option's head says what to do."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from datamodules.types import Decision, Spaces, State
from modules.functional.option_choice import choice_noise
from modules.networks.option_heads import Torso
from modules.options.continuous import ContinuousOptions, MakeCritic
from modules.options.controller import Controller
from modules.options.discrete import DiscreteOptions
from modules.options.executed import Executed
from modules.options.scripted import OptionPolicy


class OptionActor(nn.Module):
    """K options and their controller.

    Args:
        spaces: of the environment: continuous or discrete actions.
        controller: chooses and ends options.
        network: makes the actor's torso.   critic: makes the twin critics.
        scripted: hand-written options, or None.   entropy: target entropy of the actions (see `SACOptions`).

    Attributes:
        exploring: bool, 0-d: while training, actions are uniform instead; options run all the same.
        generator: of the options' own stream of random numbers, while training.
    """

    exploring: Tensor

    def __init__(
        self,
        spaces: Spaces,
        controller: Controller,
        network: Torso,
        critic: MakeCritic,
        scripted: Sequence[OptionPolicy] | None,
        entropy: float | None,
    ) -> None:
        super().__init__()
        kind = ContinuousOptions if spaces["action_kind"] == "continuous" else DiscreteOptions
        self.soft = kind(spaces, network, critic, controller.options, scripted, entropy)
        self.controller = controller
        self.register_buffer("exploring", torch.zeros((), dtype=torch.bool), persistent=False)
        self.generator: torch.Generator | None = None

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """For the action, from `generator`; for the option, while training, from a stream of its own.

        So the actions of one option are those of soft actor-critic.
        """
        action = self.soft.noise(shape, generator)
        own = self.generator if self.training and self.generator is not None else generator
        return torch.cat([action, choice_noise(shape, self.controller.options, own)], -1)

    def forward(
        self, obs: Tensor, state: State, reset: Tensor, mask: Tensor | None, noise: Tensor | None
    ) -> tuple[Decision, State]:
        """Go on with each row's option or begin another; then its action. Greedy where there is no noise."""
        first = self.controller.options + 1
        action_noise, option_noise = (None, None) if noise is None else (noise[..., :-first], noise[..., -first:])
        choice = self.controller.choose(obs, state, reset, option_noise)
        action = self.soft.act(obs, choice.option, choice.age - 1, action_noise, mask)
        if action_noise is not None and self.training:
            action = torch.where(self.exploring, self.soft.random(action_noise, mask), action)
        ran = state["option_age"].masked_fill(reset, 0)
        executed = Executed(choice.option, state["option"], choice.begun, ran)
        return Decision(action, executed.extras()), {**state, "option": choice.option, "option_age": choice.age}
