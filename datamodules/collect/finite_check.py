"""Detect NaN and infinities returned by an environment in training or evaluation; report environment and step."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import name_parts, tree_leaves, tree_map
from datamodules.core.types import NonFiniteError, Obs, Rollout, VectorStep


class _NonFinite(NamedTuple):
    """Non-finite value: its kind, and the step (0 for a reset) and row of its origin."""

    what: str
    step: int
    row: int


class FiniteCheck:
    """Check of rewards and observations by one sum per rollout; the position is searched only if it is not finite.

    On a CPU `start` checks the sum at once. On a GPU the sum is copied to the host asynchronously and checked by
    `finish`, which must be called before the storage is overwritten.

    Args:
        name: name of the environment in messages.
        num_agents: rows per environment.
    """

    def __init__(self, name: str, num_agents: int):
        self.name, self.num_agents, self.steps = name, num_agents, 0
        self._rollout: Rollout | None = None
        self._copied: tuple[Tensor, torch.cuda.Event] | None = None

    def start(self, rollout: Rollout, *, has_final_obs: bool) -> None:
        """Check a rollout, or start the check on a GPU.

        Args:
            rollout: rollout in the storage that the next one overwrites.
            has_final_obs: whether `final_obs` holds observations.

        Raises: NonFiniteError on a CPU.
        """
        self._rollout = rollout
        columns = [rollout.reward, *tree_leaves(rollout.obs)]
        if has_final_obs:
            columns += tree_leaves(rollout.final_obs)
        sums = [column.sum() for column in columns if column.is_floating_point()]
        if rollout.reward.device.type == "cpu":
            self._check_total(rollout, sum(map(float, sums)))
            return
        total = torch.stack([each.float() for each in sums]).sum()
        pinned = torch.empty((), pin_memory=True)
        pinned.copy_(total, non_blocking=True)
        self._copied = pinned, torch.cuda.current_stream(total.device).record_event()

    def finish(self) -> None:
        """Finish the check that `start` started.

        Raises: NonFiniteError.
        """
        if self._copied is None or self._rollout is None:
            return
        (total, event), self._copied = self._copied, None
        event.synchronize()
        self._check_total(self._rollout, float(total))

    def _check_total(self, rollout: Rollout, total: float) -> None:
        steps = len(rollout.reward)
        value = None if math.isfinite(total) else _find_non_finite(rollout)
        self.steps += steps
        if value is None:
            return
        step = self.steps - steps + value.step
        when = f"in step {step} since the start of this run" if step else "from its first reset"
        raise NonFiniteError(
            _sentence(self.name, value.what, value.row // self.num_agents, when)
            + " The checkpoints written before are intact; correct the environment, then resume with --ckpt_path last."
        )


class EvaluationFiniteCheck:
    """Check of every vector step of an evaluation: its reward, next observation and, if recorded, last observation.

    The sums of a step's rows stay on the device until `check`, so that a GPU does not synchronize at every step.

    Args:
        name: name of the environment in messages.   num_agents: rows per environment.
        has_final_obs: whether `final_obs` holds the last observations of all ended rows, which are checked too.
        autoreset_steps: whether the steps that are not valid return the first observation of an episode.
    """

    def __init__(self, name: str, num_agents: int, *, has_final_obs: bool, autoreset_steps: bool):
        self.name, self.num_agents, self.steps = name, num_agents, 0
        self.has_final_obs, self.autoreset_steps = has_final_obs, autoreset_steps
        self._sums: list[tuple[int, Tensor, Tensor]] = []  # step, sums of actions, sums of values

    def add_reset(self, obs: Obs) -> None:
        """Add the observations of the first reset, `[B, ...]`."""
        sums = _row_sums(obs)
        self._sums.append((0, torch.zeros_like(sums), sums))

    def add(self, action: Tensor, step: VectorStep) -> None:
        """Add a vector step and the actions that it was given; on a CPU only if a value is not finite."""
        self.steps += 1
        if step.reward.device.type == "cpu":
            columns = [step.reward, *tree_leaves(step.obs)]
            if self.has_final_obs:
                columns += tree_leaves(step.final_obs)
            if math.isfinite(sum(float(column.sum()) for column in columns if column.is_floating_point())):
                return
        obs_sums, other_sums = _row_sums(step.obs), step.reward.double()
        if self.has_final_obs and step.final_obs is not None:
            other_sums = other_sums + torch.where(step.terminated | step.truncated, _row_sums(step.final_obs), 0.0)
        if not self.autoreset_steps:
            obs_sums = torch.where(step.valid, obs_sums, 0.0)
        self._sums.append((self.steps, _row_sums(action), obs_sums + torch.where(step.valid, other_sums, 0.0)))

    def check(self, step: VectorStep | None = None) -> None:
        """Check the steps added since the last call.

        Args:
            step: the vector step added last, to report the value itself.

        Raises: ConfigurationError; not NonFiniteError, which would mean that the training data must not be saved.
        """
        sums, self._sums = self._sums, []
        if not sums:
            return
        non_finite = ~torch.stack([values for _, _, values in sums]).isfinite()
        if not non_finite.any():
            return
        index, row = non_finite.nonzero()[0].tolist()
        (number, actions, _), environment = sums[index], row // self.num_agents
        if not actions[row].isfinite():
            raise ConfigurationError(
                f"The policy chose an action that is not finite in environment {environment} of {self.name}, in step"
                f" {number} of the evaluation: evaluate another checkpoint, or train with a lower learning rate."
            )
        what = "a reward or an observation that is not finite"
        if step is not None and number == self.steps:
            what = _describe(float(step.reward[row]), tree_map(lambda part: part[row], step.obs))
        when = f"in step {number} of the evaluation" if number else "from the first reset of the evaluation"
        raise ConfigurationError(
            _sentence(self.name, what, environment, when)
            + " Weights and checkpoints are intact; correct the environment, then evaluate again, or resume training"
            " with --ckpt_path last."
        )


def _row_sums(value: Obs) -> Tensor:
    """Return the sum of every row of all parts `[B, ...]` in float64, which finite float32 values cannot overflow.

    Integers, which are always finite, count as zero.
    """
    sums = [_row_sum(part) for part in tree_leaves(value)]
    return sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)


def _row_sum(values: Tensor) -> Tensor:
    if not values.is_floating_point():
        return values.new_zeros(len(values), dtype=torch.float64)
    return values.double() if values.dim() == 1 else values.flatten(1).sum(1, dtype=torch.float64)


def _sentence(name: str, what: str, environment: int, when: str) -> str:
    """Return a sentence that names the value, the environment and the step."""
    return (
        f"{name} returned {what} in environment {environment}, {when}: rewards and observations must be finite numbers."
    )


def _find_non_finite(rollout: Rollout) -> _NonFinite | None:
    """Return the first non-finite value used for learning; None if the policy's action is not finite."""
    non_finite = _is_non_finite(rollout.obs)
    non_finite[:-1] &= rollout.valid
    non_finite[-1] &= rollout.valid[-1]
    non_finite[1:] |= _is_non_finite(rollout.reward) & rollout.valid
    slots, rows = (_is_non_finite(rollout.final_obs) & (rollout.final_step >= 0)).nonzero().unbind(1)
    non_finite[rollout.final_step[slots, rows] + 1, rows] = True
    if not non_finite.any():
        return None  # the sum of finite values overflowed, or the rows are not learned from
    step, row = (int(part) for part in non_finite.nonzero()[0])
    if step and not torch.isfinite(rollout.action[step - 1, row]).all():
        return None  # the policy's action was not finite first
    reward = float(rollout.reward[step - 1, row]) if step else 0.0
    return _NonFinite(_describe(reward, tree_map(lambda part: part[step, row], rollout.obs)), step, row)


def _describe(reward: float, obs: Obs) -> str:
    """Return which value of one row's step is not finite; the last observation if neither reward nor `obs` has one."""
    if not math.isfinite(reward):
        return f"the reward {reward}"
    for name, part in name_parts("", obs).items():
        values = part.flatten()
        (places,) = (~torch.isfinite(values)).nonzero(as_tuple=True)
        if len(places):
            where = f"place {int(places[0])}" + (f" of {name[1:]}" if name else "")
            return f"an observation with {float(values[places[0]])} at {where}"
    return "a last observation that is not finite"


def _is_non_finite(column: Obs) -> Tensor:
    """Return where `[T, B, ...]` has a non-finite value in any part, `[T, B]`."""
    return torch.stack([_is_non_finite_part(part) for part in tree_leaves(column)]).any(0)


def _is_non_finite_part(column: Tensor) -> Tensor:
    non_finite = ~torch.isfinite(column)
    return non_finite.flatten(2).any(2) if column.dim() > 2 else non_finite
