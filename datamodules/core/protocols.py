"""Protocols between environments, policies and data modules.

Shapes as in `datamodules.core.types`.
"""

from typing import Protocol

import torch
from torch import Tensor

from datamodules.core.types import Decision, Spaces, State, Step


class Actor(Protocol):
    """Whatever can act on a batch of observations."""

    def initial_state(self, batch: int) -> State:
        """State of `batch` rows at the start of an episode; a leaf with a mask's name is given that mask each step."""
        ...

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Randomness for decisions of leading dimensions `shape` (`(B,)` or `(T, B)`), drawn outside compiled code."""
        ...

    def act(
        self,
        obs: Tensor,
        state: State,
        reset: Tensor,
        *,
        mask: Tensor | None = None,
        noise: Tensor | None = None,
        greedy: bool = False,
    ) -> tuple[Decision, State]:
        """Decide for every row. Rows with `reset` True start from `initial_state`.

        Args:
            mask: which actions are allowed, `[B, sum(action_sizes)]` bool; None allows all.
            noise: one step of what `noise` drew; None only when greedy.
        """
        ...


class VectorEnv(Protocol):
    """Many copies of one environment: tensors in, tensors out.

    episode_keys: names of the scalars an episode reports in `Step.info`.
    shortest_truncation: fewest steps after which an episode can be truncated; None when unknown.
    phantoms: whether a step can have `valid` False.
    pure: whether it is a `PureVectorEnv`.
    every_final: set it to get `Step.final_obs` for terminated rows too, as recordings want; learning does not.
    """

    spaces: Spaces
    num_envs: int
    device: torch.device
    episode_keys: tuple[str, ...]
    shortest_truncation: int | None
    phantoms: bool
    pure: bool
    every_final: bool

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Start every environment anew: observations `[B, *obs]` and the masks that belong to them."""
        ...

    def limit(self, steps: int) -> None:
        """Truncate every episode after so many steps, from the next reset on."""
        ...

    def noise(self, steps: int) -> Tensor | None:
        """Randomness for `steps` vector steps, `[steps, B, noise_size]`; None where the environment draws its own."""
        ...

    def step(self, action: Tensor, noise: Tensor | None = None) -> Step:
        """Advance every environment by one step; resets are made here, whatever the autoreset mode underneath."""
        ...

    def state_dict(self) -> dict[str, object]:
        """Tensors and plain types that continue the run exactly where the environment can, else an empty dict."""
        ...

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Continue from `state_dict`; call instead of `reset`."""
        ...

    def close(self) -> None:
        """Release processes and windows."""
        ...


class PureVectorEnv(VectorEnv, Protocol):
    """A VectorEnv made of tensors: its step is also a pure function, which can be compiled and captured.

    state: of all rows, as the last `reset` or `step` left it.
    """

    state: State

    def advance(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Step, State]:
        """From one state to the next: the state after resets, the step without `final_obs`, the state before resets."""
        ...

    def observation(self, state: State) -> Tensor:
        """Observations `[B, *obs]` of states."""
        ...

    def info(self, state: State) -> dict[str, Tensor]:
        """What states report: `episode_keys` and masks."""
        ...


class TensorEnv(Protocol):
    """An on-device environment: pure, batched functions of a state, in torch (in the spirit of Gymnasium's FuncEnv).

    No method changes its arguments, reads a value back to the host or depends on the data in its shapes.

    noise_size: uniforms in [0, 1) that a row consumes each step; `initial` and `transition` share them.
    episode_keys: names in `info` reported when an episode ends.
    shortest_truncation: fewest steps after which an episode can be truncated; None if it never is.
    """

    spaces: Spaces
    noise_size: int
    episode_keys: tuple[str, ...]
    shortest_truncation: int | None

    def initial(self, noise: Tensor) -> State:
        """First states of episodes, from uniforms `[B, noise_size]`."""
        ...

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Next state, reward float32 `[B]`, terminated and truncated bool `[B]`."""
        ...

    def observation(self, state: State) -> Tensor:
        """Observation `[B, *obs_shape]` of a state."""
        ...

    def info(self, state: State) -> dict[str, Tensor]:
        """The `episode_keys` (numbers, `[B]`) and masks (`*_mask`, bool `[B, ...]`) of a state."""
        ...
