"""Exploration behind an encoder: warm-up, linear start, encoder rate, regression and box; each acts, or is off."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput
from datamodules.envs.dynamical_systems.env import DynamicalSystemEnv
from datamodules.sequence import SequenceDataModule
from modules.active_dynamics.active_dynamics import ActiveDynamics
from modules.active_dynamics.bayesian_last_layer import regression_batch
from modules.active_dynamics.latent_model import LatentModel
from modules.exploration.acquisitions import InformationGain, OutsideObservationBox
from modules.exploration.observation_box import ObservationBox
from modules.exploration.planners import CEM
from modules.exploration.policies import HeldRandomAction, PlannedExploration, ZeroAction
from modules.exploration.warm_up import UNKNOWN_VARIANCE, WarmUp
from modules.functional.dynamics.linear_gaussian import whiten_differences
from modules.networks.latent import RBF, LinearActions, LinearDecoder, MLPDynamics, MLPEncoder
from tests.support.small_runs import trainer, weights_hash

RECIPE: dict[str, Any] = {
    "encoder_learning_rate": 0.0,
    "regress_dynamics": True,
    "generalized_least_squares": True,
    "posterior_refit_interval": 4,
    "prior_variance": 3.0,
}


def duffing(**changes: Any) -> SequenceDataModule:
    """Duffing by eight noisy observations."""
    observed = {"observation": "linear", "observation_dim": 8, "observation_noise": 0.1}
    settings = {"num_envs": 1, "capacity": 200, "total_env_steps": 80, "sequence_length": 6, "batch_size": 4}
    held_out = {"num_val_sequences": 4, "val_sequence_length": 30}
    return SequenceDataModule("Duffing-v0", **{"env_kwargs": observed, **settings, **held_out, **changes})


def explorer(data: SequenceDataModule, encoder: Any = None, dynamics: Any = None, **changes: Any) -> ActiveDynamics:
    model = LatentModel(
        encoder or MLPEncoder(8, hidden=[]), LinearDecoder(8), dynamics or RBF(centres=5), LinearActions(2),
        samples=1, overshooting_steps=2,
    )  # fmt: skip
    acquisitions = [InformationGain(), *([OutsideObservationBox()] if "box" in changes else [])]
    planner = PlannedExploration(CEM(horizon=6, candidates=16, iterations=2, elites=4), acquisitions)
    return ActiveDynamics(data.spaces, model, planner, **{"warm_up": WarmUp(40, linear_init=True), **RECIPE, **changes})


def explored(root: Path, data: SequenceDataModule, *callbacks: Any, ckpt_path: Any = None, **changes: Any) -> Any:
    steps = changes.pop("max_steps", -1)
    lightning.seed_everything(1, verbose=False)
    model = explorer(data, **changes)
    trainer(root, *callbacks, val_check_interval=20, max_steps=steps).fit(
        model, datamodule=data, ckpt_path=ckpt_path, weights_only=True
    )
    return model


def encoder_weights(model: Any) -> Tensor:
    return torch.cat([part.detach().flatten() for part in (*model.model.encoder.parameters(),)])


def test_it_learns_the_field_from_noisy_observations(tmp_path: Path) -> None:
    system = DynamicalSystemEnv("duffing", observation="linear", observation_dim=8)
    corners = torch.cartesian_prod(*torch.stack([system.low, system.high], -1))
    edge = system.mean({"x": corners}).amax(0).tolist()
    box = ObservationBox(8, low=[-bound for bound in edge], high=edge)
    data = duffing(total_env_steps=300, capacity=300)

    model = explored(tmp_path, data, dynamics=RBF(width=4.0), prior_variance=30.0, box=box)

    assert model.last_logged["dynamics/field_r2"] > 0.7 and model.last_logged["dynamics/r2_10"] > 0.8


def test_the_warm_up_policy_acts_for_its_steps_and_is_saved(tmp_path: Path) -> None:
    data = duffing(total_env_steps=60)
    model = explored(tmp_path, data, warm_up=WarmUp(40, HeldRandomAction(steps=10)))

    actions = data.ring.history().action[-60:, 0]
    changes = (actions[1:] != actions[:-1]).any(-1)
    assert changes[:39].nonzero().flatten().tolist() == [9, 19, 29] and changes[40:].all()
    assert int(model.warm_up.taken) == 60 and "warm_up.taken" in model.state_dict()


def test_a_prediction_of_the_warm_up_is_not_believed() -> None:
    model = explorer(duffing(), warm_up=WarmUp(1, ZeroAction()))
    first = PolicyInput(torch.randn(2, 8), model.initial_state(2), torch.tensor([True, True]))
    _, state = model.act(first, model.noise((2,), torch.Generator()))
    assert (state["variance"] == UNKNOWN_VARIANCE).all()

    model.warm_up.count_(1)
    later = PolicyInput(torch.randn(2, 8), state, torch.tensor([False, False]))
    output, state = model.act(later, model.noise((2,), torch.Generator()))

    torch.testing.assert_close(output.extras["latent"], model.model.encode(later.obs[None])[0][0])
    assert (state["variance"] < 1).all()


def test_the_linear_start_makes_the_latent_state_an_affine_map_of_the_true_one(tmp_path: Path) -> None:
    data = duffing()
    linear, plain = (explored(tmp_path, data, warm_up=WarmUp(40, linear_init=on)) for on in (True, False))

    held_out = data.held_out_sequences()
    scores = []
    for model in (linear, plain):
        latent, state = model.encoded(held_out.sequences).flatten(0, 1), held_out.state.flatten(0, 1)
        ones = torch.cat([latent, torch.ones(len(latent), 1)], 1)
        residual = state - ones @ torch.linalg.lstsq(ones, state).solution
        scores.append(float(1 - residual.square().sum() / (state - state.mean(0)).square().sum()))
    assert scores[0] > 0.98 and scores[0] > scores[1]
    torch.testing.assert_close(
        linear.model.decode(linear.encoded(held_out.sequences)).mean(), held_out.mean.mean(), rtol=0.2, atol=0.05
    )


def test_a_known_box_spans_the_grid_of_the_dynamics_and_an_unknown_one_grows(tmp_path: Path) -> None:
    known, unknown = ObservationBox(8, low=-4.0, high=4.0), ObservationBox(8)
    known_run, unknown_run = (explored(tmp_path, duffing(), box=box) for box in (known, unknown))

    angle = torch.linspace(0, 6.3, 500)
    for model, box in ((known_run, known),):
        rays = 3.9 * torch.stack([angle.cos(), angle.sin()], -1).unsqueeze(1) * torch.linspace(0, 1, 200).view(1, -1, 1)
        inside = (box.excess(model.model.decode(rays)) == 0).all(-1)
        extent = rays[inside]
        torch.testing.assert_close(extent.amax(0), torch.full((2,), 2.0), rtol=0.03, atol=0)
    decoded = unknown_run.model.decode(unknown_run.encoded(unknown_run.data.ring.history())[-80:])
    assert (unknown.excess(decoded) == 0).all() and unknown.lowest.isfinite().all()


def test_the_box_keeps_plans_inside(tmp_path: Path) -> None:
    box = ObservationBox(8, low=-1.0, high=1.0)
    penalised = PlannedExploration(CEM(horizon=3, candidates=16, iterations=2, elites=4), [OutsideObservationBox()])
    model = explorer(duffing(), box=box)
    model.exploration = penalised

    assert model.knowledge().box is box
    with pytest.raises(ConfigurationError, match=r"OutsideObservationBox needs model\.box"):
        explored_without_box = explorer(duffing())
        explored_without_box.exploration = penalised
        trainer(tmp_path).fit(explored_without_box, datamodule=duffing())


def test_the_encoder_is_frozen_or_learns_at_its_own_rate(tmp_path: Path) -> None:
    started = encoder_weights(explored(tmp_path, duffing(total_env_steps=40)))
    changes = {"num_updates": 1, "num_recent": 1}
    frozen, slow, fast = (
        explored(tmp_path, duffing(**changes), encoder_learning_rate=rate, dynamics=RBF(centres=5, learn_noise=True))
        for rate in (0.0, 1e-5, 1e-3)
    )

    assert torch.equal(encoder_weights(frozen), started)
    moved = [float((encoder_weights(model) - started).abs().max()) for model in (slow, fast)]
    assert 0 < moved[0] < 1e-3 < moved[1]
    rates = [group["lr"] for group in fast.raw_optimizers[0].param_groups]
    assert rates == [1e-3, 1e-3] and [group["lr"] for group in slow.raw_optimizers[0].param_groups] == [1e-5, 1e-3]


def test_the_regression_sets_the_field_and_the_effect_of_actions(tmp_path: Path) -> None:
    model = explored(tmp_path, duffing())
    features = len(model.model.dynamics.weight)

    assert torch.equal(model.model.dynamics.weight, model.posterior.mean[:features].float())
    assert torch.equal(model.model.action_encoder.linear.weight, model.posterior.mean[features:].T.float())
    assert model.knowledge().covariance.shape == (features, features)
    off = explored(tmp_path, duffing(num_updates=1), regress_dynamics=False, encoder_learning_rate=None)
    assert off.regressed_actions == 0 and len(off.posterior.mean) == features


def test_generalised_least_squares_whitens_the_regression(tmp_path: Path) -> None:
    data = duffing()
    model = explored(tmp_path, data)
    whitened = model.regression(data.ring.history())
    model.generalized_least_squares = False
    plain = model.regression(data.ring.history())

    noise = model.regression_noise(), model.sensor_noise(data.ring.history())
    expected = regression_batch(model.model, model.encoded(data.ring.history()), data.ring.history(), actions=True)
    torch.testing.assert_close(plain.target, expected.target)
    white = whiten_differences(
        torch.cat(expected, -1).unsqueeze(1), data.ring.history().contiguous, process=noise[0], sensor=noise[1]
    )
    torch.testing.assert_close(torch.cat(whitened, -1), white.squeeze(1), rtol=1e-4, atol=1e-4)
    assert noise[1] > noise[0]


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path: Path) -> None:
    box = {"box": ObservationBox(8)}
    whole = explored(tmp_path / "whole", duffing(), **box)
    explored(tmp_path / "part", duffing(), RunCheckpoint("dynamics/field_r2"), max_steps=60, box=ObservationBox(8))

    (last,) = (tmp_path / "part").rglob("last.ckpt")
    resumed = explored(tmp_path / "rest", duffing(), ckpt_path=last, box=ObservationBox(8))

    assert weights_hash(resumed) == weights_hash(whole) and torch.equal(resumed.box.highest, whole.box.highest)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"encoder": MLPEncoder(8)}, r"set its hidden to \[\]"),
        ({"encoder_learning_rate": None}, r"set data\.num_updates to 1"),
        ({"dynamics": MLPDynamics()}, r"MLPDynamics of LatentModel learns more"),
        ({"warm_up": WarmUp(2, linear_init=True)}, "Choose a longer warm-up"),
        ({"box": ObservationBox(8, low=5.0, high=6.0)}, "widen the box"),
        ({"regress_dynamics": False}, r"model\.warm_up acts only with refits: set data\.num_updates to 1"),
        ({"regress_dynamics": False, "warm_up": None, "box": ObservationBox(8)}, r"a growing model\.box acts only"),
        ({"exploration": HeldRandomAction(turn_back=True)}, r"HeldRandomAction needs model\.box"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    data, exploration = duffing(), changes.get("exploration")
    model = explorer(data, **{key: value for key, value in changes.items() if key != "exploration"})
    model.exploration = exploration or model.exploration
    with pytest.raises(ConfigurationError, match=sentence):
        trainer(tmp_path).fit(model, datamodule=data)
