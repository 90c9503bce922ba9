"""`compare --population`: the seeds of PPO in one program, with the results of separate runs."""

import csv
import json
from pathlib import Path

import pytest
import yaml

import leyden
from app.compare.main import entries, parsed
from app.compare.population import config_of, runs_on_gpu, why_separate
from tests.app.conftest import Run

WORDS = ("--config", "ppo_fast.yaml", "--seeds", "2")
SHORT = (
    "data.total_env_steps=256",
    "data.num_envs=8",
    "data.rollout_length=16",
    "data.eval_episodes=2",
    "model.num_minibatches=1",
    "model.gamma=0.5",
    "trainer.accelerator=cpu",
    "trainer.val_check_interval=1",
    "trainer.callbacks=[callbacks.RunCheckpoint]",
)


def with_settings(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--with", setting)]


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.timeout(600)
def test_a_population_has_the_results_of_separate_runs(run: Run, folder: Path) -> None:
    together = run("compare", *WORDS, *with_settings(*SHORT), "--population", "on", "--folder", "together")
    apart = run("compare", *WORDS, *with_settings(*SHORT), "--population", "off", "--folder", "apart")

    assert (together.code, apart.code) == (0, 0), together.err + apart.err
    assert together.out.count("done") == 2 and "ppo_fast: 2 seeds in one program, in together/" in together.out
    assert len(list(folder.glob("together/ppo_fast-*/population"))) == 1
    one, other = (json.loads(outcome.out.splitlines()[-1])["ppo_fast"] for outcome in (together, apart))
    assert one == other, "greedy evaluations of the same weights"
    for seed in (1, 2):
        member, alone = (next(folder.glob(f"{name}/ppo_fast-*/seed_{seed}")) for name in ("together", "apart"))
        names = [sorted(path.name for path in each.glob("checkpoints/*.ckpt")) for each in (member, alone)]
        assert names[0] == names[1] and "last.ckpt" in names[0] and len(names[0]) == 2
        settings = [yaml.safe_load((each / "config.yaml").read_text()) for each in (member, alone)]
        for each in settings:
            del each["trainer"]["logger"]["init_args"]["save_dir"], each["trainer"]["logger"]["init_args"]["name"]
        assert settings[0] == settings[1]
        agents = [leyden.load(each) for each in (member, alone)]
        actions = [agent.predict([0.5] * agent.spaces["obs_shape"][0])[0] for agent in agents]
        assert actions[0] == actions[1]
    assert "runs 2, settings 1" in (drawn := run("plot", "together", "--output", "a.csv")).out, drawn
    with (folder / "a.csv").open(encoding="utf-8") as file:
        assert {row["seed"] for row in csv.DictReader(file)} == {"1", "2"}


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.timeout(600)
def test_a_config_that_a_population_refuses_is_run_seed_by_seed(run: Run, folder: Path) -> None:
    settings = with_settings(*SHORT, "model.target_kl=1.0")

    outcome = run("compare", *WORDS, *settings, "--population", "on")

    assert outcome.code == 0, outcome.err
    assert "ppo_fast: one program for each seed. A population cannot be trained with model.target_kl" in outcome.out
    assert sorted(path.name for path in folder.glob("runs/compare/ppo_fast-*/*")) == ["seed_1", "seed_2"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--config", "ppo_fast.yaml"), "modules.PPO"),
        (("--config", "pqn_snake.yaml"), "modules.PQN"),
        (("--config", "ppo_fast.yaml", "--with", "model=modules.dqn.dqn.DQN"), "modules.DQN"),
        (("--config", "pqn_snake.yaml", "--with", "model.class_path=modules.PPO"), "modules.PPO"),
        (("--config", "pqn_snake.yaml", "--with", "model={class_path: modules.PPO}"), "modules.PPO"),
    ],
)
def test_the_algorithm_is_that_of_the_config_or_the_settings(words: tuple[str, ...], expected: str) -> None:
    (reason,) = {why_separate(entry.words, ()) for entry in entries(parsed(words))}

    assert reason == (
        "" if expected == "modules.PPO" else f"Only modules.PPO trains several seeds in one, not {expected}."
    )


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("trainer.accelerator=cpu", False), ("trainer={accelerator: cpu}", False), ("trainer.accelerator=gpu", True),
     ("model.gamma=1", True)],
)  # fmt: skip
def test_a_population_is_made_where_the_runs_are_made(
    monkeypatch: pytest.MonkeyPatch, setting: str, expected: bool
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    (entry,) = entries(parsed(["--config", "ppo_fast.yaml", "--seeds", "1", "--with", setting]))

    assert runs_on_gpu(entry.words) is expected


@pytest.mark.usefixtures("forked_programs")
def test_a_misspelled_setting_is_told_once_and_not_taken_for_a_refusal(run: Run, folder: Path) -> None:
    outcome = run("compare", *WORDS, "--with", "model.gama=1", "--population", "on")

    assert outcome.code == 2 and outcome.err.startswith("ppo_fast: `model.gama` (command line) is not a setting")
    assert "gama" not in outcome.out and "one program for each seed" not in outcome.out
    assert [path.name for path in folder.iterdir()] == ["small.yaml"]


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--config", "small.yaml"), "Only modules.PPO trains several seeds in one, not tests.support.fake_algorithm."),
        (("--config", "ppo_fast.yaml", "--seed-key", "a.b"), "With --seed-key a.b they differ in more than their"),
    ],
)
def test_the_reason_for_separate_programs_is_told_once(run: Run, words: tuple[str, ...], reason: str) -> None:
    outcome = run("compare", *words, "--population", "on", "--set", "no.such=1,2", "--seeds", "2")

    assert outcome.out.count(reason) == outcome.out.count("one program for each seed") == 1


def test_the_config_of_a_member_names_its_seed_and_its_own_folder(tmp_path: Path) -> None:
    logger = {"save_dir": "runs", "name": "ppo_fast", "version": "population"}
    settings = {"seed_everything": 1, "trainer": {"logger": {"init_args": logger}}}
    settings["model"] = {
        "class_path": "modules.ppo.population.PPOPopulation",
        "init_args": {"seeds": [1, 2], "gamma": 1},
    }
    (tmp_path / "config.yaml").write_text(f"# a header\n{yaml.safe_dump(settings)}")

    own = yaml.safe_load(config_of(tmp_path / "seed_2_2", 2, tmp_path))

    assert own["seed_everything"] == 2 and own["trainer"]["logger"]["init_args"]["version"] == "seed_2_2"
    assert own["model"] == {"class_path": "modules.PPO", "init_args": {"gamma": 1}}


@pytest.mark.parametrize("text", ["", "model: [", "model: 5", "model: {}", "- 1"])
def test_a_config_that_names_no_algorithm_is_left_to_fit(folder: Path, text: str) -> None:
    (folder / "odd.yaml").write_text(text)

    assert why_separate(["--config", "odd.yaml"], ()) == ""
