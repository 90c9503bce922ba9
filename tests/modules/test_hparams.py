"""Checkpoints described as plain data: made again as they were, and never a way to run code."""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch

from datamodules.types import UsageError
from modules.hparams import described
from modules.networks import MLP
from modules.ppo import PPO
from tests.training import fitted, small_ppo, snake_data, trainer


def checkpoint_naming(root: Path, **hparams: Any) -> Path:
    fitted(root, snake_data(total_env_steps=128))
    model = small_ppo(snake_data())
    run = trainer(root)
    run.fit(model, datamodule=snake_data(total_env_steps=128))
    run.save_checkpoint(root / "a.ckpt")
    content = torch.load(root / "a.ckpt", weights_only=True)
    content["hyper_parameters"] |= hparams
    torch.save(content, root / "a.ckpt")
    return root / "a.ckpt"


@pytest.mark.parametrize(
    "network", ["subprocess.getoutput", "os.system", "evilmod.Network", "datamodules.data.torch.load"]
)
def test_a_checkpoint_that_names_foreign_code_is_refused_and_nothing_runs(tmp_path: Path, network: str) -> None:
    marker = tmp_path / "marker"
    named = {"class_path": network, "init_args": {"cmd": f"touch {marker}", "command": f"touch {marker}"}}
    path = checkpoint_naming(tmp_path, network=named)
    with pytest.raises(UsageError, match=rf"names {network}, which may not be imported"):
        PPO.load_from_checkpoint(path)
    assert not marker.exists()


def test_an_activation_is_imported_only_if_it_may_be(tmp_path: Path) -> None:
    named = {"class_path": "modules.networks.MLP", "init_args": {"activation": "evilmod.Tanh"}}
    with pytest.raises(UsageError, match=r"names evilmod\.Tanh"):
        PPO.load_from_checkpoint(checkpoint_naming(tmp_path, network=named))


def test_a_url_is_no_checkpoint() -> None:
    with pytest.raises(UsageError, match="is not a local file"):
        PPO.load_from_checkpoint("https://example.org/a.ckpt")


def test_functions_of_plain_arguments_are_described_and_others_left_out() -> None:
    hparams = {"network": functools.partial(MLP, hidden=(32,)), "optimizer": lambda params: None, "gamma": 0.9}
    plain = described(hparams, PPO)
    assert plain["network"] == {"class_path": "modules.networks.mlp.MLP", "init_args": {"hidden": (32,)}}
    assert "optimizer" not in plain and plain["gamma"] == 0.9


def test_what_holds_something_that_cannot_be_described_is_left_out_whole() -> None:
    hparams = {"listed": [object()], "made": functools.partial(MLP, activation=object()), "plain": [1, "a"]}

    plain = described(hparams, PPO)

    assert plain["plain"] == [1, "a"] and not {"listed", "made"} & set(plain)
