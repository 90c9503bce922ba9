"""The loop of active dynamics: it explores, learns exactly, is evaluated, and resumes bit for bit."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.core.errors import ConfigurationError
from datamodules.core.sequence_types import SequenceBatch
from datamodules.core.types import PolicyInput
from datamodules.offline import OfflineSequenceDataModule
from datamodules.sequence import SequenceDataModule
from modules.active_dynamics.active_dynamics import ActiveDynamics
from modules.active_dynamics.bayesian_last_layer import BayesianLastLayer
from modules.active_dynamics.observed_model import FullyObservedModel
from modules.exploration.acquisitions import Disagreement, Distillation
from modules.exploration.planners import CEM
from modules.exploration.policies import HeldRandomAction, PlannedExploration
from modules.functional.dynamics.information_gain import Weights, posterior_update
from modules.networks.latent import RBF, Ensemble, MLPDynamics
from tests.support.dynamics_fixtures import Spring, explorer, spring_data
from tests.support.small_runs import trainer, weights_hash


def explored(
    root: Path, data: SequenceDataModule, *callbacks: RunCheckpoint, ckpt_path: Path | None = None, **changes: int
) -> ActiveDynamics:
    lightning.seed_everything(1, verbose=False)
    model = explorer(data)
    trainer(root, *callbacks, val_check_interval=4, **changes).fit(
        model, datamodule=data, ckpt_path=ckpt_path, weights_only=True
    )
    return model


def test_exploring_learns_the_field(tmp_path: Path) -> None:
    model = explored(tmp_path, spring_data(total_env_steps=600))

    assert model.last_logged["dynamics/field_r2"] > 0.8 and model.last_logged["dynamics/r2_1"] > 0.95
    assert model.env_steps == 600 and model.updates == 150
    assert model.last_logged["dynamics/information"] > 0


def test_the_posterior_is_that_of_all_steps_at_once(tmp_path: Path) -> None:
    data = spring_data()
    model = explored(tmp_path, data)

    regression = model.regression(data.ring.history())
    prior = BayesianLastLayer(26, 2, 1.0)
    at_once = posterior_update(
        Weights(prior.mean, prior.covariance),
        regression.features,
        regression.target,
        variance=model.regression_noise().double(),
    )

    torch.testing.assert_close(model.posterior.covariance, at_once.covariance, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(model.model.dynamics.weight.double(), at_once.mean, rtol=1e-4, atol=1e-4)


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path: Path) -> None:
    whole = explored(tmp_path / "whole", spring_data())
    explored(tmp_path / "part", spring_data(), RunCheckpoint("dynamics/field_r2"), max_steps=5)

    (last,) = (tmp_path / "part").rglob("last.ckpt")
    resumed = explored(tmp_path / "rest", spring_data(), ckpt_path=last)

    assert weights_hash(resumed) == weights_hash(whole)
    assert resumed.env_steps == whole.env_steps and resumed.last_logged == whole.last_logged


def test_steps_across_an_end_teach_nothing() -> None:
    model, contiguous = (
        explorer(spring_data()),
        torch.tensor([[True, True], [False, True], [True, True], [True, False]]),
    )

    regression = model.regression(SequenceBatch(torch.rand(5, 2, 2), torch.rand(4, 2, 2), contiguous))

    assert torch.equal(regression.features.any(-1), contiguous.flatten())
    assert not regression.target[~contiguous.flatten()].any()


def test_targets_are_the_field_without_what_was_pushed() -> None:
    """Steps of the true system without noise: the target is its field."""
    model, spring = explorer(spring_data()), Spring()
    obs, action = torch.rand(1, 5, 2), torch.rand(1, 5, 2)
    after = spring.transition({"x": obs[0], "age": torch.zeros(5)}, action[0], torch.full((5, 2), 0.5))[0]["x"]

    regression = model.regression(
        SequenceBatch(torch.stack([obs[0], after]), action, torch.ones(1, 5, dtype=torch.bool))
    )

    torch.testing.assert_close(regression.target.float(), spring.field(obs[0]), rtol=1e-4, atol=1e-4)


def test_every_episode_begins_exploring_anew() -> None:
    model = explorer(spring_data(), exploration=HeldRandomAction(steps=5))
    state, noise = model.initial_state(2), torch.ones(2, 2)
    _, state = model.act(PolicyInput(torch.zeros(2, 2), state, torch.tensor([True, True])), noise=noise)

    decision, state = model.act(PolicyInput(torch.zeros(2, 2), state, torch.tensor([False, True])), noise=-noise)

    assert (decision.action[0] > 0).all() and (decision.action[1] < 0).all()
    assert state["explore/age"].tolist() == [2, 1]


def test_the_exploration_of_a_config_is_what_acts(tmp_path: Path) -> None:
    planned, held = (explorer(spring_data(), **changes) for changes in ({}, {"exploration": HeldRandomAction(steps=5)}))

    assert planned.noise((3,), torch.Generator()).shape == (3, (16 + 16) * 3 * 2)
    assert held.noise((3,), torch.Generator()).shape == (3, 2)


def test_steps_of_gradient_learn_too_and_make_the_posterior_anew(tmp_path: Path) -> None:
    data = spring_data(total_env_steps=400, num_updates=4, batch_size=16, sequence_length=10, num_recent=2)
    dynamics = MLPDynamics(dt=Spring.dt, noise=0.05)
    model = ActiveDynamics(data.spaces, FullyObservedModel(dynamics), HeldRandomAction(), learning_rate=1e-2)

    trainer(tmp_path, val_check_interval=20).fit(model, datamodule=data)

    assert model.updates == 400 and model.last_logged["dynamics/field_r2"] > 0.6
    assert model.last_logged["dynamics/loss"] < 0 and model.posterior.precision.trace() > 65


def test_an_ensemble_and_a_novelty_are_trained_while_they_are_explored(tmp_path: Path) -> None:
    data = spring_data(num_updates=1, batch_size=8)
    worth = [Disagreement(), Distillation(2)]
    model = ActiveDynamics(
        data.spaces, FullyObservedModel(Ensemble(dt=Spring.dt)), PlannedExploration(CEM(horizon=3), worth)
    )
    before = [worth[1].predictor[0].weight.clone(), model.model.dynamics.each[4].weight.clone()]

    trainer(tmp_path, val_check_interval=20).fit(model, datamodule=data)

    after = [worth[1].predictor[0].weight, model.model.dynamics.each[4].weight]
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_stored_sequences_are_learned_from(tmp_path: Path) -> None:
    data = OfflineSequenceDataModule(
        "tests.support.dynamics_fixtures.Spring",
        sequences=8,
        steps=60,
        total_env_steps=40_000,
        batch_size=16,
        sequence_length=20,
        num_val_sequences=3,
    )
    model = ActiveDynamics(data.spaces, FullyObservedModel(MLPDynamics(dt=Spring.dt, noise=0.05)), learning_rate=1e-2)

    trainer(tmp_path, val_check_interval=50).fit(model, datamodule=data)

    assert model.last_logged["dynamics/field_r2"] > 0.6 and model.env_steps == 125 * 16 * 20


def test_features_that_must_be_learned_are_not_regressed_on(tmp_path: Path) -> None:
    data = spring_data()
    model = ActiveDynamics(data.spaces, FullyObservedModel(MLPDynamics()), HeldRandomAction())

    with pytest.raises(
        ConfigurationError, match=r"MLPDynamics of FullyObservedModel learns more than .* set data\.num_updates"
    ):
        trainer(tmp_path).fit(model, datamodule=data)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            lambda: FullyObservedModel(RBF([-1.0] * 3, [1.0] * 3, centres=3)),
            "observes 3 numbers, but the environment's observations have 2",
        ),
        (lambda: FullyObservedModel(RBF(), axes=[1]), r"actions of 2 parts: .* model\.model\.axes one entry for each"),
    ],
)
def test_a_model_made_for_another_system_is_refused(tmp_path: Path, model: Any, sentence: str) -> None:
    data = spring_data()
    with pytest.raises(ConfigurationError, match=sentence):
        trainer(tmp_path).fit(ActiveDynamics(data.spaces, model(), exploration=HeldRandomAction()), datamodule=data)


def test_impossible_values_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"model\.prior_variance is 0; it must be positive"):
        explorer(spring_data(), prior_variance=0)


def test_a_gymnasium_environment_is_judged_by_its_predictions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = spring_data(env="Pendulum-v1", num_envs=1, train_freq=1, total_env_steps=60)
    dynamics = RBF([-1.0, -1.0, -8.0], [1.0, 1.0, 8.0], centres=3, noise=0.3, residual=False)
    model = ActiveDynamics(
        data.spaces, FullyObservedModel(dynamics, [2], [3.0]), HeldRandomAction(), prior_variance=30.0
    )

    with caplog.at_level("INFO", "lightning.pytorch.utilities.rank_zero"):
        trainer(tmp_path, val_check_interval=30).fit(model, datamodule=data)

    assert set(model.held_out) == {"r2_1", "r2_5", "r2_10", "r2_20"} and model.held_out["r2_1"] > 0.3
    assert caplog.text.count("Pendulum-v1 provides no true vector field") == 1


def test_every_step_of_a_gymnasium_environment_is_learned_from_but_the_last(tmp_path: Path) -> None:
    data = spring_data(env="Pendulum-v1", train_freq=1, total_env_steps=440, capacity=300)
    dynamics = RBF([-1.0, -1.0, -8.0], [1.0, 1.0, 8.0], centres=2, residual=False)
    model = ActiveDynamics(data.spaces, FullyObservedModel(dynamics, [2], [3.0]), HeldRandomAction())

    trainer(tmp_path).fit(model, datamodule=data)

    obs, action, contiguous = data.ring.history()
    expected = (obs[:-1, :, 2] + 0.05 * (15 * obs[:-1, :, 1] + 3 * action[..., 0])).clamp(-8, 8)
    torch.testing.assert_close(obs[1:, :, 2][contiguous], expected[contiguous], rtol=1e-5, atol=1e-5)
    assert contiguous.sum(0).tolist() == [219, 219]
