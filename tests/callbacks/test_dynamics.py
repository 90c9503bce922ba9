"""Pictures of dynamics: what is drawn, when, and where nothing can be."""

from pathlib import Path

import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from callbacks.canvas import SIDE, Canvas
from callbacks.dynamics import DynamicsFigures
from callbacks.views import View
from modules.active_dynamics import ActiveDynamics
from modules.exploration.policies import Held
from modules.networks.latent import RBF
from modules.observed_model import ObservedModel
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


@pytest.mark.parametrize(("env", "width"), [("Lorenz-v0", 3), ("Pendulum-v1", 1)])
def test_three_dimensions_have_a_row_for_each_plane(env: str, width: int, tmp_path: Path) -> None:
    data, board = spring_data(env=env, num_envs=1, total_env_steps=8), TensorBoardLogger(tmp_path)
    dynamics = RBF([-1.0] * 3, [1.0] * 3, centres=2)
    axes = list(range(len(data.spaces["action_low"])))
    model = ActiveDynamics(data.spaces, ObservedModel(dynamics, axes), Held())

    trainer(tmp_path, DynamicsFigures(), val_check_interval=2, logger=board).fit(model, datamodule=data)

    logged = EventAccumulator(board.log_dir, {"images": 0}).Reload()
    field, paths = (logged.Images(f"dynamics/{name}")[0] for name in ("field", "paths"))
    assert (field.width, field.height) == (width * SIDE, 3 * SIDE)
    assert (paths.width, paths.height) == (3 * SIDE, SIDE)


def test_a_path_ends_where_an_episode_does(tmp_path: Path) -> None:
    figures, ended = DynamicsFigures(paths=3, steps=20), spring_data(env_kwargs={"length": 4})
    model = explorer(ended)
    trainer(tmp_path, max_steps=1).fit(model, datamodule=ended)
    held_out, plane = ended.held_out_sequences(), figures.views(model, ended)[0]
    drawn: list[torch.Tensor] = []

    class Recorder(Canvas):
        def line(self, points: torch.Tensor, colour: str) -> None:
            drawn.append(points)

    class Recorded(View):
        def canvas(self) -> Canvas:
            return Recorder(self.low, self.high)

    figures.predictions(model, held_out, [Recorded(*plane)])

    assert [len(points) for points in drawn] == [4] * 6
