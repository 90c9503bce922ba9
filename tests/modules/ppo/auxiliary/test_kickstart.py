"""Kickstarting: teachers see what they would have seen, do not compound, fade, and must fit."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from datamodules.core.errors import ConfigurationError
from modules.networks import LSTM
from modules.ppo.auxiliary.base import AuxiliaryLosses, ForwardPass
from modules.ppo.auxiliary.kickstart import KickstartLoss, Teacher
from modules.ppo.batch import PPOBatch
from modules.ppo.ppo import PPO
from tests.modules.base.test_training_loop import SaveAt
from tests.modules.ppo.test_ppo_recurrent import LSTM_16, NETWORKS, model_and_rollouts
from tests.support.auxiliary_runs import RECURRENT, fit, teacher
from tests.support.replay_fixtures import replay_data, small_dqn
from tests.support.small_runs import cartpole_data, small_ppo, snake_data, trainer


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> dict[str, PPO]:
    """Teachers by the names of their files, which need not be there."""
    models: dict[str, PPO] = {}
    monkeypatch.setattr("modules.ppo.auxiliary.kickstart.load_algorithm", lambda path: models[str(path)])
    return models


def prepared(model: PPO, loss: KickstartLoss, rollout: Any, env_steps: int = 0) -> PPOBatch:
    """The batch of a rollout for a loss that begins with it."""
    model.auxiliary_losses, model.trainer = AuxiliaryLosses([loss]), trainer(Path())
    model.trainer.datamodule = cartpole_data()
    model.auxiliary_losses.on_fit_start(model)
    model.auxiliary_losses.update_schedule(env_steps)
    with torch.no_grad():
        return model.prepare(rollout)


def loss_of(model: PPO, loss: KickstartLoss, batch: PPOBatch) -> tuple[torch.Tensor, list[torch.Tensor]]:
    features = model.torso_features(batch)[0]
    return loss.loss(model, batch, ForwardPass(features, model.actor(features, batch.mask), model.critic(features)))


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_a_recurrent_teacher_goes_on_from_rollout_to_rollout(network: Any, loaded: dict[str, PPO]) -> None:
    model, rollouts = model_and_rollouts("CartPole-v1", 3, network=network)
    loaded["itself"] = model
    itself = Teacher("itself", model)

    for rollout in rollouts:
        with torch.no_grad():
            found, value = itself.evaluate(model, rollout), model.values(rollout)[0]
        torch.testing.assert_close(found["policy"], rollout.extras["policy"])
        torch.testing.assert_close(found["value"], value[:-1])


def test_the_loss_is_its_definition_and_two_equal_teachers_are_as_one(loaded: dict[str, PPO]) -> None:
    model, (rollout,) = model_and_rollouts("CartPole-v1", 1)
    other, _ = model_and_rollouts("CartPole-v1", 0)
    loaded |= {"one": other, "two": other}
    losses = []
    for teachers in (["one"], ["one", "two"]):
        loss = KickstartLoss(teachers, action_coef=2.0, value_coef=3.0, anneal_env_steps=100)
        batch = prepared(model, loss, rollout, env_steps=25)
        term, (action_loss, value_loss, share) = loss_of(model, loss, batch)
        assert float(share) == 0.75
        assert float(term.detach()) == pytest.approx(0.75 * float((2 * action_loss + 3 * value_loss).detach()))
        losses.append(term)
    features, own = (each.torso_features(batch)[0] for each in (other, model))
    valid = rollout.valid
    taught, policy = (each.actor(f).log_probs.detach() for each, f in ((other, features), (model, own)))
    assert float(action_loss.detach()) == pytest.approx(float(-(taught.exp() * policy).sum(-1)[valid].mean()), rel=1e-5)
    error = (other.critic(features) - model.critic(own))[valid].square().mean().detach()
    assert float(value_loss.detach()) == pytest.approx(0.5 * float(error), rel=1e-4)
    torch.testing.assert_close(losses[1], losses[0])


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        ({"anneal_env_steps": 100}, [1.0, 0.5, 0.0, 0.0]),
        ({"anneal_env_steps": 100, "constant_env_steps": 50}, [1.0, 1.0, 0.5, 0.0]),
        ({}, [1.0, 0.75, 0.5, 0.0]),
        ({"constant_env_steps": 100}, [1.0, 1.0, 1.0, 0.0]),
    ],
)
def test_the_share_falls_linearly_to_zero(settings: dict[str, int], shares: list[float]) -> None:
    loss = KickstartLoss(["x"], **settings)
    loss.share, loss.total_env_steps = torch.ones(()), 200

    found = []
    for env_steps in (0, 50, 100, 200):
        loss.update_schedule(env_steps)
        found.append(float(loss.share))

    assert found == shares


def test_a_student_that_starts_from_a_trained_agent_is_taught_from_the_start_of_its_own_run(tmp_path: Path) -> None:
    path, trained = teacher(tmp_path), fit(tmp_path)
    data, loss = snake_data(), KickstartLoss([path])
    model = small_ppo(data, auxiliary_losses=[loss])
    model.load_state_dict(trained.state_dict())
    model.env_steps = trained.env_steps
    trainer(tmp_path, max_steps=1).fit(model, datamodule=data)
    assert float(loss.share) == 1.0


def test_the_share_goes_on_when_a_run_is_resumed(tmp_path: Path) -> None:
    path, file = teacher(tmp_path), tmp_path / "k.ckpt"
    fit(tmp_path, SaveAt(3, file, stop=True), losses=[KickstartLoss([path])])
    loss = KickstartLoss([path])
    fit(tmp_path, losses=[loss], ckpt_path=file, trainer_max_steps=4)
    assert float(loss.share) == 0.5


WIDER: dict[str, Any] = {**RECURRENT, "network": partial(LSTM, hidden=24, encoder=(8,))}


@pytest.mark.parametrize(("other", "rows"), [(RECURRENT, 2), (WIDER, 4), ({}, 4)], ids=["rows", "wider", "plain"])
def test_a_teacher_starts_anew_when_a_resume_changes_the_shape_of_its_state(
    tmp_path: Path, other: dict[str, Any], rows: int
) -> None:
    file = tmp_path / "k.ckpt"
    before, after = (
        teacher(tmp_path, name, data=cartpole_data(), **settings)
        for name, settings in (("before", RECURRENT), ("after", other))
    )
    fit(tmp_path, SaveAt(4, file, stop=True), data=cartpole_data(), losses=[KickstartLoss([before])])
    data, loss = cartpole_data(num_envs=rows), KickstartLoss([after])
    model = fit(tmp_path, data=data, losses=[loss], ckpt_path=file)
    (taught,) = loss.teachers
    found, expected = taught.state, taught.model.initial_state(rows)
    assert model.env_steps == data.total_env_steps
    assert {name: leaf.shape for name, leaf in found.items()} == {name: leaf.shape for name, leaf in expected.items()}


def test_values_are_converted_to_the_units_of_the_agents_scaled_rewards(loaded: dict[str, PPO]) -> None:
    data = snake_data()
    loaded["x"], model = small_ppo(data), small_ppo(data)
    taught: Any = loaded["x"]
    taught.reward_scaler.returns.scale.fill_(0.5)  # its values are half of the returns
    model.reward_scaler.returns.scale.fill_(0.1)  # type: ignore[union-attr]
    _, (rollout,) = model_and_rollouts("Snake-v0", 1, **data.env_kwargs)

    with torch.no_grad():
        found = Teacher("x", model).evaluate(model, rollout)["value"]

    expected = 0.2 * taught.value(rollout.obs[:-1].flatten(0, 1)).view_as(found)
    torch.testing.assert_close(found, expected)


def test_an_agent_comes_to_act_like_its_teacher(tmp_path: Path) -> None:
    path = teacher(tmp_path, data=snake_data(total_env_steps=6_400), learning_rate=5e-3)
    first: list[float] = []
    for steps in (128, 6_400):
        loss = KickstartLoss([path], action_coef=10.0, anneal_env_steps=1_000_000)
        model = fit(tmp_path, data=snake_data(total_env_steps=steps), losses=[loss], learning_rate=5e-3)
        first.append(model.last_logged["kickstart/action_loss"])
    assert first[1] < 0.9 * first[0]


def test_a_teacher_of_other_spaces_is_refused(tmp_path: Path) -> None:
    path = teacher(tmp_path, data=cartpole_data())
    with pytest.raises(ConfigurationError, match=r"teacher.ckpt was trained with obs_shape \(4,\), but the agent has"):
        fit(tmp_path, losses=[KickstartLoss([path])])


def test_a_teacher_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    data, path = replay_data(), tmp_path / "dqn.ckpt"
    model, run = small_dqn(data), trainer(tmp_path, max_steps=1)
    run.fit(model, datamodule=data)
    run.save_checkpoint(path)
    with pytest.raises(ConfigurationError, match="is a DQN: give KickstartLoss checkpoints of PPO"):
        fit(tmp_path, losses=[KickstartLoss([str(path)])])


@pytest.mark.parametrize(("of_teacher", "of_agent"), [(0.01, 0.0), (0.0, 0.01), (0.01, 0.01)])
def test_values_of_centred_rewards_are_refused(tmp_path: Path, of_teacher: float, of_agent: float) -> None:
    path = teacher(tmp_path, reward_centering=of_teacher)
    who = "the agent" if of_agent else path
    with pytest.raises(
        ConfigurationError, match=f"values of centred rewards, which {who} has: set its value_coef to 0"
    ):
        fit(tmp_path, losses=[KickstartLoss([path])], reward_centering=of_agent)
    fit(tmp_path, losses=[KickstartLoss([path], value_coef=0.0)], reward_centering=of_agent)


def test_a_teacher_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"There is no checkpoint .*absent.ckpt"):
        fit(tmp_path, losses=[KickstartLoss([str(tmp_path / "absent.ckpt")])])


def test_a_teacher_does_not_learn(tmp_path: Path) -> None:
    path = teacher(tmp_path, network=LSTM_16, share_torso=True)
    loss = KickstartLoss([path])
    fit(tmp_path, losses=[loss])
    saved = torch.load(path, weights_only=True)["state_dict"]
    for name, tensor in loss.teachers[0].model.state_dict().items():
        assert torch.equal(tensor, saved[name])
