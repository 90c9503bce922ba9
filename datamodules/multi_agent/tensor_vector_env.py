"""MultiAgentTensorVectorEnv: an on-device environment of several agents as a vector environment."""

import torch
from torch import Tensor

from datamodules.core.protocols import TorchFuncEnv
from datamodules.core.pytree import tree_map
from datamodules.core.types import Obs, State, VectorStep, select_masks
from datamodules.vector.func_vector_env import ELAPSED, TensorVectorEnv


class MultiAgentTensorVectorEnv(TensorVectorEnv):
    """TensorVectorEnv of a `TorchFuncEnv` with A agents: states of E environments, and E * A rows.

    The environment's functions have one row per environment: state leaves and noise are `[E, ...]`, actions
    `[E, A, ...]`, observations `[E, A, *obs]`. Reward and flags are `[E, A]`, or `[E]` if all agents share them, and so
    are the values of `info`. `alive(state)`, bool `[E, A]`, says which agents act in a state; without it all do.
    An episode ends in the step in which the last of its agents ends; then the environment is reset.

    Args:
        env: the functional environment.   num_envs, device, seed: as for `TensorVectorEnv`.
    """

    def __init__(self, env: TorchFuncEnv, num_envs: int, *, device: torch.device, seed: int = 0):
        super().__init__(env, num_envs, device=device, seed=seed)
        self.num_agents = self.spaces["num_agents"]
        self._alive = getattr(env, "alive", None)
        self.has_invalid_steps = self._alive is not None

    def reset(self, seed: int | None = None) -> tuple[Obs, dict[str, Tensor]]:
        """Reset every environment, after reseeding the generator if a seed is given."""
        super().reset(seed)
        return self.observation(self.state), select_masks(self.info(self.state))

    def step(self, action: Tensor, noise: Tensor | None = None) -> VectorStep:
        """Step every environment; see `TensorVectorEnv.step`."""
        self.state, step, last = self.stateless_step(self.state, action, self.noise(1)[0] if noise is None else noise)
        lost = step.truncated | step.terminated if self.return_all_final_obs else step.truncated
        return step._replace(final_obs=self.observation(last)) if lost.any() else step

    def stateless_step(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, VectorStep, State]:
        """Step as a pure function of the state; see `TensorVectorEnv.stateless_step`."""
        if self.spaces["action_type"] == "continuous":
            action = self._filled(action).clamp(self._low, self._high)
        shape = (self.num_envs, self.num_agents)
        alive = self._all_valid.view(shape) if self._alive is None else self._alive(state)
        last, reward, terminated, truncated = self.env.transition(state, action.unflatten(0, shape), noise)
        reward = torch.where(alive, self._per_agent(reward), 0.0)
        terminated, truncated = self._per_agent(terminated) & alive, self._per_agent(truncated) & alive
        over = (terminated | truncated | ~alive).all(1)
        if self.max_steps is not None:
            last = {**last, ELAPSED: state[ELAPSED] + 1}
            cut = last[ELAPSED] >= self.max_steps
            truncated, over = truncated | (cut.unsqueeze(1) & alive & ~terminated), over | cut
        info, merged = self.info(last), last
        static = self.device.type != "cpu" or torch.compiler.is_compiling()
        if static or over.any():
            merged = self._reset_ended(over, noise, last, static)
            info = {**info, **select_masks(self.info(merged))}
        reward, terminated, truncated, valid = (each.flatten() for each in (reward, terminated, truncated, alive))
        return merged, VectorStep(self.observation(merged), reward, terminated, truncated, None, valid, info), last

    def observation(self, state: State) -> Obs:
        """Return the observations `[B, *obs]` of states."""
        return tree_map(lambda part: part.flatten(0, 1), self.env.observation(state))

    def info(self, state: State) -> dict[str, Tensor]:
        """Return the `episode_stat_keys` and masks of states, `[B, ...]`."""
        return {name: self._per_agent(value).flatten(0, 1) for name, value in self.env.info(state).items()}

    def _per_agent(self, value: Tensor) -> Tensor:
        """Return `[E, A, ...]` of a value that may be one per environment, `[E]`."""
        return value.unsqueeze(1).expand(-1, self.num_agents) if value.dim() == 1 else value
