"""Sequence data: stored files, held-out sequences, and what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback
from torch import Tensor

from callbacks.run_control.divergence_guard import DivergenceGuard
from callbacks.run_control.trajectory_writer import write_trajectories
from datamodules.collect.validation_sequences import (
    ACTION_HOLD_STEPS,
    longest_contiguous,
    record,
    record_validation_data,
)
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import State
from datamodules.offline import OfflineSequenceDataModule, buffer_of, read_sequences
from datamodules.sequence import SequenceDataModule
from datamodules.vector.func_vector_env import TensorVectorEnv
from tests.support.dynamics_fixtures import Spring, explorer, spring_data
from tests.support.small_runs import trainer


class Blinding(Spring):
    """Shows NaN, or another value, from some step of an episode on."""

    def __init__(self, seeing: int, shown: float = math.nan):
        super().__init__(20)
        self.seeing, self.shown = seeing, shown

    def observation(self, state: State) -> Tensor:
        return state["x"].masked_fill((state["age"] >= self.seeing).unsqueeze(1), self.shown)


def springs(rows: int = 3, length: int | None = None) -> TensorVectorEnv:
    return TensorVectorEnv(Spring(length), rows, device=torch.device("cpu"))


def test_held_out_sequences_repeat_and_know_the_truth() -> None:
    held_out, again = record_validation_data(springs(), 50, seed=3), record_validation_data(springs(), 50, seed=3)

    assert torch.equal(held_out.sequences.obs, again.sequences.obs)
    assert held_out.sequences.obs.shape == (51, 3, 2) and held_out.sequences.contiguous.all()
    assert torch.equal(held_out.state, held_out.sequences.obs)  # type: ignore[arg-type]
    assert torch.equal(held_out.field, Spring().field(held_out.grid))  # type: ignore[arg-type]
    changes = (held_out.sequences.action.diff(dim=0) != 0).any(-1).any(-1).nonzero()[:, 0] + 1
    assert changes.tolist() == [ACTION_HOLD_STEPS, 2 * ACTION_HOLD_STEPS]


def test_steps_across_an_end_are_not_joined() -> None:
    sequences = record(springs(length=4), 9, seed=0)

    assert sequences.contiguous[:, 0].tolist() == [True, True, True, False, True, True, True, False, True]


def test_the_longest_trajectory_is_that_between_two_breaks() -> None:
    contiguous = torch.tensor([[1, 1, 0, 1, 1, 1], [0, 1, 1, 0, 1, 1]]).T.bool()

    assert longest_contiguous(contiguous) == 3
    assert (
        longest_contiguous(contiguous[:, 1:]),
        longest_contiguous(contiguous[:1, 1:]),
        longest_contiguous(torch.ones(4, 2).bool()),
    ) == (2, 0, 4)


def test_exploring_ends_when_it_is_shown_nan(tmp_path: Path) -> None:
    data = spring_data(env=f"{__name__}.Blinding", env_kwargs={"seeing": 15}, val_sequence_length=10)

    with pytest.raises(
        ConfigurationError, match=r"Blinding returned an observation with nan at place 0 in environment 0"
    ):
        trainer(tmp_path, DivergenceGuard(), val_check_interval=100).fit(explorer(data), datamodule=data)


@pytest.mark.parametrize("shown", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [SequenceDataModule, OfflineSequenceDataModule])
def test_what_is_not_finite_in_a_recording_is_refused(
    kind: type[SequenceDataModule], shown: float, tmp_path: Path
) -> None:
    data = kind(f"{__name__}.Blinding", env_kwargs={"seeing": 5, "shown": shown}, total_env_steps=200)

    with pytest.raises(ConfigurationError, match="Blinding has NaN or infinite observations"):
        trainer(tmp_path, num_sanity_val_steps=1, val_check_interval=1).fit(explorer(data), datamodule=data)


@pytest.mark.parametrize("changes", [{"env_kwargs": {"length": 8}}, {"val_sequence_length": 7}], ids=["ends", "short"])
def test_steps_ahead_that_no_trajectory_has_are_nan_and_said_once(changes: dict[str, Any], tmp_path: Path) -> None:
    data = spring_data(**changes)
    model = explorer(data)

    with pytest.warns(
        UserWarning, match="lasts 10, 20 steps.* dynamics/r2_10 .*: raise data.val_sequence_length"
    ) as said:
        run = trainer(tmp_path, val_check_interval=4)
        run.fit(model, datamodule=data)

    values = {name: float(value) for name, value in run.callback_metrics.items()}
    assert values["dynamics/r2_5"] <= 1
    assert np.isnan([values["dynamics/r2_10"], values["dynamics/r2_20"]]).all()
    assert len([each for each in said if "val_sequence_length" in str(each.message)]) == 1


def test_what_predict_wrote_is_read_with_masks(tmp_path: Path) -> None:
    episodes = [
        {
            "obs": torch.full((length + 1, 2), float(length)), "action": torch.ones(length, 1),
            "reward": torch.zeros(length), "terminated": torch.zeros(length), "truncated": torch.ones(length),
        }
        for length in (3, 5)
    ]  # fmt: skip
    write_trajectories(tmp_path / "trajectories.npz", episodes)

    sequences = read_sequences(tmp_path / "trajectories.npz")

    assert sequences.obs.shape == (6, 2, 2) and sequences.contiguous.sum(0).tolist() == [3, 5]
    ring = buffer_of(sequences, sequence_length=2)
    pieces = ring.sample(torch.rand(1, 50, 2), recent=0)
    assert (pieces.obs[:, 1:][pieces.contiguous] >= 3).all()


def test_predict_plays_as_many_steps_as_are_held_out_though_nothing_ever_ends(tmp_path: Path) -> None:
    data = spring_data(num_val_sequences=3, val_sequence_length=7)
    played = trainer(tmp_path).predict(explorer(data), datamodule=data)
    write_trajectories(tmp_path / "trajectories.npz", played[0].trajectories)  # type: ignore[index, union-attr]

    sequences = read_sequences(tmp_path / "trajectories.npz")

    assert sequences.obs.shape == (8, 3, 2) and sequences.contiguous.all()


def test_a_file_of_another_system_is_refused(tmp_path: Path) -> None:
    flags = {name: torch.zeros(4) for name in ("reward", "terminated", "truncated")}
    episode = {"obs": torch.zeros(5, 3), "action": torch.zeros(4, 1), **flags}
    write_trajectories(tmp_path / "trajectories.npz", [episode])
    data = OfflineSequenceDataModule(
        "tests.support.dynamics_fixtures.Spring", dataset=str(tmp_path / "trajectories.npz")
    )

    with pytest.raises(
        ConfigurationError,
        match=r"shapes \[\(3,\), \(1,\)\], and the environment has \[\(2,\), \(2,\)\]: set data\.env",
    ):
        data.stored(0, torch.device("cpu"))


def test_files_are_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", obs=np.array([{"a": 1}], dtype=object))

    with pytest.raises(ConfigurationError, match="not a file of trajectories"):
        read_sequences(tmp_path / "bad.npz")


def played_columns() -> dict[str, np.ndarray]:
    """Two episodes of 3 and 5 steps, as `predict` writes them."""
    starts = {"episode_start": np.array([0, 3, 8]), "obs_start": np.array([0, 4, 10])}
    return {"obs": np.zeros((10, 2), np.float32), "action": np.zeros((8, 1), np.float32), **starts}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"episode_start": np.array([0, 9, 8])}, "increasing from 0"),
        ({"episode_start": np.array([0.0, 3.0, 8.0])}, "increasing from 0"),
        ({"obs_start": np.array([0, 5, 10])}, "one more observation"),
        ({"obs_start": np.array([0, 4])}, "have shapes"),
        ({"obs": np.zeros((9, 2), np.float32)}, "its obs is"),
        ({"action": np.zeros((7, 1), np.float32)}, "its action is"),
        ({"action": np.array(["a"] * 8)}, "TypeError"),
    ],
)
def test_columns_that_are_no_episodes_are_refused(change: dict, sentence: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", **{**played_columns(), **change})

    with pytest.raises(ConfigurationError, match=sentence) as error:
        read_sequences(tmp_path / "bad.npz")
    assert "bad.npz" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "text"])
def test_damaged_trajectories_are_refused(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "trajectories.npz"
    np.savez(path, **played_columns())
    content = bytearray(path.read_bytes())
    content[content.index(b"\x93NUMPY") + 140] ^= 1
    damaged = {"truncated": content[:-50], "flipped": content, "empty": b"", "text": b"obs,action"}
    path.write_bytes(damaged[damage])

    with pytest.raises(ConfigurationError, match=r"trajectories\.npz is damaged, or not a file of trajectories"):
        read_sequences(path)


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"There is no file none\.npz: write one with"):
        OfflineSequenceDataModule("tests.support.dynamics_fixtures.Spring", dataset="none.npz")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"env": "CartPole-v1"}, "takes discrete actions; exploring dynamics needs continuous ones"),
        ({"num_updates": -1}, "data.num_updates is -1"),
        ({"num_recent": 99}, "num_recent must not exceed data.batch_size 32"),
        ({"sequence_length": 50}, r"data.sequence_length is 50, more than data.capacity 40"),
        ({"val_sequence_length": 0}, "data.val_sequence_length is 0"),
    ],
)
def test_impossible_values_are_refused(settings: dict, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        spring_data(**settings)


def test_data_can_be_asked_for_what_an_iteration_learns_from(tmp_path: Path) -> None:
    data = spring_data(num_updates=2, batch_size=3)

    class Between(Callback):
        found: Any = None

        def on_train_batch_end(self, *args: Any) -> None:
            self.found = data.collect()

    between = Between()
    trainer(tmp_path, between, max_steps=1).fit(explorer(data), datamodule=data)

    assert between.found.new_sequences.contiguous.shape == (2, 2) and between.found.minibatches.contiguous.shape == (
        2,
        6,
        3,
    )
    assert data.ring.size == 4
