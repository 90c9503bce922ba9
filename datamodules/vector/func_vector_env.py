"""TensorVectorEnv: an on-device environment (TorchFuncEnv) as a vector environment that holds the state."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.protocols import TorchFuncEnv
from datamodules.core.types import Obs, SpaceSpec, State, VectorStep, select_masks
from datamodules.env_interface.spaces import without_constants

ELAPSED = "elapsed_steps"
"""State key of the step counter of an episode, present if there is a step limit."""


class TensorVectorEnv:
    """Vector environment of a TorchFuncEnv: states and noise of B rows, with same-step autoreset.

    Args:
        env: the functional environment.
        num_envs: number of environments; rows are `num_envs` times agents.
        device: device of the states and functions.
        seed: seed of the generator that `noise` uses.

    Raises: ConfigurationError for continuous actions that cannot be rescaled (see
        `datamodules.env_interface.spaces.free_parts`).
    """

    is_stateless = True
    return_all_final_obs = False
    has_invalid_steps = False

    def __init__(self, env: TorchFuncEnv, num_envs: int, *, device: torch.device, seed: int = 0):
        self.env, self.num_envs, self.device = env, num_envs, device
        self.spaces: SpaceSpec = without_constants(env.spaces, type(env).__name__)
        self.episode_stat_keys = env.episode_stat_keys
        self.min_truncation_step = env.min_truncation_step
        self.follows_progress: bool = getattr(env, "follows_progress", False)
        self.rows = num_envs * env.spaces["num_agents"]
        self.state: State = {}
        self.max_steps: int | None = None
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self._all_valid = torch.ones(self.rows, dtype=torch.bool, device=device)
        self._low = torch.tensor(env.spaces["action_low"], device=device)
        self._high = torch.tensor(env.spaces["action_high"], device=device)
        self._free = (self._low < self._high).nonzero()[:, 0]

    def reset(self, seed: int | None = None) -> tuple[Obs, dict[str, Tensor]]:
        """Reset every row, after reseeding the generator if a seed is given.

        Returns: observations `[B, *obs]` and masks.
        """
        if seed is not None:
            self.generator.manual_seed(seed)
        self.state = self._first(self.noise(1)[0])
        return self.env.observation(self.state), select_masks(self.env.info(self.state))

    def limit(self, steps: int) -> None:
        """Truncate every episode after this number of steps, from the next reset on; the state then counts steps."""
        self.max_steps = steps

    def set_progress(self, progress: float) -> None:
        """Set the progress of the run, from 0 to 1; only with `follows_progress`."""
        cast(Any, self.env).set_progress(progress)

    def noise(self, steps: int) -> Tensor:
        """Draw uniforms in [0, 1) for `steps` vector steps, `[steps, num_envs, noise_size]`."""
        shape = (steps, self.num_envs, self.env.noise_size)
        return torch.rand(shape, generator=self.generator, device=self.device)

    def step(self, action: Tensor, noise: Tensor | None = None) -> VectorStep:
        """Step every row.

        Args:
            action: `[B]` or `[B, parts]`, 0-based; continuous actions are clipped to the bounds.
            noise: uniforms of one step, from `noise`; drawn if None.
        """
        self.state, step, last = self.stateless_step(self.state, action, self.noise(1)[0] if noise is None else noise)
        lost = step.truncated | step.terminated if self.return_all_final_obs else step.truncated
        return step._replace(final_obs=self.env.observation(last)) if lost.any() else step

    def stateless_step(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, VectorStep, State]:
        """Step as a pure function of the state, for compiled and captured loops.

        Eager execution on a CPU skips work that no row needs; elsewhere shapes and work are static. The results are
        equal.

        Returns: the state after resets, the step (`final_obs` is None), and the state before resets.
        """
        if self.spaces["action_type"] == "continuous":
            action = self._filled(action).clamp(self._low, self._high)
        last, reward, terminated, truncated = self.env.transition(state, action, noise)
        if self.max_steps is not None:
            last = {**last, ELAPSED: state[ELAPSED] + 1}
            truncated = truncated | ((last[ELAPSED] >= self.max_steps) & ~terminated)
        ended = terminated | truncated
        info, merged = self.env.info(last), last
        static = self.device.type != "cpu" or torch.compiler.is_compiling()
        if static or ended.any():
            merged = self._reset_ended(ended, noise, last, static)
            info = {**info, **select_masks(self.env.info(merged))}
        obs = self.env.observation(merged)
        return merged, VectorStep(obs, reward, terminated, truncated, None, self._all_valid, info), last

    def _filled(self, action: Tensor) -> Tensor:
        """Return the environment's actions `[B, parts]`: those of the policy, and constant parts."""
        if len(self._free) == len(self._low):
            return action
        return self._low.repeat(len(action), 1).index_copy(1, self._free, action)

    def observation(self, state: State) -> Obs:
        """Return the observations `[B, *obs]` of states."""
        return self.env.observation(state)

    def info(self, state: State) -> dict[str, Tensor]:
        """Return the `episode_stat_keys` and masks of states."""
        return self.env.info(state)

    def _first(self, noise: Tensor) -> State:
        """Return initial states of episodes."""
        state = self.env.initial(noise)
        return state if self.max_steps is None else {**state, ELAPSED: torch.zeros_like(noise[:, 0], dtype=torch.int64)}

    def _reset_ended(self, ended: Tensor, noise: Tensor, last: State, static: bool) -> State:
        """Return initial states for rows whose episode ended, and the last states for the others."""
        if static:
            first = self._first(noise)
            return {
                key: torch.where(ended.view(-1, *[1] * (leaf.dim() - 1)), first[key], leaf)
                for key, leaf in last.items()
            }
        rows = ended.nonzero()[:, 0]
        first = self._first(noise[rows])
        return {key: leaf.index_copy(0, rows, first[key]) for key, leaf in last.items()}

    def state_dict(self) -> dict[str, object]:
        """Return copies of the state's leaves and the generator's state, for an exact resume."""
        state = {key: leaf.clone() for key, leaf in self.state.items()}
        return {"state": state, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict) -> None:
        """Restore from `state_dict`, on this device.

        Raises: ConfigurationError if it was saved with another number of rows or on another type of device.
        """
        leaves = {key: leaf.to(self.device, copy=True) for key, leaf in state["state"].items()}
        saved = {leaf.shape[0] for leaf in leaves.values()}
        if saved and saved != {self.num_envs}:
            raise ConfigurationError(
                f"The saved environments have {max(saved)} rows and these {self.num_envs}: keep data.num_envs."
            )
        shapes = {key: leaf.shape[1:] for key, leaf in self.env.initial(self.noise(1)[0]).items()}
        if shapes != {key: leaf.shape[1:] for key, leaf in leaves.items()}:
            raise ConfigurationError(
                "The saved environments have states of another shape: keep data.env and env_kwargs."
            )
        if state["generator"].shape != self.generator.get_state().shape:
            raise ConfigurationError(
                f"The environments were saved on another type of device than {self.device.type}: resume on that type."
            )
        self.state = leaves
        self.generator.set_state(state["generator"].cpu())

    def close(self) -> None:
        """Do nothing: there are no resources to close."""


class PopulationVectorEnv(TensorVectorEnv):
    """TensorVectorEnv of the members of a population: equal parts of the rows, each with its own random numbers.

    Args:
        envs: the environments of all members.
        seeds: seed of every member's generator, set by each reset: a member's rows are those of a TensorVectorEnv that
            is reset with its seed.

    Raises: ConfigurationError if the environments are not a TensorVectorEnv of single agents.
    """

    def __init__(self, envs: Any, seeds: Sequence[int]):
        if type(envs) is not TensorVectorEnv:
            raise ConfigurationError(
                "A population needs an on-device environment of one agent, without append_obs and opponents: choose"
                " such an environment, or train its seeds one by one."
            )
        super().__init__(envs.env, envs.num_envs, device=envs.device)
        self.seeds, self.num_members = seeds, len(seeds)
        self.generators = [torch.Generator(device=envs.device) for _ in seeds]

    def reset(self, seed: int | None = None) -> tuple[Obs, dict[str, Tensor]]:
        """Reset every row, after seeding the members' generators; `seed` has no effect."""
        for generator, own in zip(self.generators, self.seeds, strict=True):
            generator.manual_seed(own)
        return super().reset()

    def noise(self, steps: int) -> Tensor:
        """Draw uniforms in [0, 1) `[steps, num_envs, noise_size]`, those of each member by its generator."""
        shape = (steps, self.num_envs // self.num_members, self.env.noise_size)
        return torch.cat([torch.rand(shape, generator=each, device=self.device) for each in self.generators], 1)
