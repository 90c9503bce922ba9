"""PolicyGroups: a vector environment in which other policies play some of the agents."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.protocols import Policy, VectorEnv
from datamodules.core.pytree import add_prefix, strip_prefix, tree_map
from datamodules.core.types import Obs, PolicyInput, SpaceSpec, State, VectorStep, insert_masks, select_masks
from datamodules.multi_agent.wrapper import VectorEnvWrapper

LEARNING = 0
"""Policy group of the agents that the learning policy plays."""


class _Opponent(NamedTuple):
    """A policy that does not learn, and the rows that it plays."""

    policy: Policy
    rows: Tensor


class PolicyGroups(VectorEnvWrapper):
    """VectorEnv of the agents in group 0; policies that do not learn play the other groups' agents.

    The other agents are part of the environment: nothing of their rows is stored, learned from, counted or used for
    normalisation. Their policies sample, and see what these agents observe, with the policy state of each agent.

    Args:
        envs: vector environment of all agents.
        policy_group: group of every agent of an environment; 0 learns.
        opponents: policy of the groups 1, 2, ...
        seed: seed of their noise.

    Raises: ConfigurationError as `learning_spaces` does.
    """

    _obs: Obs
    _masks: State

    def __init__(self, envs: VectorEnv, policy_group: Sequence[int], opponents: Sequence[Policy], seed: int = 0):
        super().__init__(envs, "policy_groups")
        self.spaces = learning_spaces(envs.spaces, policy_group, len(opponents))
        self.all_agents = len(policy_group)
        self.learning_rows = self._rows_of(policy_group, LEARNING)
        self.opponents = [
            _Opponent(policy, self._rows_of(policy_group, group)) for group, policy in enumerate(opponents, start=1)
        ]
        self.agent_names = tuple(
            name for name, group in zip(self.agent_names, policy_group, strict=False) if group == LEARNING
        )
        self.generator = torch.Generator(device=self.device).manual_seed(seed)
        self._noise_shapes: list[torch.Size] = []
        self._noise_sizes: list[int] = []

    def reset(self, seed: int | None = None) -> tuple[Obs, dict[str, Tensor]]:
        """Reset every environment and the opponents' states; return observations and masks of the learning rows."""
        if seed is not None:
            self.generator.manual_seed(seed)
        self._obs, self._masks = self.envs.reset(seed)
        start = torch.ones(self.num_envs, self.all_agents, dtype=torch.bool, device=self.device)
        self.own = {"episode_start": start}
        for number, each in enumerate(self.opponents):
            state = each.policy.initial_state(len(each.rows))
            self.own |= {f"{number}/{name}": self._by_env(leaf) for name, leaf in state.items()}
        return self._learning(self._obs), self._learning(self._masks)

    def noise(self, steps: int) -> Tensor | None:
        """Draw the environments' random numbers, followed by the opponents', `[steps, num_envs, ...]`."""
        inner = self.envs.noise(steps)
        if inner is None:
            return None
        parts = [inner, *self._opponent_noise(steps)]
        self._noise_sizes = [part.shape[-1] for part in parts]
        return torch.cat(parts, -1)

    def step(self, action: Tensor, noise: Tensor | None = None) -> VectorStep:
        """Step every environment with the actions of the learning rows and those of the opponents."""
        if self.stateless_envs is not None:
            drawn = cast(Tensor, self.noise(1))[0] if noise is None else noise
            self.state, step, last = self.stateless_step(self.state, action, drawn)
            ends = step.truncated | step.terminated if self.return_all_final_obs else step.truncated
            return step._replace(final_obs=self.observation(last)) if ends.any() else step
        draws = [draw[0] for draw in self._opponent_noise(1)]
        full, self.own = self._full_action(action, self._obs, self._masks, self.own, draws)
        step = self.envs.step(full)
        self._obs, self._masks = step.obs, select_masks(step.info)
        self.own = self.own | {"episode_start": self._starts(step)}
        return self._learning(step)

    def stateless_step(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, VectorStep, State]:
        """Step as a pure function of the state."""
        assert self.stateless_envs is not None
        inner, own = self.split(state)
        obs, masks = self.stateless_envs.observation(inner), select_masks(self.stateless_envs.info(inner))
        drawn, *draws = noise.split(self._noise_sizes, -1)
        full, own = self._full_action(action, obs, masks, own, draws)
        merged, step, last = self.stateless_envs.stateless_step(inner, full, drawn)
        own = own | {"episode_start": self._starts(step)}
        return self.joined(merged, own), self._learning(step), self.joined(last, own)

    def observation(self, state: State) -> Obs:
        """Return the observations of the learning rows."""
        assert self.stateless_envs is not None
        return self._learning(self.stateless_envs.observation(self.split(state)[0]))

    def info(self, state: State) -> dict[str, Tensor]:
        """Return the `episode_stat_keys` and masks of the learning rows."""
        assert self.stateless_envs is not None
        return self._learning(self.stateless_envs.info(self.split(state)[0]))

    def state_dict(self) -> dict[str, object]:
        """Return the state with that of the generator, for an exact resume; empty if the environments cannot."""
        state = super().state_dict()
        return state and {**state, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict) -> None:
        """Restore from `state_dict`."""
        super().load_state_dict(state)
        self.generator.set_state(state["generator"].cpu())

    @torch.no_grad()
    def _full_action(
        self, action: Tensor, obs: Obs, masks: State, own: State, draws: Sequence[Tensor]
    ) -> tuple[Tensor, State]:
        """Return the actions of all rows, and the wrapper's leaves with the opponents' next states."""
        rows = self.num_envs * self.all_agents
        full = action.new_zeros(rows, *action.shape[1:]).index_copy(0, self.learning_rows, action)
        start = own["episode_start"].flatten()
        for number, (each, draw) in enumerate(zip(self.opponents, draws, strict=True)):
            seen = _rows(masks, each.rows)
            prefix = f"{number}/"
            state = {name: leaf.flatten(0, 1) for name, leaf in strip_prefix(prefix, own).items()}
            inputs = PolicyInput(
                _rows(obs, each.rows), insert_masks(state, seen), start[each.rows], seen.get("action_mask")
            )
            output, state = each.policy.act(inputs, draw.reshape(len(each.rows), *self._noise_shapes[number]))
            full = full.index_copy(0, each.rows, output.action.to(full.dtype))
            own = own | add_prefix(prefix, {name: self._by_env(leaf) for name, leaf in state.items()})
        return full, own

    def _opponent_noise(self, steps: int) -> list[Tensor]:
        """Draw the noise of every opponent, `[steps, num_envs, n]`."""
        draws = [each.policy.noise((steps, len(each.rows)), self.generator) for each in self.opponents]
        self._noise_shapes = [draw.shape[2:] for draw in draws]
        return [draw.reshape(steps, self.num_envs, -1) for draw in draws]

    def _rows_of(self, policy_group: Sequence[int], group: int) -> Tensor:
        """Return the rows of a group's agents in every environment."""
        agents = torch.tensor([agent for agent, own in enumerate(policy_group) if own == group], device=self.device)
        first = torch.arange(self.num_envs, device=self.device) * len(policy_group)
        return (first.unsqueeze(1) + agents).flatten()

    def _learning(self, value: Any) -> Any:
        """Return the learning rows of every tensor."""
        return _rows(value, self.learning_rows)

    def _starts(self, step: VectorStep) -> Tensor:
        """Return where the next observation may start an episode, `[num_envs, num_agents]`."""
        return self._by_env(step.terminated | step.truncated | ~step.valid)

    def _by_env(self, rows: Tensor) -> Tensor:
        return rows.unflatten(0, (self.num_envs, -1))


def _rows(value: Any, rows: Tensor) -> Any:
    """Return these rows of every tensor."""
    return tree_map(lambda part: part[rows], value)


def learning_spaces(spaces: SpaceSpec, policy_group: Sequence[int], opponents: int) -> SpaceSpec:
    """Return the spaces with the number of agents that learn.

    Args:
        spaces: spaces of one agent.   policy_group: group of every agent.   opponents: number of other policies.

    Raises: ConfigurationError if there is not one group for each agent, if no agent learns, or if the groups are not
        those of the opponents.
    """
    groups, agents = list(policy_group), spaces["num_agents"]
    if len(groups) != agents:
        raise ConfigurationError(
            f"data.policy_group has {len(groups)} entries, but the environment has {agents} agents: give one for each."
        )
    if LEARNING not in groups:
        raise ConfigurationError("data.policy_group has no 0: give 0 to the agents that learn.")
    if {*groups} != {*range(opponents + 1)}:
        raise ConfigurationError(
            f"data.policy_group is {groups} and data.opponents has {opponents} policies: give 0 to agents that learn"
            " and n to those that the n-th opponent plays."
        )
    return {**spaces, "num_agents": groups.count(LEARNING)}
