"""The words every part of Leyden speaks: spaces, steps, decisions, rollouts and the protocols between them.

Shapes: `T` is the horizon, `B` the number of rows (environments times agents), `N` any batch. Scalars are `[T, B]`
or `[N]`, never `[..., 1]`. `terminated` and `truncated` stay two flags from the environment to the loss.
"""

from typing import Literal, NamedTuple, NotRequired, Protocol, TypedDict

from torch import Tensor

from datamodules.core.errors import UsageError

ActionKind = Literal["discrete", "multidiscrete", "binary", "continuous"]


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


def masks_of(info: dict[str, Tensor]) -> dict[str, Tensor]:
    """The masks among what an environment reports."""
    return {name: value for name, value in info.items() if name.endswith("_mask")}


def informed(actor: State, masks: State) -> State:
    """The actor's state before a decision: a leaf with the name of a mask holds the environment's mask."""
    return {name: masks.get(name, leaf) for name, leaf in actor.items()}
