"""AgentSettings: the settings of a data module about the agents of its environments."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import nn

from datamodules.core.errors import ConfigurationError
from datamodules.core.protocols import Policy, VectorEnv
from datamodules.core.types import SpaceSpec
from datamodules.multi_agent.append_obs import AppendedPart, AppendObs, append_spaces
from datamodules.multi_agent.policy_groups import PolicyGroups, learning_spaces

OpponentFactory = Callable[[SpaceSpec], nn.Module]
"""Makes a policy (`datamodules.core.protocols.Policy`) that does not learn, from the spaces of an agent."""


class AgentSettings:
    """What is appended to observations, and which policies play which agents.

    Args:
        append_obs: parts to append to observations.   policy_group: group of every agent; None: all learn.
        opponents: policies of the groups 1, 2, ...
        spaces: spaces of the environment.   name: name of the environment in messages.

    Attributes:
        spaces: spaces of the rows that learn.

    Raises: ConfigurationError as `append_spaces` and `learning_spaces` do, and for opponents without groups.
    """

    def __init__(
        self,
        append_obs: Sequence[AppendedPart] | None,
        policy_group: Sequence[int] | None,
        opponents: Sequence[OpponentFactory] | None,
        spaces: SpaceSpec,
        name: str,
    ):
        self.parts, self.name = tuple(append_obs or ()), name
        self.policy_group, self.factories = policy_group, list(opponents or ())
        if self.factories and policy_group is None:
            raise ConfigurationError(
                "data.opponents has policies, but data.policy_group does not say whom they play: give a group for each"
                " agent, 0 to those that learn and n to those of the n-th opponent."
            )
        self.agent_spaces = append_spaces(spaces, self.parts, name)
        grouped = policy_group is not None
        self.spaces = (
            learning_spaces(self.agent_spaces, policy_group or (), len(self.factories))
            if grouped
            else self.agent_spaces
        )
        self._policies: list[Policy] | None = None

    def wrap(self, envs: VectorEnv, opponents: Sequence[Policy] | None = None) -> VectorEnv:
        """Return the environments as the learning rows see them; unchanged with the default settings.

        Args:
            envs: environments of all agents.
            opponents: policies of the groups 1, 2, ..., on the environments' device; None: those of the settings.
        """
        if self.parts:
            envs = AppendObs(envs, self.parts, self.name)
        if self.policy_group is not None:
            envs = PolicyGroups(envs, self.policy_group, opponents or self.opponents(envs.device))
        return envs

    def opponents(self, device: torch.device) -> list[Policy]:
        """Return the policies of the groups 1, 2, ... on a device, in eval mode."""
        if self._policies is None:
            made = [make(self.agent_spaces) for make in self.factories]
            self._policies = [cast(Policy, each.requires_grad_(False).eval().to(device)) for each in made]
        return self._policies

    def against(self, policy: Policy) -> list[Policy]:
        """Return the opponents of a policy on the CPU that is played outside of a fit.

        It plays itself where the run's past checkpoints play (`modules.CheckpointPool`), as in `validate`.
        """
        return [policy if hasattr(each, "fill") else each for each in self.opponents(torch.device("cpu"))]
