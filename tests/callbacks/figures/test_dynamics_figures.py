"""Pictures of dynamics: what is drawn, when, and where nothing can be."""

from pathlib import Path

import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from callbacks.figures.dynamics_figures import DynamicsFigures, draw_fields
from callbacks.figures.plotting import DPI, WIDE
from modules.active_dynamics.active_dynamics import ActiveDynamics
from modules.active_dynamics.observed_model import FullyObservedModel
from modules.exploration.policies import HeldRandomAction
from modules.networks.latent import RBF
from tests.support.dynamics_fixtures import explorer, spring_data
from tests.support.small_runs import trainer


def test_pictures_and_the_time_of_a_decision_are_logged(tmp_path: Path) -> None:
    data, board = spring_data(total_env_steps=32), TensorBoardLogger(tmp_path)

    run = trainer(tmp_path, DynamicsFigures(every=2), val_check_interval=2, logger=board)
    run.fit(explorer(data), datamodule=data)

    logged = EventAccumulator(board.log_dir, {"images": 0}).Reload()
    assert {image.step for image in logged.Images("dynamics/field")} == {8, 24}
    assert logged.Images("dynamics/field")[0].width == DPI * WIDE
    assert all(0 < scalar.value < 1e3 for scalar in logged.Scalars("dynamics/plan_ms"))


def test_measuring_and_drawing_change_nothing(tmp_path: Path) -> None:
    models = []
    for callbacks in ((), (DynamicsFigures(every=1),)):
        torch.manual_seed(1)
        data = spring_data()
        models.append(explorer(data))
        trainer(tmp_path, *callbacks, val_check_interval=3).fit(models[-1], datamodule=data)

    assert torch.equal(models[0].posterior.mean, models[1].posterior.mean)


@pytest.mark.parametrize(("env", "columns"), [("Lorenz-v0", 3), ("Pendulum-v1", 1)])
def test_three_dimensions_have_a_row_for_each_plane(env: str, columns: int, tmp_path: Path) -> None:
    data = spring_data(env=env, num_envs=1, total_env_steps=8)
    dynamics = RBF([-1.0] * 3, [1.0] * 3, centres=2)
    axes = list(range(len(data.spaces["action_low"])))
    model, figures = (
        ActiveDynamics(data.spaces, FullyObservedModel(dynamics, axes), HeldRandomAction()),
        DynamicsFigures(),
    )
    trainer(tmp_path).fit(model, datamodule=data)

    planes = figures.views(model, data)
    with torch.no_grad():
        field, paths = draw_fields(model, planes), figures.draw_paths(model, data.held_out_sequences(), planes)

    panels = [axes for axes in field.axes if axes.get_xlabel()]
    assert len(panels) == 3 * columns and len(field.axes) == len(panels) + 3, "a scale of speeds for each plane"
    assert [axes.get_title() for axes in panels[:columns]][-2:][0] == "learned field"
    assert [axes.get_xlabel() for axes in paths.axes] == ["state 0", "state 0", "state 1"]


def test_a_path_ends_where_an_episode_does(tmp_path: Path) -> None:
    figures, ended = DynamicsFigures(paths=3, steps=20), spring_data(env_kwargs={"length": 4})
    model = explorer(ended)
    trainer(tmp_path, max_steps=1).fit(model, datamodule=ended)

    with torch.no_grad():
        (axes,) = figures.draw_paths(model, ended.held_out_sequences(), figures.views(model, ended)).axes

    assert [len(line.get_xdata()) for line in axes.lines] == [4] * 6
