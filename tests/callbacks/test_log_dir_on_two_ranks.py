"""Callbacks whose first rank writes into the run folder: every rank takes part in the broadcast of its path."""

from pathlib import Path

import pytest
from lightning.pytorch import Callback

from callbacks.analysis.torch_profiler import TorchProfiler
from callbacks.performance.heartbeat import Heartbeat
from tests.support.small_runs import cartpole_data, fitted, weights_hash
from tests.support.two_ranks import TwoRanks


def train(root: Path, *callbacks: Callback) -> None:
    """Train four iterations on two ranks, and write the hash of the weights into ROOT/RANK."""
    model = fitted(root, cartpole_data(total_env_steps=512), *callbacks, strategy="ddp", devices=2)
    (root / str(model.global_rank)).write_text(weights_hash(model))


@pytest.mark.parametrize(
    ("callback", "written"),
    [(Heartbeat(interval_s=0), "heartbeat.json"), (TorchProfiler(2), "traces/iteration=3.pt.trace.json.gz")],
    ids=["Heartbeat", "TorchProfiler"],
)
def test_the_first_rank_writes_and_the_ranks_stay_equal(
    ranks: TwoRanks, tmp_path: Path, callback: Callback, written: str
) -> None:
    ranks.run(train, tmp_path, callback)

    first, second = ((tmp_path / rank).read_text() for rank in "01")
    assert first == second
    assert (tmp_path / written).is_file()
