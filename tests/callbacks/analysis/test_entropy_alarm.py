"""A policy that stays almost uniform is reported once, with what to change."""

import math
import warnings
from pathlib import Path
from typing import Any

import pytest

from callbacks.analysis.entropy_alarm import ACTIONS, OPTIONS, EntropyAlarm, max_entropies
from datamodules.core.errors import ConfigurationError
from modules.ppo.ppo import PPO
from modules.sac.sac import SAC
from modules.sac_options.sac_options import SACOptions
from tests.oracles.sac import Drift, choice_data, fitted_sac
from tests.support.small_runs import small_ppo, snake_data, trainer

EARLY: dict[str, Any] = {"patience": 2, "after": 0.0}


def warned(alarm: EntropyAlarm, entropies: list[float]) -> int:
    """Number of warnings after these entropies of at most 1."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for entropy in entropies:
            alarm.check(ACTIONS, entropy, 1.0, "Lower it.")
    return len(said)


def test_it_needs_patience_in_a_row_and_is_said_once() -> None:
    assert warned(EntropyAlarm(patience=2), [0.96, 0.94, 0.96, 0.94]) == 0
    assert warned(EntropyAlarm(patience=2), [0.96, 0.96, 0.96, 0.5, 0.96, 0.96]) == 1
    assert warned(EntropyAlarm(patience=2, fraction=0.5), [0.6, 0.6]) == 1
    assert warned(EntropyAlarm(patience=3), [0.96, 0.96]) == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"fraction": 0.0}, "fraction 0.0; choose a fraction above 0, up to 1"),
        ({"fraction": 1.5}, "fraction 1.5; choose a fraction above 0, up to 1"),
        ({"patience": 0}, "patience 0; choose at least 1"),
    ],
)
def test_settings_that_never_warn_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^EntropyAlarm has {said}.$"):
        EntropyAlarm(**wrong)


def test_counts_survive_a_checkpoint() -> None:
    alarm, resumed = EntropyAlarm(patience=2), EntropyAlarm(patience=2)
    warned(alarm, [0.96])
    resumed.load_state_dict(alarm.state_dict())

    assert warned(resumed, [0.96]) == 1 and warned(resumed, [0.96, 0.96]) == 0


def test_maxima_are_those_of_uniform_policies() -> None:
    choices = {**Drift.spaces, "action_type": "multidiscrete", "action_sizes": [2, 3], "action_low": []}

    assert max_entropies(SAC(Drift.spaces)) == {ACTIONS: math.log(2)}
    assert max_entropies(SACOptions(Drift.spaces, num_options=4)) == {ACTIONS: math.log(2), OPTIONS: math.log(4)}
    assert max_entropies(PPO(Drift.spaces)) == {}
    assert max_entropies(PPO({**choices, "action_high": []})) == pytest.approx({ACTIONS: math.log(6)})


def test_a_run_whose_temperature_keeps_it_uniform_is_told_what_to_lower(tmp_path: Path) -> None:
    high = {"init_temperature": 1e4, "learn_temperature": False}
    with pytest.warns(UserWarning, match=r"train/entropy is 0.69.*the policy is almost uniform. Lower model.init_temp"):
        fitted_sac(tmp_path, unmasked(), EntropyAlarm(**EARLY), **high)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fitted_sac(tmp_path, unmasked(), EntropyAlarm(patience=2, after=1.1), **high)
    assert not any("almost uniform" in str(each.message) for each in said)


def unmasked() -> Any:
    return choice_data(env="CartPole-v1", env_kwargs={}, backend="sync")


def test_ppo_is_told_its_own_settings(tmp_path: Path) -> None:
    data = snake_data()
    with pytest.warns(UserWarning, match=r"Lower model.entropy_coef"):
        trainer(tmp_path, EntropyAlarm(fraction=0.1, **EARLY)).fit(small_ppo(data), datamodule=data)
