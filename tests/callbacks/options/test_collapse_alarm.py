import warnings

import pytest

from callbacks.options.collapse_alarm import OptionCollapseMonitor

HEALTHY = {
    "option/usage_0": 0.6,
    "option/usage_1": 0.4,
    "option/usage_min": 0.4,
    "option/length_mean": 5.0,
    "option/mutual_information": 0.3,
    "option/divergence_mean": 0.2,
}
SICK = {"usage_min": 0.01, "length_mean": 1.0, "mutual_information": 0.001, "divergence_mean": 0.001}
KINDS = dict(zip(SICK, ("usage", "length", "information", "divergence"), strict=True))


@pytest.mark.parametrize("name", SICK)
def test_every_kind_is_told_apart_and_can_be_switched_off(name: str):
    values = HEALTHY | {f"option/{name}": SICK[name]}

    found = OptionCollapseMonitor().collapsed(values)
    silent = OptionCollapseMonitor(**{KINDS[name]: 0.0}).collapsed(values)

    assert [kind for kind, problem in found.items() if problem] == [KINDS[name]]
    assert f"option/{name} is {SICK[name]:.3g}" in str(found[KINDS[name]])
    assert not any(silent.values())


def test_healthy_options_and_ones_that_have_not_ended_yet_raise_no_alarm():
    still_running = {tag: value for tag, value in HEALTHY.items() if "length" not in tag}

    assert not any(OptionCollapseMonitor().collapsed(HEALTHY).values())
    assert not any(OptionCollapseMonitor().collapsed(still_running).values())


def test_lengths_arejudged_by_the_shortest_there_can_be():
    assert OptionCollapseMonitor().collapsed(HEALTHY, min_duration=4)["length"]


def test_an_alarm_needs_patience_sounds_once_and_can_sound_again():
    alarm, sick = OptionCollapseMonitor(patience=2), {"length": "too short"}

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for found in (sick, sick, sick, {"length": None}, sick, sick):
            alarm.update_counts(found)

    assert len(said) == 2
    assert "Options collapse (length): too short for 2 times. Options end almost at once: raise" in str(said[0].message)
    assert alarm.alarms == ["length"]


def evaluated(mean: float, std: float = 0.0, **more: float) -> dict[str, float]:
    return {"eval/return_mean": mean, "eval/return_std": std, **more}


def test_an_idle_evaluation_is_one_that_always_returns_the_same_poor_number():
    training = {"rollout/return_mean": 90.0}

    assert OptionCollapseMonitor().idle(evaluated(0.0)) == "every evaluated episode returned 0"
    assert OptionCollapseMonitor().idle(evaluated(10.0, **training)) == "every evaluated episode returned 10"
    assert OptionCollapseMonitor().idle(evaluated(0.0, std=3.0)) is None
    assert OptionCollapseMonitor().idle(evaluated(100.0, **training)) is None


def test_the_alarm_goes_on_after_a_resume():
    first, second = OptionCollapseMonitor(), OptionCollapseMonitor()
    first.update_counts({"usage": "too few"})
    first.idle(evaluated(0.0))

    second.load_state_dict(first.state_dict())

    assert second.counts == first.counts and second.state_dict() == first.state_dict()
