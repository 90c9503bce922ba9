"""Small environments of several agents, as PettingZoo and as functions of tensors, and the oracle that plays them."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from datamodules.core.types import SpaceSpec, State

LENGTHS = (2, 5, 3)


class Relay:
    """Three runners: agent i ends after `lengths[i]` steps; shows [episode, step, agent, a draw]; pays its action + i.

    Args:
        end: how agents end: terminated or truncated; the last one to end is truncated.
        shared: all agents that act get the sum of what they earn.
    """

    def __init__(
        self, lengths: tuple[int, ...] = LENGTHS, end: str = "terminated", shared: bool = False, masks: bool = False
    ):
        self.lengths, self.end, self.shared, self.masks = lengths, end, shared, masks
        self.possible_agents = [f"runner_{number}" for number in range(len(lengths))]
        self.agents: list[str] = []
        self.episode, self.closed = -1, False

    def observation_space(self, agent: str) -> gym.Space:
        return Box(-np.inf, np.inf, (4,), np.float32)

    def action_space(self, agent: str) -> gym.Space:
        return Discrete(3)

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        if seed is not None:
            self.draws = np.random.default_rng(seed)
            self.episode = -1
        self.episode, self.count, self.agents = self.episode + 1, 0, [*self.possible_agents]
        self.draw = float(self.draws.random())
        return self.shown(self.agents), self.infos(self.agents)

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        acting = self.agents
        assert list(actions) == acting
        self.count += 1
        earned = {agent: float(actions[agent]) + self.number(agent) for agent in acting}
        rewards = dict.fromkeys(acting, sum(earned.values())) if self.shared else earned
        over = {agent: self.count >= self.lengths[self.number(agent)] for agent in acting}
        last = all(over.values())
        terminated = {agent: over[agent] and not last and self.end == "terminated" for agent in acting}
        truncated = {agent: over[agent] and not terminated[agent] for agent in acting}
        self.agents = [agent for agent in acting if not over[agent]]
        return self.shown(acting), rewards, terminated, truncated, self.infos(acting)

    def number(self, agent: str) -> int:
        return self.possible_agents.index(agent)

    def shown(self, agents: list[str]) -> dict[str, np.ndarray]:
        return {
            agent: np.array([self.episode, self.count, self.number(agent), self.draw], np.float32) for agent in agents
        }

    def infos(self, agents: list[str]) -> dict[str, dict]:
        mask = np.arange(3) != self.count % 3
        return {agent: {"action_mask": mask} if self.masks else {} for agent in agents}

    def close(self) -> None:
        self.closed = True


class RelayTensors:
    """Relay as functions of tensors, without the number of the episode: shows [step, agent, a draw]."""

    noise_size = 1
    episode_stat_keys = ("steps",)

    def __init__(self, lengths: tuple[int, ...] = LENGTHS, end: str = "terminated", shared: bool = False):
        self.lengths, self.end, self.shared = lengths, end, shared
        self.min_truncation_step = min(lengths) if end == "truncated" else max(lengths)
        self.spaces = SpaceSpec(
            obs_shape=(3,),
            obs_dtype="float32",
            action_type="discrete",
            action_sizes=[3],
            action_low=[],
            action_high=[],
            action_start=[0],
            num_agents=len(lengths),
        )

    def initial(self, noise: Tensor) -> State:
        return {"count": torch.zeros_like(noise[:, 0], dtype=torch.int64), "draw": noise[:, 0]}

    def alive(self, state: State) -> Tensor:
        return state["count"].unsqueeze(1) < self.limits(state)

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        alive, count = self.alive(state), state["count"] + 1
        reward = (action + self.numbers(state)).float() * alive
        if self.shared:
            reward = reward.sum(1, keepdim=True).expand_as(reward)
        over = alive & (count.unsqueeze(1) >= self.limits(state))
        last = (over | ~alive).all(1, keepdim=True)
        terminated = over & ~last if self.end == "terminated" else torch.zeros_like(over)
        return {"count": count, "draw": state["draw"]}, reward, terminated, over & ~terminated

    def observation(self, state: State) -> Tensor:
        numbers = self.numbers(state).expand(len(state["count"]), -1).float()
        count, draw = (state[name].unsqueeze(1).expand_as(numbers).float() for name in ("count", "draw"))
        return torch.stack([count, numbers, draw], 2)

    def info(self, state: State) -> dict[str, Tensor]:
        return {"steps": state["count"].float()}

    def limits(self, state: State) -> Tensor:
        return torch.tensor(self.lengths, device=state["count"].device)

    def numbers(self, state: State) -> Tensor:
        return torch.arange(len(self.lengths), device=state["count"].device)


def play(env: Relay, seed: int, actions: Callable[[int, int], int], steps: int) -> dict[int, list[tuple]]:
    """Play in a plain loop; return of every agent its transitions: obs, action, reward, both flags, next obs.

    Args:
        actions: action of an agent in a step.
    """
    obs, _ = env.reset(seed=seed)
    found: dict[int, list[tuple]] = {number: [] for number in range(len(env.possible_agents))}
    for t in range(steps):
        chosen = {agent: actions(t, env.number(agent)) for agent in env.agents}
        following, rewards, terminated, truncated, _ = env.step(chosen)
        for agent, action in chosen.items():
            flags = terminated[agent], truncated[agent]
            row = (obs[agent].tolist(), action, rewards[agent], *flags, following[agent].tolist())
            found[env.number(agent)].append(row)
        obs = following if env.agents else env.reset()[0]
    return found
