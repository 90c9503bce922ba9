"""Types shared by environments, data modules and algorithms: spaces, steps, policy outputs, rollouts, batches.

Shapes: `T` is the rollout length, `B` the number of rows (environments times agents), `N` a batch size. Scalars are
`[T, B]` or `[N]`, never `[..., 1]`. `terminated` and `truncated` are two separate flags from environment to loss.
"""

from typing import Literal, NamedTuple, NotRequired, Protocol, TypedDict

from torch import Tensor

from datamodules.core.errors import ConfigurationError

ActionType = Literal["discrete", "multidiscrete", "binary", "continuous", "hybrid"]


class NonFiniteError(ConfigurationError):
    """NaN or infinity returned by an environment; the collected data must not be saved."""


State = dict[str, Tensor]
"""Flat dictionary of tensors with leading dimension B; empty for policies without a state."""

Obs = Tensor | dict[str, Tensor]
"""Observations: one tensor, or its parts by name (`SpaceSpec.obs_parts`), each in its own dtype."""


class MetricVector(NamedTuple):
    """Named metrics in one tensor `[len(names)]` on the device, so that summing them is one operation."""

    names: tuple[str, ...]
    values: Tensor


class ObsPart(TypedDict):
    """Part of an observation as plain data.

    shape, dtype: of the part.   high: largest value, which networks scale to 1 (see `SpaceSpec`).
    sizes: number of choices of each element, flat, if the part consists of choices from 0 (int64); else absent.
    """

    shape: tuple[int, ...]
    dtype: str
    high: NotRequired[float]
    sizes: NotRequired[list[int]]


class BoxAction(TypedDict):
    """Box of actions as plain data: flat bounds of every part, constant ones included, shape and dtype."""

    low: list[float]
    high: list[float]
    shape: tuple[int, ...]
    dtype: str


class SpaceSpec(TypedDict):
    """Observation and action space as plain data that a `weights_only` checkpoint can hold.

    `action_sizes` holds the number of choices of each categorical or binary part (empty when continuous); a hybrid
    action has choices, then continuous parts, in one float tensor;
    `action_low` and `action_high` hold the flat bounds of a continuous action; `action_start` the first value of each
    discrete part; `num_agents` the agents of one environment, each a row: row `e * num_agents + a` is agent a of
    environment e.
    Networks divide observations by `obs_high` (`obs_bound`); without it, bytes are divided by 255 and other
    observations are not scaled.
    An observation of several parts has `obs_parts`, by name; `obs_shape` is then `()` and `obs_dtype` `dict`.
    `obs_start` is the first value of a Discrete observation, which is one-hot. `action_box` is the environment's Box if
    it is not a vector of float32 without constant parts; both are for code that acts outside the data modules.
    """

    obs_shape: tuple[int, ...]
    obs_dtype: str
    obs_high: NotRequired[float]
    obs_parts: NotRequired[dict[str, ObsPart]]
    obs_start: NotRequired[int]
    action_box: NotRequired[BoxAction]
    action_type: ActionType
    action_sizes: list[int]
    action_low: list[float]
    action_high: list[float]
    action_start: list[int]
    num_agents: int


def discrete_spaces(obs_shape: tuple[int, ...], obs_dtype: str, num_actions: int) -> SpaceSpec:
    """Return the spaces of one agent that chooses from `num_actions` actions, the first being 0."""
    return SpaceSpec(
        obs_shape=obs_shape,
        obs_dtype=obs_dtype,
        action_type="discrete",
        action_sizes=[num_actions],
        action_low=[],
        action_high=[],
        action_start=[0],
        num_agents=1,
    )


class VectorStep(NamedTuple):
    """Result of one vector step; every tensor has leading dimension B, also every part of an observation.

    obs: next observation: the first of the next episode if one ended (except in NEXT_STEP mode, where the following
        step is the autoreset step that returns it, with `valid` False).
    final_obs: true last observation of truncated rows, arbitrary elsewhere; None if no row was truncated.
    valid: False on autoreset steps and on rows of dead agents: excluded from learning, counting and bootstrapping.
    info: fixed keys per environment: masks (`*_mask`, of `obs`) and the environment's `episode_stat_keys` (of the
        state after the step, before any reset); of on-device environments also `reward_NAME`: rewards beside the
        task's, stored in the extras.
    """

    obs: Obs
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_obs: Obs | None
    valid: Tensor
    info: dict[str, Tensor]


class PolicyInput(NamedTuple):
    """Input of a policy; every tensor has leading dimension B.

    obs: observations.   state: state of the policy, empty unless it is recurrent.
    episode_start: rows at the start of an episode, whose state is reset first, bool `[B]`.
    action_mask: allowed actions, bool `[B, sum(action_sizes)]`; None allows all.
    """

    obs: Obs
    state: State
    episode_start: Tensor
    action_mask: Tensor | None = None


class PolicyOutput(NamedTuple):
    """Output of a policy: `action` `[B, ...]` in the environment's units, and named extras `[B, ...]`."""

    action: Tensor
    extras: dict[str, Tensor]


class Rollout(NamedTuple):
    """T vector steps of B rows.

    obs: `[T+1, B, *obs]`; the last one is the first observation of the next rollout.
    episode_start: `[T, B]`, True where obs is the first of an episode (the policy state is reset).
    final_obs, final_step: `[S, B, *obs]` and `[S, B]`: slots for the true last observations of truncated steps;
        `final_step` is the step t each belongs to, -1 in unused slots.
    state: policy state before t=0.   extras: `{name: [T, B, ...]}`, the policy outputs' extras and masks.
    episodes: totals over the environments' episodes that ended in this rollout: `count`, `return`, `length` and the
        `episode_stat_keys`, float64; with several agents means over them, 0 for those that did not act. Of a
        population `[names, members]`, over the environments of each member.
    env_steps: number of valid steps, counted once for all agents of an environment, a Python int.
    agent_steps: number of valid steps of all agents, 0-d; None with one agent.
    has_invalid_steps: whether rollouts of these environments can have invalid steps.
    """

    obs: Obs
    action: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    episode_start: Tensor
    final_obs: Obs
    final_step: Tensor
    state: State
    extras: dict[str, Tensor]
    episodes: MetricVector
    env_steps: int
    has_invalid_steps: bool
    agent_steps: Tensor | None = None

    @property
    def is_ready(self) -> bool:
        """Return True: a rollout can always be learned from."""
        return True


STATE = "state/"
"""Prefix of the extras in which a recurrent policy stores its state before every step, for a replay of sequences."""


class SequenceContext(NamedTuple):
    """Sequences in which the windows of a `ReplayBatch` begin, for a recurrent network.

    A sequence has `burn_in` steps, L' steps at which windows begin, and n - 1 steps that the last windows extend over.

    obs, episode_start: of all these steps, in their order, `[U, burn_in + L' + n - 1, N, ...]`.
    state: state of the policy before the first of them, `[U, N, ...]`.
    last_step: index among these steps of the last one in each window, `[U, L', N]`.
    burn_in: number of steps that only compute the state, and are not learned from.
    """

    obs: Obs
    episode_start: Tensor
    state: State
    last_step: Tensor
    burn_in: int


class ReplayBatch(NamedTuple):
    """U minibatches of N n-step windows sampled from a replay buffer; leading dimensions `[U, N]`.

    With sequences, they are the windows that begin at the L' learned steps of N sequences: leading dimensions
    `[U, L', N]`, but `indices` of the sequences is `[U, N]`.

    obs, action: first observation and action of a window.   reward: `[U, N, n]`, zero after the window's last step.
    num_steps: steps in the window, 1 to n, fewer than n if its episode ends.   terminated: whether the episode
        terminated in the window.
    next_obs: observation after the window; the true last one if the episode was truncated.
    extras: policy outputs' extras and masks of the first step.   next_masks: masks of `next_obs`; all True if the
        episode ended.
    loss_weight: weight in the loss: 0 for excluded entries, 1 or an importance weight for the others.
    indices: buffer indices of the windows, for `Replay.update_priorities`.
    context: the sequences of the windows; None without sequences.
    """

    obs: Obs
    action: Tensor
    reward: Tensor
    num_steps: Tensor
    terminated: Tensor
    next_obs: Obs
    extras: dict[str, Tensor]
    next_masks: dict[str, Tensor]
    loss_weight: Tensor
    indices: Tensor
    context: SequenceContext | None = None


class Replay(Protocol):
    """Protocol of a replay buffer."""

    def update_priorities(self, indices: Tensor, error: Tensor) -> None:
        """Set the priorities of the windows at `indices` from their errors; no effect under uniform sampling."""


class OffPolicyIteration(NamedTuple):
    """New rollout and the minibatches of all updates (None before learning starts) of one off-policy iteration."""

    rollout: Rollout
    transitions: ReplayBatch | None
    replay: Replay

    @property
    def is_ready(self) -> bool:
        """Return whether there are minibatches to learn from."""
        return self.transitions is not None

    @property
    def episodes(self) -> MetricVector:
        """Return totals over the episodes that ended in the new rollout."""
        return self.rollout.episodes

    @property
    def env_steps(self) -> int:
        """Return the number of new valid steps."""
        return self.rollout.env_steps

    @property
    def agent_steps(self) -> Tensor | None:
        """Return the number of new valid steps of all agents; None with one agent."""
        return self.rollout.agent_steps


class EpisodeBatch(NamedTuple):
    """Complete episodes, one row each: undiscounted `episode_return` `[N]`, `length` `[N]`, statistics `{name: [N]}`.

    With several agents, returns and statistics are means over them, and `info` also has the return of every agent.
    `trajectories` holds, when recorded, one dictionary per episode of an agent: obs `[L+1, ...]`, action `[L, ...]`,
    reward `[L]`, terminated and truncated `[L]`. Parts of observations are `obs/NAME`.
    """

    episode_return: Tensor
    length: Tensor
    info: dict[str, Tensor]
    trajectories: list[dict[str, Tensor]]


def require_tensor(obs: Obs) -> Tensor:
    """Return observations that are one tensor.

    Raises: ConfigurationError for observations of several parts.
    """
    if isinstance(obs, dict):
        raise ConfigurationError(
            f"The observations have the parts {', '.join(obs)}, but only those of one part are supported for this use:"
            " wrap the environment in gymnasium.wrappers.FlattenObservation."
        )
    return obs


def select_masks(info: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the masks in an environment's info."""
    return {name: value for name, value in info.items() if name.endswith("_mask")}


def select_rewards(info: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the rewards beside the task's in an on-device environment's info, `reward_NAME`."""
    return {name: value for name, value in info.items() if name.startswith("reward_")}


def insert_masks(actor: State, masks: State) -> State:
    """Return the policy state before `act`, in which a leaf with the name of a mask is replaced by that mask."""
    return {name: masks.get(name, leaf) for name, leaf in actor.items()}
