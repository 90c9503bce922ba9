"""Latent models in the loop of active dynamics: from stored sequences and online, resumed bit for bit."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.core.errors import ConfigurationError
from datamodules.offline import OfflineSequenceDataModule
from datamodules.sequence import SequenceDataModule
from modules.active_dynamics.active_dynamics import ActiveDynamics
from modules.active_dynamics.latent_model import LatentModel
from modules.exploration.policies import HeldRandomAction
from modules.networks.latent import GRUEncoder, LinearActions, LinearDecoder, MLPDynamics, MLPEncoder
from tests.support.dynamics_fixtures import Spring, spring_data
from tests.support.small_runs import trainer, weights_hash


def stored_springs(**changes: Any) -> OfflineSequenceDataModule:
    """Eight recorded springs, twelve iterations."""
    settings: dict[str, Any] = {
        "sequences": 8,
        "steps": 60,
        "sequence_length": 20,
        "batch_size": 8,
        "total_env_steps": 1920,
    }
    return OfflineSequenceDataModule(
        "tests.support.dynamics_fixtures.Spring",
        **{**settings, "num_val_sequences": 3, "val_sequence_length": 30, **changes},
    )


def learner(
    data: SequenceDataModule, recurrent: bool = False, both_ways: bool = False, **changes: Any
) -> ActiveDynamics:
    """A spring's two numbers are observations like any other to it."""
    encoder = GRUEncoder(2, 2, hidden=8, bidirectional=both_ways, window=5) if recurrent else MLPEncoder(2, 2)
    dynamics = MLPDynamics(2, hidden=(16,), dt=Spring.dt, noise=0.35)
    model = LatentModel(encoder, LinearDecoder(2, 2), dynamics, LinearActions(2, 2), samples=1, overshooting_steps=3)
    return ActiveDynamics(data.spaces, model, HeldRandomAction(), **{"learning_rate": 1e-2, **changes})


def fitted(
    root: Path, data: SequenceDataModule, *callbacks: RunCheckpoint, ckpt_path: Path | None = None, **changes: Any
) -> ActiveDynamics:
    lightning.seed_everything(1, verbose=False)
    model = learner(data, recurrent="num_updates" in changes)
    loop = {name: value for name, value in changes.items() if name != "num_updates"}
    trainer(root, *callbacks, **{"val_check_interval": 4, **loop}).fit(
        model, datamodule=data, ckpt_path=ckpt_path, weights_only=True
    )
    return model


def test_a_latent_model_learns_from_stored_sequences(tmp_path: Path) -> None:
    model = fitted(tmp_path, stored_springs(total_env_steps=160 * 200), val_check_interval=100)

    assert model.last_logged["dynamics/r2_1"] > 0.9 and model.last_logged["dynamics/r2_10"] > 0.7
    assert model.last_logged["dynamics/beta"] == 1.0 and model.last_logged["dynamics/kl"] > 0
    assert model.last_logged["dynamics/grad_norm"] > 0 and model.updates == 200


@pytest.mark.parametrize("online", [False, True])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(online: bool, tmp_path: Path) -> None:
    """With hidden rows, a beta that is still rising, and online an encoder that remembers."""
    settings = {"num_updates": 2, "batch_size": 4} if online else {}
    made, recurrent = (spring_data if online else stored_springs), {"num_updates": 2} if online else {}
    whole = fitted(tmp_path / "whole", made(**settings), **recurrent)
    fitted(tmp_path / "part", made(**settings), RunCheckpoint("dynamics/r2_1"), max_steps=5, **recurrent)

    (last,) = (tmp_path / "part").rglob("last.ckpt")
    resumed = fitted(tmp_path / "rest", made(**settings), ckpt_path=last, **recurrent)

    assert weights_hash(resumed) == weights_hash(whole)
    assert resumed.env_steps == whole.env_steps and resumed.last_logged == whole.last_logged


def test_an_agent_explores_with_a_latent_model_and_reports_its_drift(tmp_path: Path) -> None:
    data = spring_data(num_updates=1, batch_size=4)
    model = learner(data, recurrent=True, posterior_refit_interval=4)

    trainer(tmp_path, val_check_interval=20).fit(model, datamodule=data)

    assert 0 < model.last_logged["dynamics/drift"] < 10 and model.posterior.precision.trace() > 17
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_an_encoder_that_looks_ahead_learns_from_stored_sequences_only(tmp_path: Path) -> None:
    data, stored = spring_data(num_updates=1), stored_springs()

    trainer(tmp_path).fit(learner(stored, recurrent=True, both_ways=True), datamodule=stored)

    with pytest.raises(ConfigurationError, match="uses future observations"):
        trainer(tmp_path).fit(learner(data, recurrent=True, both_ways=True), datamodule=data)


def test_a_step_that_overflows_changes_nothing(tmp_path: Path) -> None:
    """One observation that is not a number, in sequences whose other pieces would be learned from."""
    data = stored_springs()
    model = learner(data)
    trainer(tmp_path, max_steps=3).fit(model, datamodule=data)
    before, chunks = weights_hash(model), data.ring.sample(torch.rand(1, 8, 2), recent=0)
    chunks.obs[0, 3, 2] = float("nan")

    loss, norm, *_ = model.gradient_steps(chunks, (model.model.draws(chunks.contiguous[0], torch.Generator()),))

    assert loss.isnan() and norm == 0 and weights_hash(model) == before
