"""merge_agents: steps of environments from the rows of their agents."""

from typing import NamedTuple

from torch import Tensor


class EnvSteps(NamedTuple):
    """Steps of E environments, `[..., E]`.

    reward: mean over agents, 0 for those that did not act; float64 with several agents.
    ended: whether the environment's episode ended: it is the step in which the last of its agents ended.
    valid: whether any agent acted.
    """

    reward: Tensor
    ended: Tensor
    valid: Tensor


def merge_agents(reward: Tensor, ended: Tensor, valid: Tensor, num_agents: int) -> EnvSteps:
    """Return the steps of environments from rows `[..., E * num_agents]`, unchanged for one agent.

    Args:
        reward: 0 where not valid.   ended: terminated or truncated, False where not valid.   valid: whether it acted.
    """
    if num_agents == 1:
        return EnvSteps(reward, ended, valid)
    reward, ended, valid = (per_agent(column, num_agents) for column in (reward, ended, valid))
    acted = valid.any(-1)
    return EnvSteps(reward.double().mean(-1), (ended | ~valid).all(-1) & acted, acted)


def per_agent(column: Tensor, num_agents: int) -> Tensor:
    """Return rows `[..., E * num_agents]` as `[..., E, num_agents]`."""
    return column.unflatten(-1, (-1, num_agents))


def agent_mean(column: Tensor, num_agents: int) -> Tensor:
    """Return the means over agents `[..., E]` of rows `[..., E * num_agents]`; the rows themselves for one agent."""
    return column if num_agents == 1 else per_agent(column, num_agents).double().mean(-1)


def any_agent(column: Tensor, num_agents: int) -> Tensor:
    """Return `[..., E]`, True where a row of any agent is, from bool `[..., E * num_agents]`."""
    return column if num_agents == 1 else per_agent(column, num_agents).any(-1)
