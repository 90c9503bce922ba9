"""The Collector: steps that are compiled as one leave none out."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from tests.training import fitted, snake_data


class Seen(Callback):
    """Notes how many steps go together, and the clocks of all boards before and after a rollout."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        collector = trainer.datamodule.collector
        collector.start(3)
        before = collector.live.length
        rollout = collector.collect()
        self.together, self.steps = collector.together, collector.live.length - before
        self.ended = (rollout.terminated | rollout.truncated).any(0)


@pytest.mark.parametrize(("horizon", "together"), [(8, 2), (7, 1)])
def test_steps_go_together_where_they_fill_the_horizon(tmp_path: Path, horizon: int, together: int) -> None:
    seen = Seen()

    model = fitted(tmp_path, snake_data(horizon=horizon, total_env_steps=16 * horizon), seen)

    assert seen.together == together and model.env_steps == 16 * horizon
    assert torch.equal(seen.steps[~seen.ended], torch.full_like(seen.steps[~seen.ended], horizon))
