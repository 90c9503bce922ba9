"""AppendObs: append agent id, last action and last reward to observations."""

from collections.abc import Sequence
from typing import Literal, cast, get_args

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from datamodules.core.errors import ConfigurationError
from datamodules.core.protocols import VectorEnv
from datamodules.core.types import Obs, ObsPart, SpaceSpec, State, VectorStep
from datamodules.multi_agent.wrapper import VectorEnvWrapper

AppendedPart = Literal["agent_id", "last_action", "last_reward"]


class AppendObs(VectorEnvWrapper):
    """VectorEnv whose observations have further parts (see `append_spaces`).

    Args:
        envs: the vector environment.   parts: the parts to append.   name: name of the environment in messages.

    Raises: ConfigurationError as `append_spaces` does.
    """

    def __init__(self, envs: VectorEnv, parts: Sequence[AppendedPart], name: str):
        super().__init__(envs, "append_obs")
        self.parts = [part for part in get_args(AppendedPart) if part in parts]
        self.spaces = append_spaces(envs.spaces, self.parts, name)
        self.num_agents = envs.spaces["num_agents"]
        self._agent_id = torch.eye(self.num_agents, device=self.device).repeat(self.num_envs, 1)
        self._low = torch.tensor(self.spaces["action_low"], device=self.device)
        self._high = torch.tensor(self.spaces["action_high"], device=self.device)

    def reset(self, seed: int | None = None) -> tuple[Obs, dict[str, Tensor]]:
        """Reset every environment; last action and last reward are zero."""
        obs, masks = self.envs.reset(seed)
        widths = {"last_action": action_width(self.spaces), "last_reward": 1}
        shape = (self.num_envs, self.num_agents)
        self.own = {
            part: torch.zeros(*shape, width, device=self.device) for part, width in widths.items() if part in self.parts
        }
        return self._appended(obs, self.own), masks

    def step(self, action: Tensor, noise: Tensor | None = None) -> VectorStep:
        """Step every environment; `final_obs` ends with the action and the reward of this step."""
        step = self.envs.step(action, noise)
        taken = self._taken(action, step)
        self.own = self._following(taken, step)
        final_obs = None if step.final_obs is None else self._appended(step.final_obs, taken)
        return step._replace(obs=self._appended(step.obs, self.own), final_obs=final_obs)

    def stateless_step(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, VectorStep, State]:
        """Step as a pure function of the state."""
        assert self.stateless_envs is not None
        inner, _ = self.split(state)
        merged, step, last = self.stateless_envs.stateless_step(inner, action, noise)
        taken = self._taken(action, step)
        following = self._following(taken, step)
        step = step._replace(obs=self._appended(step.obs, following))
        return self.joined(merged, following), step, self.joined(last, taken)

    def observation(self, state: State) -> Obs:
        """Return the observations `[B, *obs]` of states."""
        assert self.stateless_envs is not None
        inner, own = self.split(state)
        return self._appended(self.stateless_envs.observation(inner), own)

    def info(self, state: State) -> dict[str, Tensor]:
        """Return the `episode_stat_keys` and masks of states."""
        assert self.stateless_envs is not None
        return self.stateless_envs.info(self.split(state)[0])

    def _taken(self, action: Tensor, step: VectorStep) -> State:
        """Return the parts that this step's action and reward give, `[num_envs, num_agents, width]`."""
        shape = (self.num_envs, self.num_agents)
        parts = {"last_action": lambda: self._encoded(action), "last_reward": lambda: step.reward.unsqueeze(1)}
        return {part: make().unflatten(0, shape) for part, make in parts.items() if part in self.parts}

    def _following(self, taken: State, step: VectorStep) -> State:
        """Return the parts of the next observation: zero where it is the first of an episode."""
        starts = (step.terminated | step.truncated | ~step.valid).unflatten(0, (self.num_envs, self.num_agents))
        return {part: value.masked_fill(starts.unsqueeze(2), 0) for part, value in taken.items()}

    def _encoded(self, action: Tensor) -> Tensor:
        """Return actions as numbers `[B, width]`: one-hot choices, or continuous parts scaled to [-1, 1]."""
        if self.spaces["action_type"] == "continuous":
            action = action.clamp(self._low, self._high)
            return (2 * (action - self._low) / (self._high - self._low) - 1).float()
        columns = action.long().view(len(action), -1).to(self.device)
        sizes = self.spaces["action_sizes"]
        return torch.cat([one_hot(columns[:, i], size) for i, size in enumerate(sizes)], 1).float()

    def _appended(self, obs: Obs, own: State) -> Obs:
        appended = ({"agent_id": self._agent_id} if "agent_id" in self.parts else {}) | {
            part: value.flatten(0, 1) for part, value in own.items()
        }
        if "obs_parts" in self.spaces:
            return (obs if isinstance(obs, dict) else {"obs": obs}) | appended
        return torch.cat([cast(Tensor, obs), *appended.values()], 1)


def append_spaces(spaces: SpaceSpec, parts: Sequence[AppendedPart], name: str) -> SpaceSpec:
    """Return the spaces of observations with the parts: agent id, then last action, then last reward.

    A vector of floats becomes longer; other observations get further parts, beside `obs` if there was one.

    Args:
        spaces: spaces of one agent.   parts: agent_id (one-hot, one number per agent), last_action (one-hot choices, or
            continuous parts scaled to [-1, 1]; zero at an episode's start), last_reward (one number).
        name: name of the environment in messages.

    Raises: ConfigurationError for an unknown part, and for one that the observation already has.
    """
    if unknown := sorted({*parts} - {*get_args(AppendedPart)}):
        raise ConfigurationError(
            f"data.append_obs has {unknown[0]!r}: choose from {', '.join(get_args(AppendedPart))}."
        )
    widths = {"agent_id": spaces["num_agents"], "last_action": action_width(spaces), "last_reward": 1}
    widths = {part: width for part, width in widths.items() if part in parts}
    if not widths:
        return spaces
    if "obs_parts" not in spaces and len(spaces["obs_shape"]) == 1 and spaces["obs_dtype"] == "float32":
        return {**spaces, "obs_shape": (spaces["obs_shape"][0] + sum(widths.values()),)}
    own = spaces.get("obs_parts", {"obs": _whole(spaces)})
    if taken := [part for part in widths if part in own]:
        raise ConfigurationError(
            f"{name} already has the part {taken[0]} in its observation: leave it out of data.append_obs."
        )
    appended = {part: ObsPart(shape=(width,), dtype="float32") for part, width in widths.items()}
    return {**spaces, "obs_shape": (), "obs_dtype": "dict", "obs_parts": own | appended}


def _whole(spaces: SpaceSpec) -> ObsPart:
    """Return an observation of one part as a part."""
    part = ObsPart(shape=spaces["obs_shape"], dtype=spaces["obs_dtype"])
    return {**part, "high": spaces["obs_high"]} if "obs_high" in spaces else part


def action_width(spaces: SpaceSpec) -> int:
    """Return how many numbers hold an action: one for each choice, or for each continuous part."""
    return sum(spaces["action_sizes"]) or len(spaces["action_low"])
