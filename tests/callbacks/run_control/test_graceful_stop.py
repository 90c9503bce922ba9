import itertools
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

from callbacks.run_control.checkpoint import PopulationCheckpoint, RunCheckpoint
from callbacks.run_control.graceful_stop import GracefulStop
from callbacks.run_control.run_summary import RunSummary
from datamodules.core.signals import STOP_SIGNALS, SecondSignal
from modules.ppo.population import PPOPopulation
from tests.support.small_runs import cartpole_data, small_ppo, snake_data, trainer
from tests.support.two_ranks import TwoRanks

TWICE = (signal.SIGTERM, signal.SIGTERM)


class OneRankIsTold(Callback):
    """Sends SIGTERM to rank 1 in its third iteration, at one moment: the name of a hook."""

    def __init__(self, moment: str) -> None:
        setattr(self, moment, self.tell)

    def tell(self, trainer: Any, *_: Any) -> None:
        if trainer.global_rank == 1 and trainer.global_step == 2:
            os.kill(os.getpid(), signal.SIGTERM)


def fit_until_told(folder: Path, moment: str) -> None:
    """Train on this rank until one rank is told to stop, and write when that was."""
    data = cartpole_data(num_envs=2, rollout_length=8)
    callbacks = [OneRankIsTold(moment), interrupt := GracefulStop(), RunSummary(), RunCheckpoint()]
    run = trainer(folder, *callbacks, strategy="ddp", devices=2, val_check_interval=2)
    run.fit(model := small_ppo(data), data)
    said = f"stopped by {interrupt.stopped_by.name} at {run.global_step}, evaluated"
    (folder / f"rank{run.global_rank}").write_text(f"{said} {'eval/return_mean' in model.last_logged}")


class Sends(Callback):
    """Sends signals to this process while an iteration, or an evaluation, is under way."""

    def __init__(self, *signals: signal.Signals, iteration: int = 2, evaluation: bool = False) -> None:
        self.signals, self.iteration, self.evaluation = signals, iteration, evaluation

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.iteration and not self.evaluation:
            self.send()

    def on_validation_start(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.iteration and self.evaluation:
            self.send()

    def send(self) -> None:
        for number in self.signals:
            os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_stops_after_the_iteration_it_came_in(
    make_run: Any, capfd: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    interrupt = GracefulStop()

    run = make_run(Sends(number), interrupt, RunCheckpoint(), iterations=100).fit()

    last = run.folder / "checkpoints" / "last.ckpt"
    assert interrupt.stopped_by == number
    assert torch.load(last, weights_only=True)["global_step"] == run.trainer.global_step == 3
    assert f"Stopped by {number.name} after iteration 3, saved in {last}. Resume:" in capfd.readouterr().out


def test_without_a_checkpoint_to_resume_from_no_command_is_printed(
    make_run: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    make_run(Sends(signal.SIGTERM), GracefulStop(), iterations=100).fit()

    said = capfd.readouterr().out
    assert (
        "Stopped by SIGTERM after iteration 3; there is no checkpoint to resume from." in said and "Resume" not in said
    )


def test_a_checkpoint_that_is_not_of_the_last_iteration_is_named_as_the_best(
    make_run: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    best = ModelCheckpoint(monitor="eval/return_mean", mode="max")

    make_run(Sends(signal.SIGTERM), best, GracefulStop(), iterations=100).fit()

    said = capfd.readouterr().out
    assert f"after iteration 3, not saved; the best checkpoint is {best.best_model_path}. Resume: " in said


@pytest.mark.parametrize(("iteration", "expected"), [(0, "there is no checkpoint to resume from."), (2, "NAMED")])
def test_checkpoints_of_the_members_of_a_population_are_named_as_weights_only(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], iteration: int, expected: str
) -> None:
    data, members = snake_data(), PopulationCheckpoint(RunCheckpoint())
    run = trainer(tmp_path, Sends(signal.SIGTERM, iteration=iteration), members, GracefulStop(), val_check_interval=2)

    run.fit(PPOPopulation(data.spaces, [4, 2, 3], num_minibatches=1), data)

    path = tmp_path / "seed_4" / "checkpoints" / "last.ckpt"
    named = f"no run can be resumed from its checkpoints, which have weights only: {path} and 2 others."
    said = capfd.readouterr().out
    assert f"after iteration {iteration + 1}; {expected.replace('NAMED', named)}" in said and "Resume" not in said
    assert path.is_file() is (iteration > 0)


def test_no_final_evaluation_follows_a_signal(make_run: Any) -> None:
    evaluations: list[int] = []

    class Counts(Callback):
        def on_validation_start(self, trainer: Any, *_: Any) -> None:
            evaluations.append(trainer.global_step)

    run = make_run(Sends(signal.SIGINT, iteration=3), Counts(), GracefulStop(), RunCheckpoint(), iterations=100).fit()

    assert evaluations == [2]
    assert run.trainer.limit_val_batches == 1.0


def test_a_signal_during_an_evaluation_ends_it_and_what_it_played_counts_for_nothing(make_run: Any) -> None:
    signals, checkpoint = Sends(signal.SIGINT, iteration=4, evaluation=True), RunCheckpoint(save_top_k=2)

    run = make_run(signals, GracefulStop(), checkpoint, iterations=100).fit()

    files = sorted(path.name for path in (run.folder / "checkpoints").glob("*.ckpt"))
    assert run.trainer.global_step == 4 and not run.module.evaluation_episodes.is_complete
    assert len(files) == 2 and files[0].startswith("best-env_steps=64") and files[1] == "last.ckpt"
    assert torch.load(run.folder / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 4


def test_a_signal_during_the_first_evaluation_leaves_no_result(make_run: Any) -> None:
    run = make_run(Sends(signal.SIGTERM, evaluation=True), GracefulStop(), RunCheckpoint(), iterations=100).fit()

    assert [path.name for path in (run.folder / "checkpoints").glob("*.ckpt")] == ["last.ckpt"]
    assert not [tag for tag in run.module.last_logged if tag.startswith("eval/")]


@pytest.mark.parametrize("evaluation", [False, True])
def test_an_interrupted_run_resumed_equals_one_that_was_not(make_run: Any, evaluation: bool) -> None:
    straight = make_run(RunCheckpoint(), iterations=6, env="Snake-v0", version="straight")
    start = {name: value.clone() for name, value in straight.module.state_dict().items()}
    signals = Sends(signal.SIGINT, evaluation=evaluation)
    broken = make_run(signals, GracefulStop(), RunCheckpoint(), iterations=6, env="Snake-v0")
    broken.module.load_state_dict(start)

    straight.fit()
    broken.fit()
    resumed = make_run(RunCheckpoint(), iterations=6, env="Snake-v0", version="resumed")
    resumed.fit(broken.folder / "checkpoints" / "last.ckpt")

    assert resumed.trainer.global_step == straight.trainer.global_step == 6
    weights = zip(straight.module.state_dict().values(), resumed.module.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in weights)


@pytest.mark.parametrize(
    ("first", "second"), [pair for pair in itertools.product(STOP_SIGNALS, repeat=2) if pair != TWICE]
)
def test_a_second_signal_of_any_kind_exits_at_once_and_keeps_the_last_whole_checkpoint(
    make_run: Any, first: signal.Signals, second: signal.Signals
) -> None:
    run = make_run(Sends(first, second, iteration=3), GracefulStop(), RunCheckpoint(), iterations=100)

    with pytest.raises(SystemExit) as left:
        run.fit()

    assert left.value.code == 128 + second
    assert torch.load(run.folder / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 2


def test_a_sigterm_that_two_programs_send_is_one(make_run: Any) -> None:
    run = make_run(Sends(*TWICE, iteration=3), GracefulStop(), RunCheckpoint(), iterations=100).fit()

    assert torch.load(run.folder / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 4


def test_a_sigterm_that_comes_later_is_a_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    is_second, now = SecondSignal(), time.monotonic()
    is_second(signal.SIGTERM)

    monkeypatch.setattr("datamodules.core.signals.time.monotonic", lambda: now + 2)

    assert is_second(signal.SIGTERM)


def test_a_hangup_that_the_process_ignores_stays_ignored(make_run: Any) -> None:
    before, interrupt = signal.signal(signal.SIGHUP, signal.SIG_IGN), GracefulStop()

    try:
        run = make_run(Sends(signal.SIGHUP), interrupt).fit()
    finally:
        signal.signal(signal.SIGHUP, before)

    assert run.trainer.global_step == 4 and interrupt.stopped_by is None


def test_the_signals_are_given_back(make_run: Any) -> None:
    before = [signal.getsignal(number) for number in STOP_SIGNALS]

    make_run(Sends(signal.SIGTERM), GracefulStop()).fit()

    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


@pytest.mark.parametrize("number", STOP_SIGNALS)
@pytest.mark.parametrize("verb", ["validate", "test", "predict"])
def test_a_signal_ends_what_only_plays_episodes(make_run: Any, verb: str, number: signal.Signals) -> None:
    class Terminates(Callback):
        def tell(self, *_: Any) -> None:
            os.kill(os.getpid(), number)

    setattr(Terminates, f"on_{verb.replace('validate', 'validation')}_epoch_start", Terminates.tell)
    run, before = make_run(GracefulStop(), Terminates()), signal.getsignal(number)

    with pytest.raises(SystemExit) as left:
        getattr(run.trainer, verb)(run.module, run.data)

    assert left.value.code == 128 + number and signal.getsignal(number) == before


@pytest.mark.parametrize(
    ("moment", "outcome"),
    [("on_train_batch_start", "at 3, evaluated True"), ("on_validation_start", "at 2, evaluated False")],
)
def test_a_rank_that_is_told_to_stop_stops_all(ranks: TwoRanks, tmp_path: Path, moment: str, outcome: str) -> None:
    ranks.run(fit_until_told, tmp_path, moment)

    assert {(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)} == {f"stopped by SIGTERM {outcome}"}
    iteration = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    assert outcome.startswith(f"at {iteration},")
