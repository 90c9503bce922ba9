from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from app.runs.checkpoints import Experiment
from app.runs.find_checkpoint import find_checkpoint
from callbacks.run_control.checkpoint import AtomicCheckpointIO, RunCheckpoint, run_folder
from callbacks.run_control.run_summary import RunSummary
from datamodules.core.errors import ConfigurationError


class BreaksAt(Callback):
    """Raises at the end of one iteration."""

    def __init__(self, iteration: int, error: BaseException) -> None:
        self.iteration, self.error = iteration, error

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.iteration:
            raise self.error


class Executes:
    """Runs code when unpickled without care."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (Path.touch, (self.marker,))


def saved(path: Path) -> dict[str, Any]:
    return torch.load(path, map_location="cpu", weights_only=True)


def test_a_run_keeps_the_best_by_evaluation_and_the_last(make_run: Any) -> None:
    run = make_run(RunCheckpoint(), iterations=4).fit()

    files = sorted(path.name for path in (run.folder / "checkpoints").glob("*.ckpt"))

    best = saved(run.folder / "checkpoints" / files[0])
    score = float(best["callbacks"][run.trainer.checkpoint_callback.state_key]["best_model_score"])
    assert files == [f"best-env_steps={best['counters']['env_steps']}-return_mean={score:.2f}.ckpt", "last.ckpt"]


@pytest.mark.parametrize(("mode", "best"), [("min", 1.0), ("max", 3.0)])
def test_the_best_is_the_lowest_or_the_highest_as_the_mode_says(make_run: Any, mode: Any, best: float) -> None:
    class Scores(Callback):
        values = iter([2.0, 1.0, 3.0, 2.5])

        def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            pl_module.log("eval/score", next(self.values))

    checkpoint = RunCheckpoint("eval/score", mode)
    run = make_run(Scores(), checkpoint, iterations=8).fit()

    found = find_checkpoint("best", Experiment(run.folder.parent, run.folder.name))
    assert found.name.endswith(f"-score={best:.2f}.ckpt")
    assert checkpoint.best_evaluation["eval/score"] == best


class Improves(Callback):
    """A score that rises at every evaluation."""

    score = 0.0

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.score += 1
        pl_module.log("eval/score", self.score)


class FailingIO(AtomicCheckpointIO):
    """Fails to replace `last.ckpt` from an iteration on, as a kill after a new best does."""

    def __init__(self, iteration: int):
        super().__init__()
        self.iteration = iteration

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        if Path(path).name == "last.ckpt" and checkpoint["global_step"] >= self.iteration:
            raise ConnectionError("killed")
        super().save_checkpoint(checkpoint, path, storage_options)


def test_the_best_that_last_records_stays_until_last_records_another(make_run: Any) -> None:
    run = make_run(Improves(), RunCheckpoint("eval/score"), iterations=8, plugins=[FailingIO(6)])
    with pytest.raises(ConnectionError):
        run.fit()
    folder = run.folder / "checkpoints"

    (state,) = (s for s in saved(folder / "last.ckpt")["callbacks"].values() if "best_model_path" in s)

    assert Path(state["best_model_path"]).name.endswith("-score=2.00.ckpt")
    assert sorted(path.name[-9:] for path in folder.glob("best*.ckpt")) == ["2.00.ckpt", "3.00.ckpt"]


def test_a_best_that_cannot_be_saved_leaves_the_record_of_the_one_before(make_run: Any) -> None:
    class Full(AtomicCheckpointIO):
        def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
            if "best" in Path(path).name and checkpoint["global_step"] >= 4:
                raise OSError("full")
            super().save_checkpoint(checkpoint, path, storage_options)

    checkpoint = RunCheckpoint("eval/score")
    run = make_run(Improves(), checkpoint, plugins=[Full()])

    with pytest.raises(OSError, match="full"):
        run.fit()

    assert Path(checkpoint.best_model_path).is_file() and float(checkpoint.best_model_score) == 1


def test_the_last_checkpoint_of_a_run_includes_the_final_iteration(make_run: Any) -> None:
    run = make_run(RunCheckpoint(), iterations=5).fit()

    last = saved(run.folder / "checkpoints" / "last.ckpt")

    assert last["global_step"] == 5
    assert last["counters"]["env_steps"] == run.module.env_steps
    assert all(torch.equal(last["state_dict"][name], value) for name, value in run.module.state_dict().items())


def test_the_last_iteration_is_evaluated_even_between_two_evaluations(make_run: Any) -> None:
    checkpoint = RunCheckpoint(save_top_k=-1)

    run = make_run(RunSummary(), checkpoint, iterations=5).fit()

    evaluated = [int(path.split("env_steps=")[1].split("-")[0]) for path in checkpoint.best_k_models]
    assert evaluated == [64, 128, run.module.env_steps]


def test_every_n_iterations_saves_between_evaluations(make_run: Any) -> None:
    run = make_run(RunCheckpoint(every_n_iterations=3), BreaksAt(4, KeyboardInterrupt()), val_check_interval=100)

    with pytest.raises(SystemExit):
        run.fit()

    assert saved(run.folder / "checkpoints" / "last.ckpt")["global_step"] == 3


def test_an_exception_saves_what_was_learned(make_run: Any) -> None:
    run = make_run(BreaksAt(3, ConnectionError("a worker died")), RunCheckpoint())

    with pytest.raises(ConnectionError):
        run.fit()

    assert saved(run.folder / "checkpoints" / "last.ckpt")["global_step"] == 3


def test_an_interruption_in_the_middle_of_an_iteration_saves_nothing(make_run: Any) -> None:
    run = make_run(BreaksAt(3, KeyboardInterrupt()), RunCheckpoint())

    with pytest.raises(SystemExit):
        run.fit()

    assert saved(run.folder / "checkpoints" / "last.ckpt")["global_step"] == 2


def test_last_resumes_to_the_end_of_the_run(make_run: Any) -> None:
    broken = make_run(BreaksAt(3, ConnectionError()), RunCheckpoint(), iterations=6)
    with pytest.raises(ConnectionError):
        broken.fit()

    resumed = make_run(RunCheckpoint(), iterations=6, version="resumed").fit(
        broken.folder / "checkpoints" / "last.ckpt"
    )

    assert resumed.trainer.global_step == 6
    assert resumed.module.env_steps == 6 * 32


def test_a_resumed_run_in_a_new_folder_carries_the_best_score_on(make_run: Any) -> None:
    first = make_run(RunCheckpoint(), iterations=2).fit()
    checkpoint = RunCheckpoint()

    resumed = make_run(checkpoint, iterations=4, version="resumed", limit_val_batches=0)
    resumed.fit(first.folder / "checkpoints" / "last.ckpt")

    assert Path(checkpoint.best_model_path).parent == first.folder / "checkpoints"
    assert checkpoint.best_evaluation["eval/return_mean"] == pytest.approx(float(checkpoint.best_model_score))


def test_a_failed_write_leaves_the_old_checkpoint_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    AtomicCheckpointIO().save_checkpoint({"state_dict": {"w": torch.ones(2)}}, path)

    with pytest.raises(Exception, match="pickle"):
        AtomicCheckpointIO().save_checkpoint({"state_dict": lambda: None}, path)

    assert torch.equal(AtomicCheckpointIO().load_checkpoint(path)["state_dict"]["w"], torch.ones(2))
    assert list(tmp_path.iterdir()) == [path]


def test_a_malicious_checkpoint_never_runs_its_code(tmp_path: Path) -> None:
    marker, path = tmp_path / "marker", tmp_path / "evil.ckpt"
    torch.save({"state_dict": {}, "evil": Executes(marker)}, path)

    with pytest.raises(Exception, match=r"weights_only|Unsupported"):
        AtomicCheckpointIO().load_checkpoint(path, weights_only=False)

    assert not marker.exists()


def test_a_url_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not a local file"):
        AtomicCheckpointIO().load_checkpoint("https://example.org/model.ckpt")


def test_the_run_folder_is_the_parent_of_checkpoints() -> None:
    assert run_folder("runs/a/checkpoints/last.ckpt", "root") == Path("runs/a")
    assert run_folder("elsewhere/model.ckpt", "root") == Path("root")
    assert run_folder(None, "root") == Path("root")


def test_a_folder_that_cannot_be_written_is_refused_before_the_first_iteration(make_run: Any) -> None:
    run = make_run(RunCheckpoint(), logger=False, default_root_dir="/proc")

    with pytest.raises(ConfigurationError, match="The folder /proc/checkpoints cannot be written"):
        run.fit()

    assert run.trainer.global_step == 0
