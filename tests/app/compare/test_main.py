"""The verb `compare`: what it runs, what it writes, what it refuses."""

import json
from pathlib import Path

import pytest

from app.compare.main import entries, label, parsed, run_all, split_values
from app.compare.runs import Entry, RefusedRun
from app.compare.tested_runs import run_test
from tests.app.conftest import Run

WORDS = ("--config", "ppo_cartpole.yaml", "--metric", "eval/return_mean", "--threshold", "100")
SHORT = (
    "data.total_env_steps=64",
    "data.num_envs=4",
    "data.rollout_length=16",
    "model.num_minibatches=1",
    "data.eval_episodes=2",
)


@pytest.mark.usefixtures("forked_programs")
def test_seeds_of_a_setting_are_run_and_a_setting_added_later_is_compared_with_them(run: Run, folder: Path) -> None:
    callbacks = "trainer.callbacks=[{class_path: callbacks.RunCheckpoint}]"
    short = [word for setting in (*SHORT, callbacks) for word in ("--with", setting)]

    seeds = run("compare", *WORDS, "--set", "model.gamma=0.5", "--seeds", "2", "--jobs", "2", *short)
    both = run("compare", *WORDS, "--set", "model.gamma=,0.5", "--seeds", "1", *short)

    assert (seeds.code, both.code) == (0, 0), seeds.err + both.err
    result = json.loads(seeds.out.splitlines()[-1])["ppo_cartpole gamma=0.5"]
    assert result["mean"][1] <= result["mean"][0] <= result["mean"][2] and result["seeds"] == 2
    values = [line for line in seeds.out.splitlines() if "at 64 env steps" in line]
    assert [line.partition(": ")[0] for line in values] == [f"ppo_cartpole gamma=0.5, seed {seed}" for seed in (1, 2)]
    paths = [folder / line.split()[-1] for line in values]
    assert all(path.is_file() and path.name.startswith("best") for path in paths) and paths[0] != paths[1]
    assert list(json.loads(both.out.splitlines()[-1])) == ["ppo_cartpole gamma=config", "ppo_cartpole gamma=0.5"]
    assert both.out.count("done") == 1, "the run of the first call was to be read"
    assert "ppo_cartpole gamma=config minus ppo_cartpole gamma=0.5: final " in both.out
    early = run("compare", *WORDS, "--set", "model.gamma=,0.5", "--seeds", "1", "--at", "1", *short)
    assert "has logged no eval/return_mean within 1 env steps: raise --at" in early.err
    found = folder / "runs/compare"
    assert "ppo_cartpole gamma=0.5,1,64," in (found / "curves.csv").read_text()
    assert (found / "curves.png").is_file() and len(list(found.glob("compared/*/events*"))) == 2
    words = [*WORDS[:2], "--metric", "eval/retrun_mean", "--set", "model.gamma=0.5", "--seeds", "3", *short]
    wrong = run("compare", *words)
    assert wrong.code == 2 and "no known tag: did you mean `eval/return_mean`? The first run tells." in wrong.out
    assert "has logged no eval/retrun_mean: did you mean `eval/return_mean`? The runs are kept" in wrong.err
    assert "done" not in wrong.out, "a finished run has told before"


@pytest.mark.usefixtures("forked_programs")
def test_a_metric_that_the_first_run_lacks_ends_the_comparison_and_keeps_the_run(run: Run, folder: Path) -> None:
    short = [word for setting in (*SHORT, "trainer.callbacks=[RunCheckpoint]") for word in ("--with", setting)]

    outcome = run("compare", *WORDS[:2], "--metric", "mine/score", "--seeds", "3", *short)

    assert outcome.code == 2 and "no known tag" not in outcome.out and outcome.out.count("done") == 1
    assert "has logged no mine/score: choose from" in outcome.err and "train/value_loss" in outcome.err
    assert len(list(folder.glob("runs/compare/*/seed_*/finished.json"))) == 1


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.timeout(600)
def test_best_checkpoints_of_several_markets_are_tested_with_intervals(run: Run, folder: Path) -> None:
    short = ("data.total_env_steps=128", "data.num_envs=4", "data.synthetic={bars: 900}", "trainer.accelerator=cpu")
    short = (*short, "data.env_kwargs={embargo: 5, folds: 2, fold: 1}", "trainer.callbacks=[callbacks.TradingReport]")
    words = ["--config", "sac_options_synthetic.yaml", "--seeds", "2", "--test"]
    words += [word for setting in short for word in ("--with", setting)]
    words += ["--seed-key", "data.synthetic.seed", "--metric", "eval/log_return_mean"]

    first, again = (run("compare", *words) for _ in range(2))

    assert (first.code, again.code) == (0, 0), first.err + again.err
    assert again.out.startswith("0 of 2 runs to do") and again.out.splitlines()[-1] == first.out.splitlines()[-1]
    reports = sorted(folder.glob("runs/compare/*/seed_*/trading.json"))
    assert len(reports) == 2 and reports[0].read_text() != reports[1].read_text()
    results = json.loads(first.out.splitlines()[-1])
    for setting, result in results.items():
        assert f"{setting}, 2 tests" in first.out and result["mean"][1] <= result["mean"][0] <= result["mean"][2]
    assert "agent less it" in first.out and "hidden Markov, known" in first.out
    assert first.out.count("difference of Sharpe ratios to buy and hold is above 0 in") == 1


def test_a_seed_key_gets_the_seed_and_makes_another_setting() -> None:
    plain_runs, seeded = (
        list(entries(parsed([*WORDS, "--seeds", "2", *words]))) for words in ((), ("--seed-key", "a.b"))
    )

    assert [entry.words[-1] for entry in seeded] == ["--a.b=1", "--a.b=2"]
    assert {entry.folder for entry in seeded}.isdisjoint(entry.folder for entry in plain_runs)


def test_settings_multiply_and_brackets_keep_their_commas() -> None:
    options = parsed(
        [*WORDS, "--set", "model.gamma=0.9,0.99", "--set", 'data.env_kwargs={"a": 1, "b": 2},', "--seeds", "2"]
    )

    found = list(entries(options))

    assert len(found) == 2 * 2 * 2 and len({entry.folder for entry in found}) == 8
    assert '--data.env_kwargs={"a": 1, "b": 2}' in found[0].words
    assert not any(word.startswith("--data.env_kwargs") for word in found[2].words)


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--seeds", "0"), "--seeds is 0; it must be at least 1"),
        (("--set", "model.gamma"), "--set model.gamma is not a setting"),
        (("--with", "model.gamma"), "--with model.gamma is not a setting"),
        (
            ("--data.num_envs", "3"),
            "--data.num_envs is not an option of compare: a setting of all runs follows `--with`",
        ),
        (("--test", "--at", "100"), "--at is the end of a curve, but --test compares tests"),
        (("--mode", "most"), "invalid choice: 'most'"),
        (("--with", "model.gama=1", "--seeds", "1"), "ppo_cartpole, seed 1: `model.gama` (command line) is not a"),
    ],
)
def test_bad_input_is_refused_in_one_sentence_and_leaves_nothing(
    run: Run, folder: Path, words: tuple[str, ...], sentence: str
) -> None:
    outcome = run("compare", *WORDS, *words)

    assert outcome.code == 2 and sentence in outcome.err and len(outcome.err.splitlines()) == 1
    assert [path.name for path in folder.iterdir()] == ["small.yaml"]


def test_no_run_of_a_refused_setting_is_started_after_it(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    started: list[tuple[str, int]] = []

    def refuse(entry: Entry, *_: object) -> str | None:
        started.append((entry.setting, entry.seed))
        raise RefusedRun(entry.setting)

    monkeypatch.setattr("app.compare.main.fit", refuse)
    options = parsed(["--config", "ppo_cartpole.yaml", "--set", "model.gama=0.5,0.6", "--seeds", "3"])

    failures = run_all(list(entries(options)), options, threads=1)

    assert started == [("ppo_cartpole gama=0.5", 1), ("ppo_cartpole gama=0.6", 1)]
    assert failures == ["ppo_cartpole gama=0.5", "ppo_cartpole gama=0.6"]


@pytest.mark.parametrize(
    "values", ["{process_noise: 0.05},{process_noise: 9.05}", f"{'x' * 70}.a,{'y' * 70}.a", "a.b,c.b"]
)
def test_settings_whose_labels_agree_at_the_end_stay_apart(values: str) -> None:
    found = list(
        entries(parsed(["--config", "ppo_cartpole.yaml", "--set", f"data.env_kwargs={values}", "--seeds", "1"]))
    )

    assert len({entry.setting for entry in found}) == len({entry.folder for entry in found}) == 2


def test_a_class_with_arguments_is_named_as_a_call() -> None:
    value = '{"class_path": "modules.exploration.HeldRandomAction", "init_args": {"turn_back": true, "steps": 5}}'

    assert label("model.exploration", value) == "exploration=HeldRandomAction(turn_back=true, steps=5)"
    assert label("model.a", f"[{value}, 1]") == "a=[HeldRandomAction(turn_back=true, steps=5), 1]"
    assert label("data.env_kwargs", "{a: 1}") == 'env_kwargs={"a": 1}'


@pytest.mark.parametrize("value", ["{since: 2020-01-01}", "{2020-01-01: 1}", "{class_path: a.B, init_args: 3}", "[1"])
def test_a_value_that_is_no_class_with_arguments_has_a_label(value: str) -> None:
    assert label("data.x", value).startswith(f"x={value[0]}")


def test_a_run_without_a_checkpoint_cannot_be_tested(tmp_path: Path) -> None:
    said = run_test(tmp_path, [], {})

    assert said is not None and said.startswith(f"There is no checkpoint in {tmp_path}")


def test_a_config_that_changed_is_another_setting(folder: Path) -> None:
    words = ["--config", "small.yaml", "--seeds", "1"]
    (before,) = entries(parsed(words))
    (folder / "small.yaml").write_text((folder / "small.yaml").read_text() + "# changed\n")

    (after,) = entries(parsed(words))

    assert before.setting == after.setting and before.folder != after.folder


def test_values_are_split_outside_of_brackets_and_quotes() -> None:
    assert split_values("{a: 1, b: [1, 2]},[3,{c: 4}],,'5,6'") == ["{a: 1, b: [1, 2]}", "[3,{c: 4}]", "", "'5,6'"]
