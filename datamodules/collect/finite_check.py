"""Detect NaN and infinities returned by an environment, and report environment and step."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.core.pytree import name_parts, tree_leaves
from datamodules.core.types import NonFiniteError, Obs, Rollout


class _Found(NamedTuple):
    """Non-finite value: its kind, and the step (0 for a reset) and row of its origin."""

    what: str
    step: int
    row: int


class FiniteCheck:
    """Check of rewards and observations by one sum per rollout; the position is searched only if it is not finite.

    On a CPU `note` checks the sum at once. On a GPU the sum is copied to the host asynchronously and checked by
    `require`, which must be called before the storage is overwritten.

    Args:
        name: name of the environment in messages.
        agents: rows per environment.
    """

    def __init__(self, name: str, agents: int):
        self.name, self.agents, self.steps = name, agents, 0
        self._rollout: Rollout | None = None
        self._copied: tuple[Tensor, torch.cuda.Event] | None = None

    def note(self, rollout: Rollout, *, finals: bool) -> None:
        """Check a rollout, or start the check on a GPU.

        Args:
            rollout: rollout in the storage that the next one overwrites.
            finals: whether `final_obs` holds observations.

        Raises: NonFiniteError on a CPU.
        """
        self._rollout = rollout
        columns = [rollout.reward, *tree_leaves(rollout.obs), *(tree_leaves(rollout.final_obs) if finals else ())]
        sums = [column.sum() for column in columns if column.is_floating_point()]
        if rollout.reward.device.type == "cpu":
            self._judge(rollout, sum(map(float, sums)))
            return
        total = torch.stack([each.float() for each in sums]).sum()
        pinned = torch.empty((), pin_memory=True)
        pinned.copy_(total, non_blocking=True)
        self._copied = pinned, torch.cuda.current_stream(total.device).record_event()

    def require(self) -> None:
        """Finish the check that `note` started.

        Raises: NonFiniteError.
        """
        if self._copied is None or self._rollout is None:
            return
        (total, event), self._copied = self._copied, None
        event.synchronize()
        self._judge(self._rollout, float(total))

    def _judge(self, rollout: Rollout, total: float) -> None:
        horizon = len(rollout.reward)
        found = None if math.isfinite(total) else _find(rollout)
        self.steps += horizon
        if found is None:
            return
        step = self.steps - horizon + found.step
        when = f"in step {step} since the start of this run" if step else "from its first reset"
        raise NonFiniteError(
            f"{self.name} returned {found.what} in environment {found.row // self.agents}, {when}: rewards and"
            " observations must be finite numbers. The checkpoints written before are intact; correct the environment,"
            " then resume with --ckpt_path last."
        )


def _find(rollout: Rollout) -> _Found | None:
    """Return the first non-finite value used for learning; None if the policy's action is not finite."""
    bad = _bad(rollout.obs)
    bad[:-1] &= rollout.valid
    bad[-1] &= rollout.valid[-1]
    bad[1:] |= _bad(rollout.reward) & rollout.valid
    slots, rows = (_bad(rollout.final_obs) & (rollout.final_step >= 0)).nonzero().unbind(1)
    bad[rollout.final_step[slots, rows] + 1, rows] = True
    if not bad.any():
        return None  # the sum of finite values overflowed, or the rows are not learned from
    step, row = (int(part) for part in bad.nonzero()[0])
    if step and not torch.isfinite(rollout.action[step - 1, row]).all():
        return None  # the policy's action was not finite first
    if step and not torch.isfinite(rollout.reward[step - 1, row]):
        return _Found(f"the reward {float(rollout.reward[step - 1, row])}", step, row)
    for name, part in name_parts("", rollout.obs).items():
        obs = part[step, row].flatten()
        (places,) = (~torch.isfinite(obs)).nonzero(as_tuple=True)
        if len(places):
            where = f"place {int(places[0])}" + (f" of {name[1:]}" if name else "")
            return _Found(f"an observation with {float(obs[places[0]])} at {where}", step, row)
    return _Found("a last observation that is not finite", step, row)


def _bad(column: Obs) -> Tensor:
    """Return where `[T, B, ...]` has a non-finite value in any part, `[T, B]`."""
    return torch.stack([_bad_part(part) for part in tree_leaves(column)]).any(0)


def _bad_part(column: Tensor) -> Tensor:
    bad = ~torch.isfinite(column)
    return bad.flatten(2).any(2) if column.dim() > 2 else bad
