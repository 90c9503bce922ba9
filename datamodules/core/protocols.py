"""Protocols of policies, vector environments and functional environments.

Shapes as in `datamodules.core.types`.
"""

from typing import Protocol

import torch
from torch import Tensor

from datamodules.core.types import Obs, PolicyInput, PolicyOutput, SpaceSpec, State, VectorStep


class Policy(Protocol):
    """Protocol of a policy: selects actions for a batch of observations."""

    def initial_state(self, batch: int) -> State:
        """Return the state of `batch` rows at an episode start; a leaf named as a mask receives it each step."""
        ...

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw random numbers for `act` with leading dimensions `shape` (`(B,)` or `(T, B)`), outside compiled code."""
        ...

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Select an action for every row. Rows at an episode start begin from `initial_state`.

        Args:
            inputs: observations, states, episode starts and action masks of B rows.
            noise: random numbers of one step, from `noise`; None only if greedy.
            greedy: select the most probable or most valuable action.

        Returns: the action with what the algorithm stores beside it, and the next state.
        """
        ...


class VectorEnv(Protocol):
    """Protocol of a batch of environments with tensors as actions and observations.

    episode_stat_keys: names of the scalars in `VectorStep.info` reported at the end of an episode.
    min_truncation_step: fewest steps after which an episode can be truncated; None when unknown.
    num_envs: number of environments; rows are `num_envs` times `spaces["num_agents"]`.
    has_invalid_steps: whether a step can have `valid` False.
    is_stateless: whether it is a `StatelessVectorEnv`.
    return_all_final_obs: set it to also get `VectorStep.final_obs` for terminated rows, which recordings need and
        learning does not.
    """

    spaces: SpaceSpec
    num_envs: int
    device: torch.device
    episode_stat_keys: tuple[str, ...]
    min_truncation_step: int | None
    has_invalid_steps: bool
    is_stateless: bool
    return_all_final_obs: bool

    def reset(self, seed: int | None = None) -> tuple[Obs, dict[str, Tensor]]:
        """Reset every environment; return observations `[B, *obs]` and their masks."""
        ...

    def limit(self, steps: int) -> None:
        """Truncate every episode after this number of steps, from the next reset on."""
        ...

    def noise(self, steps: int) -> Tensor | None:
        """Draw random numbers for `steps` vector steps, `[steps, num_envs, noise_size]`; None if it draws its own."""
        ...

    def step(self, action: Tensor, noise: Tensor | None = None) -> VectorStep:
        """Step every environment and reset those whose episode ended, whatever the underlying autoreset mode."""
        ...

    def state_dict(self) -> dict[str, object]:
        """Return tensors and plain types that allow an exact resume; an empty dictionary if the environment cannot."""
        ...

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Restore the state from `state_dict`; call this instead of `reset`."""
        ...

    def close(self) -> None:
        """Close processes and windows."""
        ...


class StatelessVectorEnv(VectorEnv, Protocol):
    """Protocol of a vector environment whose step is also a pure function, which can be compiled and captured.

    state: state of all environments after the last `reset` or `step`.
    """

    state: State

    def stateless_step(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, VectorStep, State]:
        """Return the state after resets, the step without `final_obs`, and the state before resets."""
        ...

    def observation(self, state: State) -> Obs:
        """Return the observations `[B, *obs]` of states."""
        ...

    def info(self, state: State) -> dict[str, Tensor]:
        """Return the `episode_stat_keys` and masks of states."""
        ...


class TorchFuncEnv(Protocol):
    """Protocol of an on-device environment: pure, batched PyTorch functions of a state, similar to Gymnasium's FuncEnv.

    No method modifies its arguments, copies a value to the host or has data-dependent shapes.

    With several agents, states have one row per environment: see
    `datamodules.multi_agent.tensor_vector_env.MultiAgentTensorVectorEnv`.

    noise_size: uniforms in [0, 1) that an environment uses each step; `initial` and `transition` share them.
    episode_stat_keys: names in `info` reported at the end of an episode.
    min_truncation_step: fewest steps after which an episode can be truncated; None if it never is.

    An environment whose difficulty follows the training has `follows_progress` True and `set_progress(progress)`, which
    is called with the progress of the run, from 0 to 1, before every rollout; in evaluations it is never called.
    One with a curriculum of stages has their names, `stages`, the number of the current one, from 0, `stage`, and
    `set_stage(stage)` for the episodes that start from then on; `callbacks.StageCurriculum` calls it.
    """

    spaces: SpaceSpec
    noise_size: int
    episode_stat_keys: tuple[str, ...]
    min_truncation_step: int | None

    def initial(self, noise: Tensor) -> State:
        """Return initial states of episodes, from uniforms `[B, noise_size]`."""
        ...

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Return the next state, reward float32 `[B]`, terminated and truncated bool `[B]`."""
        ...

    def observation(self, state: State) -> Obs:
        """Return the observation `[B, *obs_shape]` of a state, or its parts by name."""
        ...

    def info(self, state: State) -> dict[str, Tensor]:
        """Return the `episode_stat_keys` (numbers, `[B]`) and masks (`*_mask`, bool `[B, ...]`) of a state.

        Rewards beside the task's (`reward_*`, float32 `[B]`) are stored with the step that led to the state.
        """
        ...
