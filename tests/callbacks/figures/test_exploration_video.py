"""The film of an exploration: what it keeps, what it shows, and where it is found."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from PIL import Image, ImageColor
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from callbacks.figures.dynamics_figures import DynamicsFigures
from callbacks.figures.exploration_video import FRAMES, NEW_COLOUR, OLD_COLOUR, ExplorationVideo
from callbacks.figures.plotting import DPI
from callbacks.figures.projections import View, panel_size
from callbacks.run_control.checkpoint import RunCheckpoint
from tests.support.dynamics_fixtures import explorer, spring_data
from tests.support.small_runs import trainer

PLANE = View([0, 1], -torch.ones(2), torch.ones(2), torch.zeros(1, 2), None)


def filmed(evaluations: int) -> ExplorationVideo:
    """A film of a field that grows, evaluated every 10 environment steps."""
    film = ExplorationVideo()
    for number in range(1, evaluations + 1):
        agent: Any = SimpleNamespace(env_steps=10 * number, field=lambda z, n=number: torch.full_like(z, n))
        if film.due:
            film.record(agent, [PLANE])
        film.evaluations += 1
    return film


def count(picture: np.ndarray, colour: str) -> int:
    """Pixels of a colour, within the axes."""
    return int((abs(picture[40:370, 110:440].astype(int) - ImageColor.getrgb(colour)).sum(-1) < 40).sum())


@pytest.mark.parametrize("evaluations", [3, 79, 80, 1_000])
def test_a_run_of_any_length_is_some_evenly_spaced_frames(evaluations: int) -> None:
    steps = [shot.env_steps for shot in filmed(evaluations).snapshots]

    assert min(evaluations, FRAMES) <= len(steps) < 2 * FRAMES
    assert len(set(np.diff(steps))) == 1 and steps[0] == 10


def test_a_frame_shows_what_was_seen_by_then_and_the_newest_in_another_colour() -> None:
    visited = torch.stack([torch.linspace(-0.9, 0.9, 100), torch.full((100,), 0.5)], dim=1)

    first, *_, last = filmed(10).frames([PLANE], visited, 1).values()

    assert count(first, OLD_COLOUR) == 0 and count(first, NEW_COLOUR) > 0
    assert count(last, OLD_COLOUR) > 0 and count(last, NEW_COLOUR) > count(first, NEW_COLOUR)
    assert not np.array_equal(first[:40], last[:40]), "the title says how far the run was"


def test_frames_differ_only_where_something_moved() -> None:
    first, *_, last = filmed(10).frames([PLANE], torch.zeros(1, 2), 1_000).values()

    assert np.array_equal(first[-80:], last[-80:])


def test_the_film_is_a_file_of_the_run_and_its_frames_are_on_the_board(tmp_path: Path) -> None:
    data, board = spring_data(total_env_steps=32), TensorBoardLogger(tmp_path)

    trainer(tmp_path, DynamicsFigures(), val_check_interval=2, logger=board).fit(explorer(data), datamodule=data)

    film = Image.open(Path(board.log_dir) / "exploration.gif")
    assert film.n_frames == 4 and film.size == tuple(round(DPI * inches) for inches in panel_size(1))  # type: ignore[attr-defined]
    shown = EventAccumulator(board.log_dir, {"images": 0}).Reload().Images("dynamics/exploration")
    assert [image.step for image in shown] == [8, 16, 24, 32]


def test_a_resumed_run_goes_on_with_its_film(tmp_path: Path) -> None:
    first, rest = DynamicsFigures(), DynamicsFigures()
    part, whole = spring_data(), spring_data()
    trainer(tmp_path / "a", first, RunCheckpoint("dynamics/field_r2"), val_check_interval=2, max_steps=6).fit(
        explorer(part), datamodule=part
    )
    (last,) = (tmp_path / "a").rglob("last.ckpt")

    run = trainer(tmp_path / "b", rest, RunCheckpoint("dynamics/field_r2"), val_check_interval=2)
    run.fit(explorer(whole), datamodule=whole, ckpt_path=last, weights_only=True)

    assert [shot.env_steps for shot in first.video.snapshots] == [8, 16, 24]
    assert [shot.env_steps for shot in rest.video.snapshots] == [8, 16, 24, 32, 40, 48]
