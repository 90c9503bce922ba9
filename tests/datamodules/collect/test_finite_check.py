import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.divergence_guard import DivergenceGuard
from datamodules.collect.finite_check import EvaluationFiniteCheck, FiniteCheck
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import MetricVector, NonFiniteError, Rollout, State, VectorStep
from datamodules.rollout import RolloutDataModule
from tests.support.counting_env import Counting, CountingTensors
from tests.support.replay_fixtures import replay_data, small_dqn
from tests.support.small_runs import small_ppo, trainer

NUMBERS = [math.nan, math.inf, -math.inf]


class Spoiling(Counting):
    """Returns such a number from its seventh step of all, as a reward or in an observation."""

    def __init__(self, number: float, where: str) -> None:
        super().__init__(length=5)
        self.number, self.where, self.steps = number, where, 0

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        self.steps += 1
        if self.steps == 7 and self.where == "reward":
            reward = self.number
        if self.steps == 7 and self.where == "obs":
            obs[1] = self.number
        return obs, reward, *rest


class SpoilingTensors(CountingTensors):
    """Pays NaN to row 2 in the second step of an episode."""

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        after, reward, *ends = super().transition(state, action.clamp(max=0), noise)
        spoiled = (torch.arange(len(reward), device=reward.device) == 2) & (after["count"] == 2)
        return after, reward.masked_fill(spoiled, math.nan), *ends


def spoiling(number: float, where: str, **changes: Any) -> RolloutDataModule:
    settings: dict[str, Any] = {
        "num_envs": 2,
        "rollout_length": 4,
        "total_env_steps": 800,
        "eval_episodes": 2,
        **changes,
    }
    return RolloutDataModule(f"{__name__}.Spoiling", env_kwargs={"number": number, "where": where}, **settings)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(("where", "what"), [("reward", "the reward {}"), ("obs", "an observation with {} at place 1")])
def test_what_is_not_finite_is_named_with_environment_and_step(
    tmp_path: Path, number: float, where: str, what: str
) -> None:
    data = spoiling(number, where)

    with pytest.raises(NonFiniteError) as raised:
        trainer(tmp_path, DivergenceGuard()).fit(small_ppo(data), data)

    assert f"Spoiling returned {what.format(number)} in environment 0, in step 7 since" in str(raised.value)


@pytest.mark.parametrize("changes", [{"backend": "async"}, {"backend": "pool"}, {"policy_lag": 1}])
def test_it_is_named_whoever_steps_the_environments(tmp_path: Path, changes: dict[str, Any]) -> None:
    data = spoiling(math.nan, "reward", **changes)

    with pytest.raises(NonFiniteError, match="reward nan in environment 0, in step 7 since"):
        trainer(tmp_path, DivergenceGuard()).fit(small_ppo(data), data)


def test_it_is_named_in_a_replay(tmp_path: Path) -> None:
    data = replay_data(env=f"{__name__}.Spoiling", env_kwargs={"number": math.inf, "where": "reward"}, backend="sync")

    with pytest.raises(NonFiniteError, match="reward inf in environment 0, in step 7 since"):
        trainer(tmp_path, DivergenceGuard()).fit(small_dqn(data), data)


def test_the_environment_of_a_row_of_tensors_is_named(tmp_path: Path) -> None:
    data = RolloutDataModule(
        f"{__name__}.SpoilingTensors", num_envs=4, rollout_length=4, total_env_steps=800, eval_episodes=4
    )

    with pytest.raises(NonFiniteError, match="SpoilingTensors returned the reward nan in environment 2, in step 2"):
        trainer(tmp_path, DivergenceGuard()).fit(small_ppo(data), data)


def test_no_checkpoint_is_made_of_what_was_collected(tmp_path: Path) -> None:
    data = spoiling(math.nan, "obs")

    with pytest.raises(NonFiniteError):
        trainer(tmp_path, DivergenceGuard(), RunCheckpoint()).fit(small_ppo(data), data)

    assert not list(tmp_path.rglob("*.ckpt"))


def at(column: Tensor, *place: int, value: float = math.nan) -> Tensor:
    return column.clone().index_put_(tuple(torch.tensor(index) for index in place), torch.tensor(value))


def spoiled_evaluation(number: float, where: str, **changes: Any) -> RolloutDataModule:
    """Data whose environments return the number in evaluations only."""
    kwargs = {"env_kwargs": {"number": 1.0, "where": where}, "eval_env_kwargs": {"number": number}}
    settings: dict[str, Any] = {"num_envs": 2, "rollout_length": 4, "total_env_steps": 80, "eval_episodes": 4}
    return RolloutDataModule(f"{__name__}.Spoiling", **kwargs, **settings, **changes)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(("where", "what"), [("reward", "the reward {}"), ("obs", "an observation with {} at place 1")])
@pytest.mark.parametrize("verb", ["validate", "test", "predict"])
def test_a_value_of_an_evaluation_that_is_not_finite_is_named(
    tmp_path: Path, number: float, where: str, what: str, verb: str
) -> None:
    data = spoiled_evaluation(number, where)

    with pytest.raises(ConfigurationError) as raised:
        getattr(trainer(tmp_path), verb)(small_ppo(data), data)

    said = f"Spoiling returned {what.format(number)} in environment 0, in step 7 of the evaluation:"
    assert said in str(raised.value)


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_an_evaluation_inside_a_fit_loses_nothing(tmp_path: Path, backend: str) -> None:
    data = spoiled_evaluation(math.nan, "reward", backend=backend)
    run = trainer(tmp_path, DivergenceGuard(), RunCheckpoint(), val_check_interval=3)

    with pytest.raises(ConfigurationError, match="the reward nan in environment 0, in step 7 of the evaluation:"):
        run.fit(model := small_ppo(data), data)

    last = tmp_path / "checkpoints" / "last.ckpt"
    assert not any(tag.startswith("eval/") for tag in model.last_logged)
    resumed = trainer(tmp_path, RunCheckpoint(), val_check_interval=3)
    mended = spoiled_evaluation(1.0, "reward", backend=backend)
    resumed.fit(small_ppo(mended), mended, ckpt_path=last, weights_only=True)
    assert resumed.global_step == 10


def test_the_row_of_an_evaluation_on_the_device_is_named(tmp_path: Path) -> None:
    data = RolloutDataModule(f"{__name__}.SpoilingTensors", num_envs=4, rollout_length=4, eval_episodes=4)

    with pytest.raises(ConfigurationError, match="the reward nan in environment 2, in step 2 of the evaluation"):
        trainer(tmp_path).validate(small_ppo(data), data)


def vector_step(**columns: Any) -> VectorStep:
    """One step of four rows, of two environments, all of it zeros."""
    zeros, flags = torch.zeros(4), torch.zeros(4, dtype=torch.bool)
    plain: dict[str, Any] = {"obs": torch.zeros(4, 1), "reward": zeros, "terminated": flags, "truncated": flags}
    return VectorStep(**{**plain, "final_obs": None, "valid": ~flags, "info": {}, **columns})


def evaluation_check(has_final_obs: bool = False, autoreset_steps: bool = False) -> EvaluationFiniteCheck:
    check = EvaluationFiniteCheck("Env", 2, has_final_obs=has_final_obs, autoreset_steps=autoreset_steps)
    check.add_reset(torch.zeros(4, 1))
    return check


LAST = at(torch.zeros(4), 2)
ENDED = torch.tensor([False, False, True, False])


@pytest.mark.parametrize(
    ("columns", "settings", "named"),
    [
        ({"reward": LAST}, {}, True),
        ({"reward": LAST, "valid": ~ENDED}, {}, False),
        ({"obs": LAST.unsqueeze(1), "valid": ~ENDED}, {}, False),
        ({"obs": LAST.unsqueeze(1), "valid": ~ENDED}, {"autoreset_steps": True}, True),  # the first of an episode
        ({"final_obs": LAST.unsqueeze(1), "truncated": ENDED}, {"has_final_obs": True}, True),
        ({"final_obs": LAST.unsqueeze(1), "terminated": ENDED}, {"has_final_obs": True}, True),
        ({"final_obs": LAST.unsqueeze(1)}, {"has_final_obs": True}, False),
        ({"final_obs": LAST.unsqueeze(1), "truncated": ENDED}, {}, False),
        ({"reward": torch.full((4,), 3e38), "obs": torch.full((4, 1), 3e38)}, {}, False),
        ({"obs": torch.zeros(4, 1, dtype=torch.uint8)}, {}, False),
    ],
)
def test_values_of_an_evaluation_count_where_they_are_used(
    columns: dict[str, Tensor], settings: dict[str, bool], named: bool
) -> None:
    check = evaluation_check(**settings)
    check.add(torch.zeros(4), vector_step(**columns))

    with pytest.raises(ConfigurationError, match="in environment 1, in step 1 of") if named else nullcontext():
        check.check()


def test_the_part_of_an_evaluations_observation_is_named() -> None:
    check = EvaluationFiniteCheck("Env", 1, has_final_obs=True, autoreset_steps=False)
    parts = {"angle": torch.zeros(4, 2), "speed": LAST.unsqueeze(1), "code": torch.zeros(4, dtype=torch.int64)}
    check.add(torch.zeros(4), step := vector_step(obs=parts))

    with pytest.raises(ConfigurationError, match="an observation with nan at place 0 of speed in environment 2, in st"):
        check.check(step)


def test_a_device_that_is_asked_later_still_names_the_step() -> None:
    check = evaluation_check()
    for reward in (torch.zeros(4), LAST, torch.zeros(4)):
        check.add(torch.zeros(4), step := vector_step(reward=reward))

    with pytest.raises(
        ConfigurationError,
        match="a reward or an observation that is not finite in environment 1, in step 2 of the evaluation",
    ):
        check.check(step)


def test_an_action_that_is_not_finite_is_the_fault_of_the_policy() -> None:
    check = evaluation_check()
    check.add(LAST, step := vector_step(reward=LAST))

    with pytest.raises(ConfigurationError, match="The policy chose an action that is not finite in environment 1 of E"):
        check.check(step)


def test_a_first_observation_of_an_evaluation_comes_from_a_reset() -> None:
    check = EvaluationFiniteCheck("Env", 1, has_final_obs=False, autoreset_steps=False)
    check.add_reset(LAST.unsqueeze(1))

    with pytest.raises(ConfigurationError, match="in environment 2, from the first reset of the evaluation"):
        check.check()


def rollout(**columns: Tensor) -> Rollout:
    """Three steps of two rows, all of them zeros."""
    zeros, flags = torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.bool)
    plain: dict[str, Any] = {
        "obs": torch.zeros(4, 2, 1), "action": zeros, "reward": zeros, "terminated": flags, "truncated": flags,
        "valid": ~flags, "episode_start": flags, "final_obs": torch.zeros(1, 2, 1),
        "final_step": torch.full((1, 2), -1),
        "state": {}, "extras": {}, "episodes": MetricVector((), torch.zeros(0)), "env_steps": 6,
        "has_invalid_steps": False,
    }  # fmt: skip
    return Rollout(**(plain | columns))


def test_a_last_observation_belongs_to_the_step_that_was_truncated() -> None:
    final_obs, final_step = at(torch.zeros(1, 2, 1), 0, 1, 0), torch.tensor([[-1, 2]])

    with pytest.raises(
        NonFiniteError, match="Env returned a last observation that is not finite in environment 1, in st"
    ):
        FiniteCheck("Env", 1).start(rollout(final_obs=final_obs, final_step=final_step), has_final_obs=True)


def test_the_first_observation_comes_from_a_reset() -> None:
    with pytest.raises(NonFiniteError, match="with nan at place 0 in environment 0, from its first reset:"):
        FiniteCheck("Env", 2).start(rollout(obs=at(torch.zeros(4, 2, 1), 0, 1, 0)), has_final_obs=False)


@pytest.mark.parametrize(
    "columns",
    [
        {"reward": torch.full((3, 2), 3e38)},  # their sum is infinite
        {"reward": at(torch.zeros(3, 2), 1, 0), "valid": torch.tensor([[True, True], [False, True], [True, True]])},
        {"obs": at(torch.zeros(4, 2, 1), 1, 0, 0), "valid": torch.tensor([[True, True], [False, True], [True, True]])},
        {"obs": at(torch.zeros(4, 2, 1), 2, 0, 0), "action": at(torch.zeros(3, 2), 1, 0)},  # the policy's mistake
        {"final_obs": at(torch.zeros(1, 2, 1), 0, 0, 0)},  # an unused slot
    ],
)
def test_finite_values_and_what_nothing_is_learned_from_are_let_through(columns: dict[str, Tensor]) -> None:
    FiniteCheck("Env", 1).start(rollout(**columns), has_final_obs=True)


def test_whole_numbers_are_not_summed() -> None:
    FiniteCheck("Env", 1).start(rollout(obs=torch.zeros(4, 2, 1, dtype=torch.uint8)), has_final_obs=False)
