"""Pictures of dynamics: what is drawn, when, and where nothing can be."""

from pathlib import Path

import numpy as np
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from callbacks.dynamics import INK, SIDE, Canvas, DynamicsFigures, side_by_side, sparse
from tests.dynamics import explorer, spring_data
from tests.training import trainer


def test_pictures_and_the_time_of_a_decision_are_logged(tmp_path: Path) -> None:
    data, board = spring_data(total_env_steps=32), TensorBoardLogger(tmp_path)

    run = trainer(tmp_path, DynamicsFigures(every=2), val_check_interval=2, logger=board)
    run.fit(explorer(data), datamodule=data)

    logged = EventAccumulator(board.log_dir, {"images": 0}).Reload()
    assert {image.step for image in logged.Images("dynamics/field")} == {8, 24}
    assert logged.Images("dynamics/field")[0].width == 3 * SIDE and logged.Images("dynamics/paths")[0].width == SIDE
    assert all(0 < scalar.value < 1e3 for scalar in logged.Scalars("dynamics/plan_ms"))


def test_measuring_and_drawing_change_nothing(tmp_path: Path) -> None:
    models = []
    for callbacks in ((), (DynamicsFigures(every=1),)):
        torch.manual_seed(1)
        data = spring_data()
        models.append(explorer(data))
        trainer(tmp_path, *callbacks, val_check_interval=3).fit(models[-1], datamodule=data)

    assert torch.equal(models[0].posterior.mean, models[1].posterior.mean)


def test_an_arrow_points_where_the_field_does() -> None:
    canvas = Canvas(np.array([-1.0, -1.0]), np.array([1.0, 1.0]))

    canvas.arrows(torch.zeros(1, 2), torch.tensor([[0.0, 9.0]]), scale=1.0)

    dark = np.argwhere(np.asarray(side_by_side([canvas]).convert("L"))[10:-10, 10:-10] < 128) + 10
    assert dark[:, 0].min() < SIDE / 2 - 20 and dark[:, 0].max() <= SIDE / 2 + 3, INK
    assert abs(dark[:, 1].mean() - SIDE / 2) < 2


def test_no_more_arrows_than_fit() -> None:
    axis = torch.linspace(-1, 1, 31)
    grid = torch.cartesian_prod(axis, axis)

    points, field = sparse(grid, 2 * grid)

    assert len(points) == 11 * 11 and torch.equal(field, 2 * points)
