"""DQN: its targets, exploration, masks and target network."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn
from torch.testing import assert_close

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import OffPolicyIteration, PolicyInput, SpaceSpec
from modules.dqn.dqn import DQN, DQNBatch
from modules.networks.heads.q_value import C51Head, QuantileHead
from tests.support.replay_fixtures import fitted_dqn, replay_data, small_dqn
from tests.support.small_runs import snake_data, trainer, weights_hash

SPACES = SpaceSpec(
    obs_shape=(3,),
    obs_dtype="float32",
    action_type="discrete",
    action_sizes=[3],
    action_low=[],
    action_high=[],
    action_start=[0],
    num_agents=1,
)


class Table(nn.Module):
    """Says that the features are the observation."""

    features = 3

    def forward(self, obs: Tensor, state: Any, episode_start: Tensor) -> Any:
        return obs, state


def tabular(online: list[float], target: list[float], **settings: Any) -> DQN:
    """A DQN whose action values are constants."""
    model = DQN(SPACES, network=lambda shape: Table(), gamma=0.9, **settings)
    for network, values in ((model.online, online), (model.target, target)):
        nn.init.zeros_(network.head.linear.weight)
        network.head.linear.bias.data = torch.tensor(values, dtype=torch.float32)
    return model


def batch(mask: Tensor | None = None, discount: float = 0.9) -> DQNBatch:
    one, obs = torch.ones(1), torch.zeros(1, 3)
    return DQNBatch(obs, one.long() * 0, one, one * discount, obs, mask, None, one)


@pytest.mark.parametrize(("double_q", "discount", "target"), [(True, 0.9, 3.7), (False, 0.9, 10.0), (True, 0.0, 1.0)])
def test_targets_are_those_of_double_and_plain_q_learning(double_q: bool, discount: float, target: float) -> None:
    model = tabular([1, 5, 2], [10, 3, 7], double_q=double_q)
    assert_close(model.targets(batch(discount=discount)), torch.tensor([[target]]))


@pytest.mark.parametrize(("double_q", "target"), [(True, 7.3), (False, 7.3)])
def test_targets_never_take_a_forbidden_action(double_q: bool, target: float) -> None:
    model = tabular([9, 5, 6], [10, 3, 7], double_q=double_q)
    mask = torch.tensor([[False, True, True]])
    assert_close(model.targets(batch(mask)), torch.tensor([[target]]))


def test_acting_never_takes_a_forbidden_action_and_explores_the_others_evenly() -> None:
    model, obs = tabular([9, 5, 6], [0, 0, 0]), torch.zeros(3000, 3)
    mask = torch.tensor([False, True, True]).expand(3000, 3)
    noise = model.noise((3000,), torch.Generator().manual_seed(0))
    model.explore.epsilon.fill_(0.5)
    decision, _ = model.act(PolicyInput(obs, {}, torch.zeros(3000) > 0, mask), noise=noise)
    share = decision.action.bincount(minlength=3) / 3000
    assert_close(share, torch.tensor([0, 0.25, 0.75]), rtol=0, atol=0.03)
    greedy, _ = model.act(PolicyInput(obs, {}, torch.zeros(3000) > 0, mask), greedy=True)
    assert (greedy.action == 2).all()


class Epsilons(Callback):
    """Notes epsilon as every iteration begins."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_start(self, trainer: lightning.Trainer, pl_module: Any, *_: Any) -> None:
        self.seen.append(float(pl_module.explore.epsilon))


def test_epsilon_is_linear_in_env_steps_once_learning_started(tmp_path: Path) -> None:
    epsilons = Epsilons()
    fitted_dqn(tmp_path, replay_data(), epsilons, epsilon_start=0.8, epsilon_end=0.1, epsilon_decay_steps=320)
    expected = [1.0, 1.0, *(max(0.1, 0.8 - 0.7 * steps / 320) for steps in range(64, 640, 32))]
    assert epsilons.seen == pytest.approx(expected)


def test_a_sampled_evaluation_explores_as_much_as_the_checkpoint_did(tmp_path: Path) -> None:
    fitted = fitted_dqn(tmp_path, replay_data(), epsilon_decay_steps=1280)
    fitted.trainer.save_checkpoint(path := tmp_path / "half.ckpt")
    fresh, data = small_dqn(replay_data(), epsilon_decay_steps=1280), replay_data(eval_greedy=False)
    trainer(tmp_path).validate(fresh, datamodule=data, ckpt_path=path, weights_only=True)
    assert float(fresh.explore.epsilon) == pytest.approx(0.525) == pytest.approx(float(fitted.explore.epsilon))


class Targets(Callback):
    """Notes whether the target network moved in an iteration, and whether it is the online one."""

    def __init__(self) -> None:
        self.moved: list[bool] = []
        self.equal: list[bool] = []
        self.before: Tensor | None = None

    def on_train_batch_end(self, trainer: lightning.Trainer, pl_module: Any, *_: Any) -> None:
        online, target = (
            nn.utils.parameters_to_vector(part.parameters()) for part in (pl_module.online, pl_module.target)
        )
        if self.before is not None:
            self.moved.append(not torch.equal(self.before, target))
        self.equal.append(torch.equal(online, target))
        self.before = target.clone()


def test_the_target_network_is_copied_when_enough_updates_have_passed(tmp_path: Path) -> None:
    targets = Targets()
    fitted_dqn(tmp_path, replay_data(), targets, target_interval=6)
    assert targets.moved == [step % 3 == 2 for step in range(19)]
    assert targets.equal[1:] == targets.moved


def test_the_target_network_follows_every_update_by_tau(tmp_path: Path) -> None:
    targets = Targets()
    fitted_dqn(tmp_path, replay_data(), targets, tau=0.1)
    assert all(targets.moved)
    assert not any(targets.equal[1:])


@pytest.mark.parametrize(
    "settings", [{}, {"head": C51Head}, {"head": QuantileHead}, {"double_q": False}, {"tau": 0.1}], ids=str
)
def test_the_same_seed_twice_gives_identical_weights(tmp_path: Path, settings: dict[str, Any]) -> None:
    once, twice = (fitted_dqn(tmp_path, replay_data(), **settings) for _ in range(2))
    assert weights_hash(once) == weights_hash(twice)
    assert {
        "train/td_loss",
        "train/q_mean",
        "train/epsilon",
        "train/updates",
        "replay/size",
        "replay/priority_max",
    } <= {*once.last_logged}


def test_targets_of_a_whole_iteration_are_those_of_its_minibatches(tmp_path: Path) -> None:
    data = replay_data()
    model = fitted_dqn(tmp_path, data, double_q=False)
    replay = data.dataset.replay
    found = replay.sample(replay.noise(3, 16, torch.Generator()))
    for minibatch in model.prepare(OffPolicyIteration(None, found, data.dataset)).minibatches():
        each = model.targets(minibatch._replace(next_outputs=None))
        assert_close(model.targets(minibatch), each)
        assert_close(minibatch.target, each)


def test_the_logged_error_leaves_out_windows_that_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    model, error = tabular([1, 5, 2], [10, 3, 7]), torch.tensor([[1.0, 9.0]])
    monkeypatch.setattr(model, "train_minibatches", lambda _: (torch.ones(1), torch.ones(1, 2), error, torch.ones(1)))

    measured, errors = model.run_updates(batch()._replace(weight=torch.tensor([[1.0, 0.0]])))

    assert measured.tolist() == [1, 1, 1, 1] and torch.equal(errors, error)


def test_importance_weights_scale_the_loss() -> None:
    model = tabular([1, 5, 2], [10, 3, 7])
    whole, half = (model.loss(batch()._replace(weight=torch.tensor([weight])))[0] for weight in (1.0, 0.5))
    assert_close(half, whole / 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"tau": 0.0}, "tau is 0"),
        ({"epsilon_end": 1.5}, r"epsilon_end is 1.5; it must lie in \[0, 1\]"),
        (
            {"spaces": SPACES | {"action_type": "continuous"}},
            "DQN cannot act in .* Box: use .*modules.PPO or modules.SAC",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DQN(**{"spaces": SPACES, **change})


def test_a_rollout_without_a_replay_is_refused(tmp_path: Path) -> None:
    data = snake_data()
    with pytest.raises(ConfigurationError, match=r"DQN learns from a replay .*, not from RolloutDataModule"):
        trainer(tmp_path).fit(small_dqn(data), datamodule=data)
