"""`compare`, started again after an interruption, resumes the runs that have a checkpoint."""

import signal
from pathlib import Path

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from app.compare.main import entries, parsed
from app.compare.population import train_populations
from app.compare.runs import Entry, Outcome, fit, is_evaluated_at_end, last_checkpoint, mark_finished
from app.monitor.curves import Curves
from callbacks.run_control.checkpoint import AtomicCheckpointIO
from tests.app.conftest import Run

CALLBACK = "{class_path: tests.support.interrupted_run.SendsSignal, init_args: {number: NUMBER, iteration: ITERATION}}"
SETTINGS = (
    "data.total_env_steps=256",
    "data.num_envs=4",
    "data.rollout_length=16",
    "data.eval_episodes=2",
    "trainer.val_check_interval=1",
    "trainer.log_every_n_steps=1",
    "trainer.accelerator=cpu",
)


def words_of(number: int, iteration: int) -> list[str]:
    """The words of a comparison of one run that gets a signal."""
    callback = CALLBACK.replace("NUMBER", str(int(number))).replace("ITERATION", str(iteration))
    settings = (*SETTINGS, f"trainer.callbacks=[RunCheckpoint, {callback}]")
    same = [word for setting in settings for word in ("--with", setting)]
    return ["--config", "ppo_cartpole.yaml", "--seeds", "1", *same]


def saved(run: Path, **more: object) -> Path:
    """A last checkpoint in the folder of a run."""
    path = run / "checkpoints" / "last.ckpt"
    path.parent.mkdir(parents=True)
    AtomicCheckpointIO().save_checkpoint({"state_dict": {}, "global_step": 1, **more}, path)
    return path


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_seed_is_resumed_in_its_folder(run: Run, folder: Path, number: signal.Signals) -> None:
    first = run("compare", *words_of(number, 2))
    (seed,) = folder.glob("runs/compare/*/seed_*")
    stopped_at = torch.load(seed / "checkpoints/last.ckpt", weights_only=True)["global_step"]
    again = run("compare", *words_of(number, 2))

    assert first.code == 2 and stopped_at in (2, 3) and again.code == 0, first.err + again.err
    path = f"{seed.relative_to(folder)}/checkpoints/last.ckpt"
    assert f"ppo_cartpole, seed 1: resumes from {path}\nppo_cartpole, seed 1: done\n" in again.out
    assert list(folder.glob("runs/compare/*/seed_*")) == [seed]
    assert torch.load(seed / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 4
    curves = Curves(seed)
    curves.refresh()
    steps = [step for step, _ in curves.by_tag["eval/return_mean"].points]
    assert steps[:2] == [64, 128] and steps[-1] == 256
    assert "Checkpoint: " in (seed / "log.txt").read_text()


@pytest.mark.usefixtures("forked_programs")
def test_a_complete_run_that_was_not_recorded_as_finished_is_not_trained_again(run: Run, folder: Path) -> None:
    first = run("compare", *words_of(signal.SIGKILL, 99))
    (record,) = folder.glob("runs/compare/*/seed_1/finished.json")
    record.unlink()

    again = run("compare", *words_of(signal.SIGKILL, 99))

    assert (first.code, again.code) == (0, 0) and record.is_file(), again.err
    assert again.out.splitlines()[-1] == first.out.splitlines()[-1]
    for path in record.parent.glob("events*"):
        path.unlink()
    record.unlink()

    once_more = run("compare", *words_of(signal.SIGKILL, 99))

    assert "because runs/compare/" in once_more.out and "no evaluation after its last env step" in once_more.out
    assert once_more.code == 0 and (record.parents[1] / "seed_1_2" / record.name).is_file()


@pytest.mark.usefixtures("forked_programs")
def test_a_seed_without_a_checkpoint_starts_again_and_says_so(run: Run, folder: Path) -> None:
    first, again = (run("compare", *words_of(signal.SIGKILL, 0)) for _ in range(2))

    (one, other) = sorted(path.relative_to(folder) for path in folder.glob("runs/compare/*/seed_*"))
    assert (first.code, again.code) == (2, 2) and (one.name, other.name) == ("seed_1", "seed_1_2")
    assert f"seed 1: starts again, because there is no checkpoint to resume from in {one}\n" in again.out
    assert "starts again" not in first.out


def test_the_last_checkpoint_is_that_of_the_newest_attempt_that_can_be_resumed(tmp_path: Path) -> None:
    entry = Entry("a", 1, tmp_path / "seed_1", [])
    assert last_checkpoint(entry) is None
    older = saved(tmp_path / "seed_1", optimizer_states=[])
    (tmp_path / "seed_1_2").mkdir()
    assert last_checkpoint(entry) == older
    newer = saved(tmp_path / "seed_1_3", optimizer_states=[])
    assert last_checkpoint(entry) == newer
    saved(tmp_path / "seed_1_4")  # weights only, as those of a population's members

    assert last_checkpoint(entry) == newer


@pytest.mark.parametrize(("tag", "step", "evaluated"), [
    ("eval/return_mean", 64, True), ("eval/return_mean", 48, False),
    ("dynamics/field_r2", 64, True), ("dynamics/loss", 64, False),
])  # fmt: skip
def test_a_run_is_evaluated_at_its_end_if_a_value_of_an_evaluation_has_its_last_env_step(
    tmp_path: Path, tag: str, step: int, evaluated: bool
) -> None:
    monitors = {"RunCheckpoint": {"best_model_path": "", "monitor": "dynamics/field_r2"}}
    path = saved(tmp_path, callbacks=monitors, counters={"env_steps": 64})
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar(tag, 0.5, step)

    assert is_evaluated_at_end(tmp_path, path) is evaluated


@pytest.mark.parametrize(("code", "reason"), [
    (2, "could not be resumed from {path}: It does not fit."),
    (1, "ended with code 1 and said: It does not fit. (all: {log})."),
])  # fmt: skip
def test_a_resume_that_fails_names_the_folder_to_move_and_keeps_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    run, log = tmp_path / "seed_1", tmp_path / "log.txt"
    monkeypatch.setattr("app.compare.runs.run_fit", lambda *_: Outcome(code, "It does not fit.", log))
    path = saved(run, optimizer_states=[])

    said = fit(Entry("a", 1, run, []), [], {})

    advice = f"The same command tries again; to start this seed anew, move the folder {run} elsewhere."
    assert said == f"a, seed 1, {reason.format(path=path, log=log)} {advice}" and path.is_file()


def test_seeds_that_can_be_resumed_or_are_finished_are_in_no_population(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(entries(parsed(["--config", "ppo_fast.yaml", "--seeds", "4"])))
    saved(found[0].folder, optimizer_states=[])
    found[1].folder.mkdir()
    mark_finished(found[1], found[1].folder)
    trained: list[int] = []
    monkeypatch.setattr(
        "app.compare.population.train_population",
        lambda _, due, __: (trained.extend(entry.seed for entry in due), ("", ""))[1],
    )

    assert train_populations(found, "on", [], {}) == "" and trained == [3, 4]
