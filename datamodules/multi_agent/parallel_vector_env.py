"""ParallelVectorEnv: step PettingZoo parallel environments one after the other, one row for each agent."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from datamodules.core.errors import ConfigurationError
from datamodules.env_interface.env_errors import require_shape
from datamodules.env_interface.spaces import to_space_spec
from datamodules.multi_agent.agent_spaces import share_spaces

Array = np.ndarray
Infos = dict[str, Any]


class ParallelVectorEnv(gym.vector.VectorEnv):
    """Vector environment of PettingZoo parallel environments.

    Row `e * num_agents + a` is agent `possible_agents[a]` of environment e. An agent acts while it is in the
    environment's `agents`, until its own `terminated` or `truncated`. Nothing is reset automatically: an environment
    whose agents have all ended is reset by `reset(options={"reset_mask": ...})`.

    `infos["valid"]` of a step, bool `[rows]`, is False for agents that did not act; their reward is 0, and both flags
    are False. The observation of an agent that does not act next is zero, unless it has ended in this step.
    `infos["action_mask"]`, bool `[rows, n]`, is returned if an environment returns one in an agent's info.

    Args:
        makers: environment factories, one per environment.
        name: name of the environment in messages.

    Attributes:
        num_agents: rows per environment.   agent_names: the agents, in the order of the rows.

    Raises: ConfigurationError for spaces that cannot be shared, and for agents that disappear without an end.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012  (Gymnasium's own form)

    def __init__(self, makers: Sequence[Callable[[], Any]], *, name: str):
        self.envs, self.name, self.num_envs = [make() for make in makers], name, len(makers)
        first = self.envs[0]
        self.agent_names = tuple(map(str, first.possible_agents))
        self.num_agents = len(self.agent_names)
        self.spaces = share_spaces(first.possible_agents, first.observation_space, first.action_space, name)
        rows = self.num_envs * self.num_agents
        self.single_observation_space, self.single_action_space = self.spaces.observation, self.spaces.action
        self.observation_space = batch_space(self.single_observation_space, rows)
        self.action_space = batch_space(self.single_action_space, rows)
        self._place = {agent: place for place, agent in enumerate(first.possible_agents)}
        self._obs = create_empty_array(self.single_observation_space, rows, fn=np.zeros)
        self._blank = next(iter(iterate(self.observation_space, deepcopy(self._obs))))
        self._shown: list[Any] = [self._blank] * rows
        flags = [np.zeros(rows, dtype=np.bool_) for _ in range(4)]
        self._ended, self._valid, self._terminated, self._truncated = flags
        self._reward = np.zeros(rows, dtype=np.float64)
        self._masks: Array | None = None if self.spaces.action_sizes is None else self._all_choices()

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Infos]:
        """Reset the environments in `options["reset_mask"]` `[num_envs]`, all without it.

        Args:
            seed: one seed, or one for each environment.   options: other entries are given to the environments.
        """
        options = dict(options or {})
        chosen = options.pop("reset_mask", np.ones(self.num_envs, dtype=np.bool_))
        seeds = seed if isinstance(seed, Sequence) else [seed] * self.num_envs
        for number in np.flatnonzero(chosen).tolist():
            obs, infos = self.envs[number].reset(seed=seeds[number], options=options or None)
            rows = slice(number * self.num_agents, (number + 1) * self.num_agents)
            self._ended[rows] = False
            self._store(number, obs, infos, self.envs[number].agents)
        return self._batched(), {} if self._masks is None else {"action_mask": self._masks}

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Infos]:
        """Step every environment with the actions of its agents, `[rows, ...]`; others are not used."""
        for column in (self._reward, self._terminated, self._truncated, self._valid):
            column.fill(0)
        for number in range(self.num_envs):
            self._step_env(number, actions)
        infos: Infos = {"valid": self._valid} | ({} if self._masks is None else {"action_mask": self._masks})
        return self._batched(), self._reward, self._terminated, self._truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment."""
        for env in self.envs:
            env.close()

    def _step_env(self, number: int, actions: Any) -> None:
        env, first = self.envs[number], number * self.num_agents
        acting = list(env.agents)
        chosen = {agent: actions[first + self._place[agent]] for agent in acting}
        obs, rewards, terminated, truncated, infos = env.step(chosen)
        for agent in acting:
            row = first + self._place[agent]
            if self._ended[row]:
                continue
            self._valid[row], self._reward[row] = True, rewards[agent]
            self._terminated[row], self._truncated[row] = terminated[agent], truncated[agent]
            self._ended[row] = self._terminated[row] or self._truncated[row]
            if not self._ended[row] and agent not in env.agents:
                raise ConfigurationError(
                    f"{self.name} removed agent {agent} without an end: set its terminated or truncated in the step"
                    " after which it does not act."
                )
        shown = {*acting, *env.agents}
        self._store(number, obs, infos, [agent for agent in self._place if agent in shown])

    def _store(self, number: int, obs: dict[Any, Any], infos: dict[Any, Any], shown: Sequence[Any]) -> None:
        """Store the observations and action masks of the agents `shown` of an environment; the others' are blank."""
        first = number * self.num_agents
        rows = slice(first, first + self.num_agents)
        self._shown[rows] = [self._blank] * self.num_agents
        for agent in shown:
            self._shown[first + self._place[agent]] = self._padded(obs[agent], self._place[agent])
        masks = {agent: infos[agent]["action_mask"] for agent in shown if "action_mask" in infos.get(agent, {})}
        if masks and self._masks is None:
            self._masks = self._all_choices()
        if self._masks is not None:
            self._masks[rows] = self._all_choices()[rows]
        for agent, mask in masks.items():
            cast(Array, self._masks)[first + self._place[agent], : np.size(mask)] = np.ravel(mask)

    def _padded(self, obs: Any, place: int) -> Any:
        """Return an agent's observation with the size that all agents share."""
        if self.spaces.obs_sizes is None:
            return obs
        require_shape(obs, (self.spaces.obs_sizes[place],), "an observation")
        return np.pad(obs, (0, max(self.spaces.obs_sizes) - self.spaces.obs_sizes[place]))

    def _all_choices(self) -> Array:
        """Return the masks `[rows, n]` of all choices that each agent has."""
        choices = sum(
            to_space_spec(self.single_observation_space, self.single_action_space, name=self.name)["action_sizes"]
        )
        own = self.spaces.action_sizes or [choices] * self.num_agents
        return np.tile(np.arange(choices) < np.asarray(own)[:, None], (self.num_envs, 1))

    def _batched(self) -> Any:
        return concatenate(self.single_observation_space, self._shown, cast(Array, self._obs))
