"""On a GPU with real environments: what happens between two of their steps is captured, and changes nothing."""

from pathlib import Path
from typing import Any

import lightning
import pytest

from callbacks.performance.compile import Compile
from callbacks.performance.execution_summary import acting
from modules.networks import LSTM
from modules.ppo.ppo import PPO
from tests.support.small_runs import cartpole_data, small_ppo, trainer

pytestmark = pytest.mark.gpu


class Said(Compile):
    """Compiles, and keeps how the policy was asked."""

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.form = acting(trainer.datamodule.collector)


def run(root: Path, compiled: Compile, backend: str, **settings: Any) -> PPO:
    lightning.seed_everything(1, verbose=False)
    data = cartpole_data(backend=backend, num_envs=8)
    model = small_ppo(data, **settings)
    trainer(root, compiled, accelerator="cuda").fit(model, datamodule=data)
    return model


@pytest.mark.parametrize(
    "network", [{}, {"network": lambda shape: LSTM(shape, hidden=16), "share_torso": True}], ids=["plain", "recurrent"]
)
@pytest.mark.parametrize("backend", ["sync", "pool"])
def test_acting_is_captured_between_real_steps_and_changes_nothing(
    tmp_path: Path, backend: str, network: dict[str, Any]
):
    said = Said("graph")

    graph, eager = run(tmp_path, said, backend, **network), run(tmp_path, Compile("off"), backend, **network)

    assert "one CUDA graph" in said.form
    assert [p.shape for p in graph.parameters()] == [p.shape for p in eager.parameters()]
    assert all((a - b).abs().max() < 1e-4 for a, b in zip(graph.parameters(), eager.parameters(), strict=True))
    assert graph.env_steps == eager.env_steps
