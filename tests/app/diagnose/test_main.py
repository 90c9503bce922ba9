import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from app.diagnose.main import (
    bottleneck,
    candidate_changes,
    learner_speed,
    report,
    report_changes,
    rollout_bytes,
    shares,
)
from app.diagnose.microbenchmarks import random_actions
from app.diagnose.profiler import ProfilerCallback, gpu_results, outside_phases
from callbacks.performance.nvml import GpuReading
from datamodules.core.signals import STOP_SIGNALS
from datamodules.rollout import RolloutDataModule
from tests.app.conftest import Run
from tests.support.small_runs import fitted, snake_data

CONFIG = """
model:
  class_path: modules.PPO
  init_args: {update_epochs: 1, num_minibatches: 4}
data:
  class_path: datamodules.RolloutDataModule
  init_args:
    env: Snake-v0
    env_kwargs: {dim: 6, distance_to_border: 2, observation: features}
    num_envs: 8
    rollout_length: 4
trainer:
  accelerator: cpu
  max_epochs: 1
  logger: {class_path: lightning.pytorch.loggers.CSVLogger, init_args: {save_dir: runs, name: small}}
"""


@pytest.fixture
def diagnose(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the verb with very short measurements."""
    (folder / "a.yaml").write_text(CONFIG)
    monkeypatch.setattr("app.diagnose.profiler.SECONDS", 0.05)
    return lambda *words: run("diagnose", "--config", "a.yaml", *words)


def test_everything_is_measured_and_the_last_line_is_json(diagnose: Any, folder: Path) -> None:
    outcome = diagnose("--json", "found.json")

    found = json.loads(outcome.out.splitlines()[-1])
    phases = sum(found[f"{name}_s"] for name in ("collect", "prepare", "update", "other"))
    assert outcome.code == 0
    assert phases == pytest.approx(found["iteration_s"], rel=0.01)
    assert found["environment"]["env_steps_per_s"] > found["env_steps_per_s"]
    assert found["inference"]["p95_ms"] <= found["inference"]["p99_ms"] and found["inference"]["calls_per_s"] > 0
    assert found["ticks_per_s"] == found["env_steps_per_s"] and "ticks/s" in outcome.out
    assert found["checks"]["minibatches_that_divide"] == [1, 2, 4, 8, 16, 32]
    assert found["could_be_compiled"] == ["collect"] and found["checks"]["compile"].startswith("collect eager")
    assert {change["setting"] for change in found["changes"]} >= {"--data.num_envs 16", "--data.policy_lag 1"}
    assert json.loads((folder / "found.json").read_text()) == found
    assert not (folder / "runs").exists()


def test_a_replay_is_diagnosed(run: Run, diagnose: Any) -> None:
    sizes = ("num_envs=2", "train_freq=4", "batch_size=4", "replay_ratio=1", "capacity=400", "learning_starts=8")
    overrides = [f"--data.{size}" for size in sizes]

    outcome = run("diagnose", "--config", "dqn_cartpole.yaml", "--trainer.accelerator=cpu", *overrides)

    found = json.loads(outcome.out.splitlines()[-1])
    assert outcome.code == 0 and "rollout_mib" in found["checks"]
    assert {"store", "sample"} < set(shares(found))
    assert sum(shares(found).values()) == pytest.approx(found["iteration_s"], rel=0.01)


def test_a_replay_is_measured_while_it_learns(run: Run, diagnose: Any) -> None:
    sizes = ("num_envs=2", "batch_size=4", "replay_ratio=2", "learning_starts=1_000_000")
    overrides = [f"--data.{size}" for size in sizes]

    outcome = run("diagnose", "--config", "dqn_cartpole.yaml", "--trainer.accelerator=cpu", "--test=update", *overrides)

    found = json.loads(outcome.out.splitlines()[-1])
    assert outcome.code == 0 and found["update_s"] > 0 and found["sample_s"] > 0


@pytest.mark.parametrize(("test", "part"), [("env", "environment"), ("inference", "inference"), ("update", "update_s")])
def test_a_part_can_be_measured_alone(diagnose: Any, test: str, part: str) -> None:
    found = json.loads(diagnose("--test", test).out.splitlines()[-1])

    assert part in found
    assert not {"environment", "inference", "changes"} - {part} & set(found)


def test_the_speed_is_compared_with_the_slower_of_environments_and_learner() -> None:
    times = {"iteration_s": 0.4, "collect_s": 0.2, "prepare_s": 0.05, "update_s": 0.15, "other_s": 0.0}
    found = {"env_steps_per_s": 1000.0, "ticks_per_s": 1000.0, "execution": {"device": "cpu"}, "beside": [], **times}
    alone = {"step_s": 0.1, "env_steps_per_s": 8000.0, "ticks_per_s": 8000.0}

    assert learner_speed(found) == pytest.approx(2000)
    assert "reaches 50% of the slower" in "\n".join(report(found | {"environment": alone}))


def test_overrides_act_as_in_fit(diagnose: Any) -> None:
    words = ["--data.env", "CartPole-v1", "--data.env_kwargs", "{}", "--data.backend", "vector", "--data.num_envs", "4"]

    found = json.loads(diagnose("--test", "env", *words).out.splitlines()[-1])

    assert found["execution"]["environments"] == "4 x CartPole-v1, backend vector"


def test_what_goes_on_beside_the_learning_is_said_and_its_copy_foretold(diagnose: Any) -> None:
    found = json.loads(diagnose("--data.policy_lag", "1").out.splitlines()[-1])
    before = json.loads(diagnose().out.splitlines()[-1])

    assert found["execution"]["acting"] == "8 rows a policy call, concurrently with learning"
    assert found["checks"]["rollout_mib"] == pytest.approx(2 * before["checks"]["rollout_mib"], abs=0.011)
    assert found["iteration_s"] < sum(found[f"{name}_s"] for name in ("collect", "prepare", "update", "other"))
    assert "--data.policy_lag 1" not in {change["setting"] for change in found["changes"]}


def test_a_run_on_envpool_s_environments_trains_and_is_diagnosed(run: Run, diagnose: Any, folder: Path) -> None:
    pytest.importorskip("envpool", reason="needs the extra envpool")
    words = ["--data.env", "CartPole-v1", "--data.env_kwargs", "{}", "--data.backend", "envpool"]

    trained = run("fit", "--config", "a.yaml", *words, "--data.total_env_steps", "128")
    found = json.loads(diagnose("--test", "env", *words).out.splitlines()[-1])

    assert trained.code == 0
    assert found["execution"]["environments"] == "8 x CartPole-v1, backend envpool"
    assert found["environment"]["env_steps_per_s"] > 0


def test_ticks_are_those_of_the_simulator_and_env_steps_count_no_agents(diagnose: Any) -> None:
    several = ["--data.env", "Carball-v0", "--data.env_kwargs", "{mode: 2v2, tick_skip: 4, action_repeat: 3}"]
    repeated = ["--data.env", "CartPole-v1", "--data.env_kwargs", "{}", "--data.wrappers"]
    repeated += ["[{class_path: RepeatAction, init_args: {num_repeats: 2}}]"]

    for words, ticks in ((several, 12), (repeated, 2)):
        found = json.loads(diagnose("--test", "env", *words).out.splitlines()[-1])
        alone = found["environment"]
        assert alone["ticks_per_s"] == pytest.approx(ticks * alone["env_steps_per_s"])
        assert alone["env_steps_per_s"] == pytest.approx(8 / alone["step_s"])


def test_gpu_results_hold_the_lowest_and_the_highest_utilisation() -> None:
    samples = [
        (float(at), {0: GpuReading(used, 500.0, 2000.0, 50.0, 300.0, 1500.0)}) for at, used in enumerate((20, 80))
    ]

    found = gpu_results(samples)

    assert (found["utilisation"], found["utilisation_min"], found["utilisation_max"]) == (50, 20, 80)
    assert found["memory_peak_percent"] == 25 and gpu_results([]) == {}


STORED = """
model:
  class_path: modules.ActiveDynamics
  init_args:
    model:
      class_path: modules.FullyObservedModel
      init_args: {dynamics: {class_path: modules.networks.latent.MLPDynamics, init_args: {hidden: [8]}}}
    exploration: {class_path: modules.exploration.ZeroAction}
data:
  class_path: datamodules.OfflineSequenceDataModule
  init_args: {env: Duffing-v0, sequences: 2, steps: 6, sequence_length: 4, batch_size: 3}
"""


def test_data_that_was_stored_has_nothing_to_collect(diagnose: Any, folder: Path) -> None:
    trained = CONFIG[CONFIG.index("trainer:") :]
    (folder / "a.yaml").write_text(STORED + trained)

    outcome, refused = diagnose(), diagnose("--test", "inference")

    found = json.loads(outcome.out.splitlines()[-1])
    assert found["execution"]["environments"].startswith("none, learning from")
    assert not {"collect_s", "environment", "inference"} & set(found) and "rollout_mib" not in found["checks"]
    assert {change["setting"] for change in found["changes"]} == {"--data.batch_size 6"}
    assert refused.code == 2 and "use --test update" in refused.err and refused.err.count("\n") == 1


REFUSED = {
    "a test that is none": (["--test", "cpu"], "choose one of all, env, inference, update, gpu"),
    "no test": (["--test"], "--test: expected one argument"),
    "minibatches that do not divide": (["--model.num_minibatches", "5"], "the nearest that do are [1, 2, 4, 8]"),
    "a rollout that does not fit": (["--data.num_envs", "100000000000"], "set data.num_envs to at most"),
    "a folder that is not there": (["--json", "no/a.json"], "there is no folder no"),
    "a checkpoint": (["--ckpt_path", "a.ckpt"], "There is no checkpoint `a.ckpt`"),
    "a misspelt key": (["--data.num_env", "4"], "num_envs"),
}


@pytest.mark.parametrize(("words", "sentence"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_one_sentence(diagnose: Any, words: list[str], sentence: str) -> None:
    outcome = diagnose(*words)

    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert sentence in outcome.err


def test_the_storage_is_foretold_from_the_spaces(tmp_path: Path) -> None:
    sizes = []

    class Weighed(Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            storage = trainer.datamodule.collector.buffer.storage
            sizes.append(sum(column.nbytes for name, column in storage.items() if not name.startswith("episode/")))

    data = snake_data(total_env_steps=128)
    fitted(tmp_path, data, Weighed())

    assert sizes == [rollout_bytes(data.spaces, data.rollout_length, data.num_envs)]


@pytest.mark.parametrize(
    ("env", "shape"), [("CartPole-v1", (3, 2)), ("Pendulum-v1", (3, 2, 1))], ids=["discrete", "continuous"]
)
def test_random_actions_lie_in_the_space(env: str, shape: tuple[int, ...]) -> None:
    spaces = RolloutDataModule(env).spaces

    actions = random_actions(spaces, (3, 2), torch.device("cpu"))

    assert actions.shape == shape
    assert actions.abs().max() <= 2


def test_the_bottleneck_of_collecting_is_the_larger_of_its_parts() -> None:
    found = {"collect_s": 3.0, "prepare_s": 1.0, "update_s": 2.0, "other_s": 0.0}
    parts = {"inference": {"mean_ms": 2.0}, "environment": {"step_s": 0.001}}

    assert bottleneck(found | parts) == "collect (inference)"
    assert bottleneck(found | {"update_s": 4.0}) == "update"


def test_what_is_outside_the_phases_is_compared_with_the_longer_of_two_that_run_at_once() -> None:
    phases = {"collect": 5.0, "prepare": 1.0, "update": 2.0}

    assert outside_phases(9.0, phases, []) == 1.0
    assert outside_phases(7.0, phases, ["collect"]) == 2.0
    assert outside_phases(7.0, phases | {"collect": 1.0}, ["collect"]) == 4.0
    assert outside_phases(6.0, phases, []) == 0.0


@pytest.mark.parametrize(
    ("place", "workers", "numbers"),
    [
        ("collect (environment)", 31, [8, 16]),
        ("collect (environment)", 2, [1]),
        ("collect (environment)", 1, []),
        ("collect (inference)", 31, []),
    ],
)
def test_fewer_workers_are_tried_where_environments_bound(place: str, workers: int, numbers: list[int]) -> None:
    run: Any = SimpleNamespace(datamodule=snake_data(), model=SimpleNamespace(supports_policy_lag=False))

    changes = candidate_changes(place, {"backend": "pool", "workers": workers}, run)

    assert [value for flag, value in changes if flag == "--data.num_workers"] == [str(each) for each in numbers]


def test_a_gain_within_the_spread_of_two_runs_is_no_gain() -> None:
    changes = [{"setting": name, "env_steps_per_s": speed} for name, speed in (("a", 105.0), ("b", 210.0), ("c", 9.0))]

    _, a, b, c = report_changes(changes, 110.0, 100.0)

    assert "no reason to change" in a and "2.00 times as many" in b and "slower" in c


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_while_measuring_exits_with_its_code(
    diagnose: Any, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setattr(ProfilerCallback, "_begin", lambda *_: os.kill(os.getpid(), number))

    assert diagnose("--test", "update").code == 128 + number
