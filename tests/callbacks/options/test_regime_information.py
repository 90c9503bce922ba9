import math
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch import Callback

from callbacks.options.regime_information import RegimeInformation, mutual_information
from datamodules.trading.datamodule import TradingDataModule
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.sac_options.sac_options import SACOptions
from tests.support.small_runs import trainer


class Knowing(Callback):
    """Lets every environment's option be the regime, which no observation shows."""

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        data = trainer.datamodule
        data.collector.state.policy_state["option"].copy_(data.active_regime())


def fitted(root: Path, *callbacks: Callback, symbol: str = "REGIMES", options: int = 3) -> SACOptions:
    """Sixteen accounts for 30 iterations of 4 vector steps, logged every 10."""
    lightning.seed_everything(1, verbose=False)
    sizes: dict[str, Any] = {"num_envs": 16, "train_freq": 4, "batch_size": 64, "replay_ratio": 1, "capacity": 4000}
    data = TradingDataModule(symbol, synthetic={"bars": 3000, "seed": 1}, total_env_steps=1920, **sizes)
    nets = {"network": partial(MLP, hidden=(16,)), "critic": partial(TwinMLP, hidden=(16,))}
    model = SACOptions(data.spaces, num_options=options, **nets)
    trainer(root, *callbacks, log_every_n_steps=10).fit(model, datamodule=data)
    return model


def test_independence_shares_nothing_and_identity_all_there_is():
    alike = torch.tensor([[10.0, 30], [20, 60]])
    same = torch.tensor([[25.0, 0], [0, 75], [0, 0]])

    assert mutual_information(alike) == pytest.approx(0.0, abs=1e-6)
    assert mutual_information(same) == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75), abs=1e-6)
    assert mutual_information(torch.zeros(2, 2)) == 0.0


def test_options_that_know_the_regime_share_its_entropy_and_others_next_to_nothing(tmp_path: Path):
    knowing = fitted(tmp_path / "knowing", Knowing(), RegimeInformation()).last_logged["option/regime_information"]
    chance = fitted(tmp_path / "chance", RegimeInformation()).last_logged["option/regime_information"]

    assert 0.5 < knowing <= math.log(2)
    assert 0.0 <= chance < 0.1


@pytest.mark.parametrize("changes", [{"symbol": "WALK"}, {"options": 1}])
def test_it_is_silent_where_no_regime_is_known_and_for_one_option(tmp_path: Path, changes: dict[str, Any]):
    model = fitted(tmp_path, RegimeInformation(), **changes)

    assert "option/regime_information" not in model.last_logged


def test_a_resumed_count_goes_on():
    callback, counts = RegimeInformation(), torch.tensor([1.0, 0, 0, 3])
    callback.load_state_dict({"counts": counts})

    assert torch.equal(callback.state_dict()["counts"], counts)
