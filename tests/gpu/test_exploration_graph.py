"""On a GPU: planning, and learning from every step, are captured, and what comes out is what eager runs find."""

import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from callbacks.performance.compile import Compile
from datamodules.sequence import SequenceDataModule
from modules.active_dynamics.active_dynamics import ActiveDynamics
from modules.active_dynamics.observed_model import FullyObservedModel
from modules.exploration.acquisitions import InformationGain, OutsideBox
from modules.exploration.planners import CEM
from modules.exploration.policies import PlannedExploration
from modules.networks.latent import RBF
from tests.support.small_runs import trainer

pytestmark = pytest.mark.gpu


def run(root: Path, mode: Any, agents: int) -> ActiveDynamics:
    lightning.seed_everything(1, verbose=False)
    data = SequenceDataModule(
        "Duffing-v0", num_envs=agents, total_env_steps=20 * agents, num_val_sequences=4, val_sequence_length=40
    )
    planner = CEM(horizon=6, candidates=32, iterations=2, elites=4)
    acquisitions = [InformationGain(), OutsideBox(low=[-2.0, -2.0], high=[2.0, 2.0], weight=5.0)]
    model = ActiveDynamics(data.spaces, FullyObservedModel(RBF()), PlannedExploration(planner, acquisitions))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*cannot be.*")  # a fall-back is a failure here
        trainer(root, Compile(mode), accelerator="cuda").fit(model, datamodule=data)
    return model


@pytest.mark.parametrize("agents", [1, 3])
def test_captured_exploration_equals_eager_exploration(tmp_path: Path, agents: int):
    eager, graph = run(tmp_path, "off", agents), run(tmp_path, "graph", agents)

    torch.testing.assert_close(graph.posterior.precision, eager.posterior.precision, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(graph.posterior.mean, eager.posterior.mean, rtol=1e-3, atol=1e-3)
