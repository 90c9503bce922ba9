"""The verb `plot`: which runs it groups, what it writes, what it refuses."""

from pathlib import Path

import pytest
from PIL import Image
from torch.utils.tensorboard import SummaryWriter

from app.plot.main import named_settings, read_runs
from app.runs.attempts import FINISHED
from tests.app.conftest import Run

CONFIG = "seed_everything: {seed}\nmodel: {{gamma: {gamma}}}\ntrainer: {{logger: {{version: {seed}}}}}\n"


def write_run(folder: Path, value: float, gamma: float | None = None, seed: int = 1) -> Path:
    """A run of two evaluations, with a config where gamma is given."""
    with SummaryWriter(folder) as writer:
        for step in (10, 20):
            writer.add_scalar("eval/return_mean", value * step, step)
            writer.add_scalar("rollout/return_mean", value, step)
    if gamma is not None:
        (folder / "config.yaml").write_text(CONFIG.format(seed=seed, gamma=gamma))
    return folder


@pytest.fixture
def runs(folder: Path) -> Path:
    """Two seeds of one setting, one of another, in one experiment."""
    for version, (gamma, seed) in enumerate(((0.9, 1), (0.9, 2), (0.5, 1))):
        write_run(folder / f"runs/snake/version_{version}", version + 1.0, gamma, seed)
    return folder / "runs"


def test_seeds_of_one_config_are_one_setting(runs: Path) -> None:
    settings = named_settings(list(read_runs(runs)))

    assert {name: [run.seed for run in group] for name, group in settings.items()} == {
        "snake/version_0": ["1", "2"],
        "snake/version_2": ["1"],
    }


def test_settings_of_equal_folders_are_told_apart_by_the_folders_above(folder: Path) -> None:
    for number, root in enumerate(("a", "b")):
        write_run(folder / root / "snake/version_0", 1.0, gamma=0.1 * number)
    (folder / "points.csv").write_text("setting,seed,env_steps,eval/return_mean\nsnake,1,10,1.0\n")

    named = named_settings([run for name in ("a", "b", "points.csv") for run in read_runs(folder / name)])

    assert list(named) == ["a/snake/version_0", "b/snake/version_0", "snake/seed_1"]


def test_runs_without_a_value_of_the_tag_are_named_and_not_counted(run: Run, runs: Path) -> None:
    write_run(runs / "snake/version_3", float("nan"), gamma=0.3)
    for version in (0, 2):
        with SummaryWriter(runs / f"snake/version_{version}") as writer:
            writer.add_scalar("eval/food_mean", 1.0, 10)

    lines = run("plot", "runs/snake", "--tag", "eval/food_mean").out.splitlines()
    both = run("plot", "runs/snake", "--tag", "eval/food_mean", "--tag", "eval/return_mean").out.splitlines()

    assert lines == [
        "Wrote curves.png: runs 2, settings 2.",
        "Left out, because they have no finite value of eval/food_mean: snake/version_1, snake/version_3.",
    ]
    assert both[0] == "Wrote curves.png: runs 3, settings 2."
    assert both[2] == "Left out, because they have no finite value of eval/return_mean: snake/version_3."


def test_unfinished_attempts_of_a_finished_run_are_left_out(folder: Path) -> None:
    for name in ("seed_1", "seed_1_2", "seed_10", "population_2/seed_1", "population_2/seed_3"):
        write_run(folder / "snake" / name, 1.0, gamma=0.9)
    (folder / "snake" / "seed_1_2" / FINISHED).write_text("[]")

    (folder / "snake" / "seed_1" / "config.yaml").write_text(CONFIG.format(seed=1, gamma=0.1))
    found = [run for group in named_settings(list(read_runs(folder / "snake"))).values() for run in group]

    assert len(found) == 3 and len({run.key for run in found}) == 1, "seed_10, seed_1_2 and population_2/seed_3"
    assert len(list(read_runs(folder / "snake" / "seed_1"))) == 1, "it was named"


def test_runs_without_a_config_stay_apart(folder: Path) -> None:
    for name in "ab":
        write_run(folder / "runs" / name, 1.0)

    assert [len(group) for group in named_settings(list(read_runs(folder / "runs"))).values()] == [1, 1]


@pytest.mark.parametrize(("kind", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_a_figure_of_every_kind_is_written(run: Run, runs: Path, kind: str, start: bytes) -> None:
    outcome = run("plot", "runs", "--output", f"new/curves.{kind}")

    assert outcome.code == 0 and f"Wrote new/curves.{kind}: runs 3, settings 2." in outcome.out
    assert Path(f"new/curves.{kind}").read_bytes().startswith(start)


def test_tags_are_panels_and_titles_and_references_are_drawn(run: Run, runs: Path) -> None:
    both = ("--tag", "eval/return_mean", "--tag", "rollout/return_mean")
    settings = ((), both, (*both, "--title", "Snake"), (*both, "--reference", "random=0.5"))

    figures = []
    for words in settings:
        assert run("plot", "runs/snake/version_0", *words).code == 0
        figures.append(Image.open("curves.png").convert("RGB"))

    assert figures[1].height > 1.5 * figures[0].height
    assert len({figure.tobytes() for figure in figures}) == 4


def test_points_written_as_csv_give_the_same_figure(run: Run, runs: Path) -> None:
    tags = ("--tag", "eval/return_mean", "--tag", "rollout/return_mean")
    assert run("plot", "runs", *tags, "--output", "points.csv").code == 0
    assert run("plot", "runs", *tags, "--output", "a.png").code == 0

    assert run("plot", "points.csv", *tags, "--output", "b.png").code == 0

    assert Path("points.csv").read_text().splitlines()[:2] == [
        "setting,seed,env_steps,eval/return_mean,rollout/return_mean",
        "snake/version_0,1,10,10.0,",
    ]
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("rums",), "There is no run `rums`: did you mean `runs`?"),
        (("empty",), "There is no run in `empty`: name a run's folder, or one above runs."),
        (("runs", "--tag", "eval/retrun_mean"), "No run has logged eval/retrun_mean: did you mean `eval/return_mean`?"),
        (("runs", "--output", "a.gif"), "--output a.gif has no known ending: use .png, .pdf, .svg or .csv."),
        (("runs", "--reference", "random"), "--reference random is not a reference: write NAME=VALUE"),
        (("runs", "--reference", "random=nan"), "--reference random=nan is not a reference"),
        (("bad.csv",), "bad.csv holds no curves that can be read: its columns are not setting, seed, env_steps"),
        (("nan",), "eval/return_mean has no finite values, so there is nothing to draw."),
        (("--tag", "a"), "RUN"),
    ],
)
def test_bad_input_is_one_sentence(run: Run, runs: Path, words: tuple[str, ...], sentence: str) -> None:
    (runs.parent / "empty").mkdir()
    (runs.parent / "bad.csv").write_text("a,b\n1,2\n")
    write_run(runs.parent / "nan", float("nan"))

    outcome = run("plot", *words)

    assert outcome.code == 2 and sentence in outcome.err and len(outcome.err.splitlines()) == 1
