"""The benchmark: what it prints, what it refuses, and the arithmetic of its measurements."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from app.benchmark.main import command_line, compared, comparison, known_spread, parsed, ratio, speed
from app.timing import latency, loop_without_trainer, past_warm_up, percentile, spread
from modules.active_dynamics.active_dynamics import ActiveDynamics
from modules.exploration.policies import HeldRandomAction
from tests.app.conftest import Run
from tests.support.dynamics_fixtures import explorer, spring_data
from tests.support.small_runs import trainer

SMALL = ("data.num_envs=4", "data.rollout_length=16", "model.update_epochs=2", "model.num_minibatches=2")
WHAT_EVERY_RESULT_HOLDS = (
    "env_steps_per_s", "spread", "collect_s", "prepare_s", "update_s", "other_s", "peak_memory_mib", "compile_s",
    "start_up_s", "device", "torch", "config", "settings", "execution", "machine", "versions", "num_agents",
)  # fmt: skip


@pytest.mark.usefixtures("forked_programs")
def test_two_configs_are_compared_and_the_last_line_is_json(run: Run, folder: Path) -> None:
    file = folder / "result.json"

    outcome = run(
        "benchmark", "--config", "ppo_cartpole.yaml", "--against", "ppo_cartpole_large.yaml",
        "--repeats", "2", "--seconds", "0.3", "--threads", "1", "--max-spread", "inf", "--json", str(file),
        "--set", *SMALL,
    )  # fmt: skip

    result = json.loads(outcome.out.splitlines()[-1])
    assert outcome.code == 0 and result == json.loads(file.read_text())
    assert not set(WHAT_EVERY_RESULT_HOLDS) - set(result)
    assert result["ratio"] == pytest.approx(result["env_steps_per_s"] / result["peers"]["ppo_cartpole_large.yaml"])
    parts = (result[f"{name}_s"] for name in ("collect", "prepare", "update"))
    assert 0.5 * result["bare_s"] < sum(parts) < result["bare_s"]
    assert "Evaluation is switched off" in outcome.out and "Changed: data.num_envs=4" in outcome.out
    assert not (folder / "runs").exists(), "the run folder was to be a temporary one"


@pytest.mark.usefixtures("forked_programs")
def test_several_agents_are_counted_beside_their_environments(run: Run, folder: Path) -> None:
    outcome = run(
        "benchmark", "--config", "ppo_cartpole.yaml", "--repeats", "1", "--seconds", "0.2", "--threads", "1",
        "--set", *SMALL, "data.backend=auto", "data.env=GridWorld-v0",
        "data.env_kwargs={num_agents: 3, size: 8, num_maps: 2}",
    )  # fmt: skip

    result = json.loads(outcome.out.splitlines()[-1])
    assert result["num_agents"] == 3
    assert f"{3 * result['env_steps_per_s']:,.0f} agent steps/s, 3 agents an environment" in outcome.out


@pytest.mark.usefixtures("forked_programs")
def test_the_members_of_a_population_are_counted_together(run: Run) -> None:
    outcome = run(
        "benchmark", "--config", "ppo_fast.yaml", "--repeats", "1", "--seconds", "0.2", "--threads", "1",
        "--set", "model.class_path=modules.ppo.population.PPOPopulation", "model.init_args.seeds=[1,2,3]",
        "data.num_envs=8", "data.rollout_length=16", "model.init_args.num_minibatches=1", "trainer.accelerator=cpu",
    )  # fmt: skip

    result = json.loads(outcome.out.splitlines()[-1])
    assert result["num_members"] == 3
    assert f"{3 * result['env_steps_per_s']:,.0f} env steps/s of 3 members together" in outcome.out


@pytest.mark.usefixtures("forked_programs")
def test_a_replay_is_measured_once_it_learns(run: Run) -> None:
    outcome = run(
        "benchmark", "--config", "dqn_cartpole.yaml", "--repeats", "1", "--seconds", "0.1", "--threads", "1",
        "--set", "data.learning_starts=6_000", "data.batch_size=4", "data.replay_ratio=1", "trainer.accelerator=cpu",
    )  # fmt: skip

    result = json.loads(outcome.out.splitlines()[-1])
    assert outcome.code == 0 and result["update_s"] > 0


def test_iterations_take_their_usual_time_after_learning_starts_and_the_warm_up() -> None:
    replay, rollout = (SimpleNamespace(datamodule=SimpleNamespace(**values)) for values in ({"learning_starts": 9}, {}))
    warm_up = SimpleNamespace(active=torch.tensor(True))

    assert not past_warm_up(replay, SimpleNamespace(updates=0)) and past_warm_up(replay, SimpleNamespace(updates=1))
    assert past_warm_up(rollout, SimpleNamespace(updates=0))
    assert not past_warm_up(rollout, SimpleNamespace(updates=5, warm_up=warm_up))


@pytest.mark.fault
def test_several_devices_are_compared_with_one(run: Run, folder: Path) -> None:
    outcome = run(
        "benchmark", "--config", "ppo_cartpole.yaml", "--repeats", "1", "--seconds", "0.3", "--threads", "1",
        "--max-spread", "inf", "--set", *SMALL, "trainer.devices=2", "trainer.accelerator=cpu",
    )  # fmt: skip

    result = json.loads(outcome.out.splitlines()[-1])
    assert outcome.code == 0 and result["ranks"] == 2 and result["all_reduce_s"] > 0
    assert result["ratio"] == pytest.approx(result["env_steps_per_s"] / result["peers"]["one device"])
    assert "one device" in outcome.out and "measured alone" in outcome.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--config", "ppo_cartpole.yml"), "There is no config `ppo_cartpole.yml`"),
        (("--config", "ppo_cartpole.yaml", "--repeats", "0"), "--repeats is 0; it must be at least 1"),
        (("--config", "ppo_cartpole.yaml", "--repeats", "many"), "invalid int value: 'many'"),
        (("--config", "ppo_cartpole.yaml", "--seconds", "nan"), "--seconds is nan; it must be above 0"),
        (("--config", "ppo_cartpole.yaml", "--max-spread", "0"), "--max-spread is 0; it must be above 0"),
        (("--config", "ppo_cartpole.yaml", "--set", "data.num_envs"), "--set data.num_envs is not a setting"),
        (("--config", "ppo_cartpole.yaml", "--against", "sb4"), "did you mean `sb3`?"),
        (
            ("--config", "ppo_cartpole.yaml", "--against", "sb3", "--set", "trainer.devices=2"),
            "the peer sb3 trains on one device: leave out trainer.devices or --against sb3",
        ),
        (("--config", "ppo_cartpole.yaml", "--against", "none.yaml"), "There is no config `none.yaml`"),
        (("--config", "ppo_cartpole.yaml", "--json", "nowhere/a.json"), "there is no folder nowhere"),
        (("--config", "ppo_cartpole.yaml", "--data.num_envs", "4"), "is not an option: change settings with --set"),
        ((), "the following arguments are required: -c/--config"),
    ],
)
def test_bad_words_are_refused_in_one_sentence(run: Run, words: tuple[str, ...], sentence: str) -> None:
    outcome = run("benchmark", *words)

    assert outcome.code == 2 and sentence.lower() in outcome.err.lower()
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.usefixtures("forked_programs")
def test_a_bad_setting_is_refused_in_the_words_of_fit(run: Run) -> None:
    outcome = run("benchmark", "--config", "ppo_cartpole.yaml", "--set", "model.gama=0.9")

    assert outcome.code == 2 and "did you mean" in outcome.err and "gamma" in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_what_makes_a_run_one_to_be_timed_wins_over_settings() -> None:
    words = command_line(["a.yaml"], ["trainer.limit_val_batches=3"])

    assert words.index("--trainer.limit_val_batches=3") < words.index("--trainer.limit_val_batches=0")
    assert words[:2] == ["--config", str(Path("a.yaml").absolute())]


def test_every_contestant_warms_up_before_the_first_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[tuple[str, str]] = []

    class Recorded:
        """A contestant that does nothing but note what it is told."""

        def __init__(self, name: str, *_: Any):
            self.name = name

        def ask(self, order: str) -> dict[str, Any]:
            orders.append((self.name, order))
            return {}

        def repeat(self, seconds: float) -> None:
            orders.append((self.name, f"repeat {seconds}"))

        def speeds(self) -> list[float]:
            return [1.0]

    monkeypatch.setattr("app.benchmark.main.BenchmarkWorker", Recorded)
    monkeypatch.setattr("app.benchmark.main.outcome", lambda *_: {})
    words = ["--config", "ppo_cartpole.yaml", "--against", "ppo_fast.yaml", "--repeats", "2", "--seconds", "4"]

    compared(parsed(words))

    names = ("ppo_cartpole.yaml", "ppo_fast.yaml")
    assert orders == [(name, "train 2.0") for name in names] + [(name, "repeat 4.0") for name in names] * 2


def test_a_ratio_that_differs_between_the_repeats_is_not_told() -> None:
    def contestant(*speeds: float) -> Any:
        return SimpleNamespace(speeds=lambda: list(speeds))

    even = contestant(200.0, 100.0, 400.0), contestant(100.0, 50.0, 200.0)
    uneven = contestant(200.0, 100.0, 400.0), contestant(100.0, 100.0, 100.0)

    assert ratio(*even, max_spread=0.2) == 2.0
    assert ratio(*uneven, max_spread=0.2) is None and ratio(*uneven, max_spread=float("inf")) == 2.0


@pytest.mark.usefixtures("forked_programs")
def test_one_repeat_has_neither_a_spread_nor_a_ratio(run: Run) -> None:
    outcome = run(
        "benchmark", "--config", "ppo_cartpole.yaml", "--against", "ppo_cartpole_large.yaml",
        "--repeats", "1", "--seconds", "0.1", "--threads", "1", "--set", *SMALL,
    )  # fmt: skip

    result = json.loads(outcome.out.splitlines()[-1])
    assert result["spread"] is None and result["peers_spread"] == {"ppo_cartpole_large.yaml": None}
    assert result["ratio"] is None and result["ratios"] == {"ppo_cartpole_large.yaml": None}
    table = "\n".join(outcome.out.splitlines()[:-1])
    assert "one repeat has no spread: no ratio" in table and "times as fast" not in table and "spread 0.0%" not in table


def test_the_ratio_of_one_repeat_is_told_only_on_request() -> None:
    ours, other = (SimpleNamespace(speeds=lambda speed=each: [speed]) for each in (100.0, 50.0))

    assert ratio(ours, other, max_spread=10.0) is None  # type: ignore[arg-type]
    assert ratio(ours, other, max_spread=float("inf")) == 2.0  # type: ignore[arg-type]
    assert known_spread([5.0]) is None and known_spread([5.0, 5.0]) == 0
    assert "spread" not in speed(5.0, None, 5.0) and "spread 0.0%" in speed(5.0, 0.0, 5.0)


@pytest.mark.parametrize(
    ("value", "text"), [(0.003652, "0.00365"), (0.98765, "0.988"), (1.2345, "1.23"), (1234.5, "1234.50")]
)
def test_a_ratio_has_significant_digits(value: float, text: str) -> None:
    said = comparison({"config": "a.yaml", "ratios": {"b.yaml": value}, "repeats": 5}, "b.yaml")

    assert said == f"a.yaml is {text} times as fast"


def test_percentiles_and_spread_of_known_numbers() -> None:
    values = [float(value) for value in range(1, 101)]

    assert (percentile(values, 0.95), percentile(values, 0.99), percentile([7.0], 0.5)) == (95.0, 99.0, 7.0)
    assert spread([90.0, 100.0, 120.0]) == pytest.approx(0.3)
    assert spread([5.0]) == 0


def test_latency_is_that_of_one_call() -> None:
    measured = latency(lambda: time.sleep(0.01), 0.1, torch.device("cpu"))

    assert 0.01 <= measured.median <= measured.p95 <= measured.p99
    assert measured.mean >= 0.01


def test_the_bare_loop_refits_as_often_as_the_run_does(tmp_path: Path) -> None:
    data = spring_data(num_updates=2)
    model = explorer(data, exploration=HeldRandomAction(), posterior_refit_interval=4)
    found: list[tuple[int, int]] = []

    class Between(Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: ActiveDynamics, *_: Any) -> None:
            refit, times = pl_module.posterior.refit_, []
            pl_module.posterior.refit_ = lambda *args: (times.append(1), refit(*args))
            found.append((loop_without_trainer(trainer, pl_module, 0.01).iterations, len(times)))
            trainer.should_stop = True

    trainer(tmp_path, Between(), max_steps=2, log_every_n_steps=8).fit(model, datamodule=data)

    iterations, refits = found[0]
    assert iterations == 4 * refits > 0
