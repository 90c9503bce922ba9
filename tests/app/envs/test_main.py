"""`python -m app envs` lists what can be trained on, and judges one environment."""

import pytest

from app.envs import check, listing
from datamodules.core.errors import ConfigurationError
from tests.app.conftest import Run

HERE = "tests.support.faulty_envs"


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short measurements, in this process."""
    monkeypatch.setattr(check, "SECONDS", 0.05)
    monkeypatch.setattr(check, "PLAYED_STEPS", 80)
    monkeypatch.setattr(check, "env_backends", lambda env, num_envs: ["sync"])


def test_ids_are_listed_with_spaces_and_backends(run: Run) -> None:
    outcome = run("envs", "cartpole")

    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in outcome.out.splitlines()}
    assert lines["CartPole-v1"] == "float32 [4] -> 2 actions vector, sync, async, pool"
    assert lines["CartPoleForce-v0"].startswith("float32 [3] -> continuous [1]")
    assert "CartPole-v0" not in lines, "only the newest version"
    assert "No module named 'jax'" in lines["phys2d/CartPole-v1"]


def test_a_pattern_may_have_wildcards(run: Run) -> None:
    outcome = run("envs", "Four*")
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["FourRooms-v0"]


def test_a_module_is_imported_and_its_ids_are_listed(run: Run) -> None:
    outcome = run("envs", "tests.support.image_envs:*Camera*")
    assert outcome.out.split()[0] == "tests.support.image_envs:WrappedCamera-v0"
    assert "uint8 [40, 48, 3]" in outcome.out


def test_a_long_reason_is_cut_between_two_words(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(env: str) -> None:
        raise ConfigurationError(f"{env} needs {' '.join(['a-long-word'] * 20)}")

    monkeypatch.setattr(listing, "probe_spaces", refuse)

    assert run("envs", "Four*").out.split("unavailable: ")[1] == f"needs {'a-long-word ' * 7}...\n"


def test_speed_is_measured_on_request(run: Run) -> None:
    assert run("envs", "MountainCar-v0", "--speed").out.strip().endswith("steps/s")


def test_a_sound_environment_passes_with_its_episodes_and_speed(run: Run) -> None:
    outcome = run("envs", "--check", f"{HERE}.Corridor")

    assert outcome.code == 0 and "To fix" not in outcome.out
    for said in ("float32 [1] -> 2 actions", "check_env passes", "random steps: mean return", "sync", "Train: python"):
        assert said in outcome.out, said


def test_the_command_that_trains_trusts_the_same_modules(run: Run) -> None:
    outcome = run("envs", "--check", f"{HERE}.Corridor", "--trust", "mine")

    assert outcome.out.endswith(f"--data.env {HERE}.Corridor --data.backend auto --trust tests --trust mine\n")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("NoOptions", "takes no options in its reset: write reset(self, *, seed=None, options=None)"),
        ("NaNReward", "Rewards or observations are not finite"),
        ("Unseeded", "check_env: AssertionError"),
        ("RaisesLater", "KeyError: 'door'"),
    ],
)
def test_what_has_to_be_fixed_is_said_and_ends_with_code_1(run: Run, fault: str, said: str) -> None:
    outcome = run("envs", "--check", f"{HERE}.{fault}")

    assert outcome.code == 1
    assert said in outcome.out.partition("To fix:")[2], outcome.out


def test_an_environment_without_end_or_reward_is_advised_about(run: Run) -> None:
    outcome = run("envs", "--check", f"{HERE}.Endless")

    assert outcome.code == 0
    assert "TimeLimit" in outcome.out and "Every reward was 0" in outcome.out


def test_arguments_reach_the_environment(run: Run) -> None:
    outcome = run("envs", "--check", "Snake-v0", "--env_kwargs", '{"dim": 6, "distance_to_border": 2}')
    assert "uint8 [3, 6, 6]" in outcome.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing-like-it",), "No environment matches nothing-like-it"),
        (("--check", "CartPole-v9"), "did you mean CartPole-v"),
        (("--check", f"{HERE}.Corridr"), f"The module `{HERE}` has no `Corridr`: did you mean `Corridor`?"),
        (("--check", f"{HERE}.Xyz"), f"The module `{HERE}` has no `Xyz`: choose from Corridor, Endless, "),
        (("--check", f"{HERE}.np"), f"{HERE}.np is not an environment"),
        (("--check", "datamodules.envs.carball.CarBal"), "datamodules.envs.carball.CarBal is not an environment"),
        (("--check", "evil_module.Env"), "if you trust that code, add `--trust evil_module`"),
        (("evil_module:*",), "if you trust that code, add `--trust evil_module`"),
        (("--check", "os:Env"), "`os:Env` is refused: its name may not import this part of `os`"),
        (("Cart", "--check", "CartPole-v1"), "without PATTERN"),
        (("--check", "CartPole-v1", "--env_kwargs", "[1]"), "is not a JSON object"),
    ],
)
def test_invalid_input_is_answered_in_a_sentence(run: Run, words: tuple[str, ...], said: str) -> None:
    outcome = run("envs", *words)
    assert outcome.code == 2 and said in outcome.err


def test_no_window_is_opened_to_check_the_rendering(run: Run) -> None:
    outcome = run("envs", "--check", f"{HERE}.Unrenderable")

    assert outcome.code == 1 and "Gymnasium's check_env: OSError: no EGL" in outcome.out
