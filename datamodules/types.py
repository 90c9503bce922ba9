"""The words every part of Leyden speaks: spaces, steps, decisions, rollouts and the protocols between them.

Shapes: `T` is the horizon, `B` the number of rows (environments times agents), `N` any batch. Scalars are `[T, B]`
or `[N]`, never `[..., 1]`. `terminated` and `truncated` stay two flags from the environment to the loss.
"""

from typing import Literal, NamedTuple, NotRequired, Protocol, TypedDict

import torch
from torch import Tensor

ActionKind = Literal["discrete", "multidiscrete", "binary", "continuous"]


class UsageError(ValueError):
    """A mistake of the user's, said in one sentence: what, where, what to do. The command line shows no traceback."""


class NonFiniteError(UsageError):
    """An environment returned NaN or an infinity: what was collected is not worth saving."""


State = dict[str, Tensor]
"""Flat dictionary of tensors with leading dimension B; empty when memoryless."""


class Scalars(NamedTuple):
    """Named numbers in one tensor `[len(names)]` on the device, so that adding them up costs one operation."""

    names: tuple[str, ...]
    values: Tensor


class Spaces(TypedDict):
    """What an environment shows and takes, as plain data that survives a `weights_only` checkpoint.

    `action_sizes` holds the number of choices of each categorical or binary part (empty when continuous);
    `action_low` and `action_high` hold the flat bounds of a continuous action; `action_start` the first value of each
    discrete part; `agents` the rows an environment contributes (1 unless multi-agent).
    `obs_high` is what networks divide observations by (`obs_bound`); left out, bytes are divided by 255 and other
    observations are not scaled.
    """

    obs_shape: tuple[int, ...]
    obs_dtype: str
    obs_high: NotRequired[float]
    action_kind: ActionKind
    action_sizes: list[int]
    action_low: list[float]
    action_high: list[float]
    action_start: list[int]
    agents: int


class Step(NamedTuple):
    """One vector step; every tensor has leading dimension B.

    obs: the observation to act on next: the next episode's first where one ended (except in NEXT_STEP mode, where
        the following step is the phantom that brings it, with `valid` False).
    final_obs: the true last observation on rows that were truncated, anything elsewhere; None if no row was.
    valid: False on phantom steps and on rows of dead agents: never learned from, counted or bootstrapped through.
    info: fixed keys per environment: masks (`*_mask`, they belong to `obs`) and the environment's `episode_keys`
        (they belong to the state the step led to, before any reset).
    """

    obs: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_obs: Tensor | None
    valid: Tensor
    info: dict[str, Tensor]


class Decision(NamedTuple):
    """What a policy chose: `action` `[B, ...]` in the environment's units, and named extras `[B, ...]`."""

    action: Tensor
    extras: dict[str, Tensor]


class Rollout(NamedTuple):
    """T vector steps of B rows, and what is needed to learn from them.

    obs: `[T+1, B, *obs]`; the last one is the observation the next rollout starts from.
    reset: `[T, B]`, True where obs is the first of an episode (the actor's state starts anew).
    final_obs, final_index: `[S, B, *obs]` and `[S, B]`: slots for the true last observations of truncated steps;
        `final_index` is the step t each belongs to, -1 in unused slots.
    state: the actor's state before t=0.   extras: `{name: [T, B, ...]}` from the decisions, and masks.
    episodes: totals over the episodes that ended in this rollout: `count`, `return`, `length` and the environment's
        `episode_keys`, float64.   env_steps: the number of valid steps, known on the host.
    phantoms: whether any rollout of these environments can have invalid steps.
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    reset: Tensor
    final_obs: Tensor
    final_index: Tensor
    state: State
    extras: dict[str, Tensor]
    episodes: Scalars
    env_steps: int
    phantoms: bool

    @property
    def ready(self) -> bool:
        """A rollout can always be learned from."""
        return True


class Transitions(NamedTuple):
    """U minibatches of N windows of up to n steps, drawn from a replay; every tensor has leading dimensions `[U, N]`.

    obs, action: where a window begins and what was done there.   reward: `[U, N, n]`, zero after its last step.
    length: steps in the window, 1 to n: it ends with its episode.   terminated: whether nothing follows it.
    next_obs: the observation after the window, the true last one where the episode was truncated.
    extras: decisions' extras and masks at the first step.   next_masks: of `next_obs`; all True where it ended.
    weight: what an entry counts in the loss; 0 for entries to leave out, 1 or an importance weight for the others.
    entry: where the windows begin, for `Replay.reprioritize_`.
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    length: Tensor
    terminated: Tensor
    next_obs: Tensor
    extras: dict[str, Tensor]
    next_masks: dict[str, Tensor]
    weight: Tensor
    entry: Tensor


class Replay(Protocol):
    """Past steps, from which data modules draw."""

    def reprioritize_(self, entry: Tensor, error: Tensor) -> None:
        """Remember how wrong the windows at `Transitions.entry` were; nothing where drawing is uniform."""


class Experience(NamedTuple):
    """One off-policy iteration: new steps, and the minibatches of all updates (None while there is too little)."""

    rollout: Rollout
    transitions: Transitions | None
    replay: Replay

    @property
    def ready(self) -> bool:
        """Whether there is something to learn from."""
        return self.transitions is not None

    @property
    def episodes(self) -> Scalars:
        """Totals over the episodes that ended in the new steps."""
        return self.rollout.episodes

    @property
    def env_steps(self) -> int:
        """The number of new, valid steps."""
        return self.rollout.env_steps


class Episodes(NamedTuple):
    """Whole episodes, one row each: undiscounted `return_` `[N]`, `length` `[N]`, reported values `{name: [N]}`.

    `trajectories` holds, when recorded, one dictionary an episode: obs `[L+1, ...]`, action `[L, ...]`, reward `[L]`,
    terminated and truncated `[L]`.
    """

    return_: Tensor
    length: Tensor
    info: dict[str, Tensor]
    trajectories: list[dict[str, Tensor]]


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
