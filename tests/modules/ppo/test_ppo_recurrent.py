"""PPO with a network that remembers: what was stored is what is learned from, in sequences that no reset breaks."""

from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from datamodules.base import EnvDataModule
from datamodules.collect.collector import RolloutCollector
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import Rollout
from datamodules.vector.make_env import make_vector_env, probe_spaces
from modules.networks import GRU, LSTM, MinGRU
from modules.ppo.batch import PPOBatch
from modules.ppo.ppo import PPO
from tests.modules.base.test_training_loop import SaveAt
from tests.support import counting_env as counting
from tests.support.small_runs import cartpole_data, small_ppo, snake_data, trainer, weights_hash

NETWORKS: dict[str, Any] = {
    "lstm": partial(LSTM, hidden=16, encoder=(8,)),
    "gru": partial(GRU, hidden=16, encoder=(8,)),
    "mingru": partial(MinGRU, hidden=16, encoder=(8,)),
    "lstm of two layers": partial(LSTM, hidden=16, encoder=(), layers=2),
}
EVERY_NETWORK = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
LSTM_16 = NETWORKS["lstm"]


class Spy(PPO):
    """Notes how far recomputed log-probabilities are from the stored ones, and whether episodes ended inside."""

    def prepare(self, rollout: Rollout) -> PPOBatch:
        batch = super().prepare(rollout)
        log_prob = self.actor(self.torso_features(batch)[0], batch.mask).log_prob(batch.action)
        self.noted = [*getattr(self, "noted", []), float((log_prob - batch.log_prob).abs().max())]
        self.ended = getattr(self, "ended", False) or bool(rollout.episode_start[1:].any())
        return batch


def trained(root: Path, data: EnvDataModule, *callbacks: Callback, made: type[PPO] = PPO, **changes: Any) -> PPO:
    lightning.seed_everything(1, verbose=False)
    ckpt_path = changes.pop("ckpt_path", None)
    settings = {
        "share_torso": True,
        "update_epochs": 2,
        "num_minibatches": 2,
        "normalize_obs": True,
        "normalize_reward": True,
    }
    model = made(data.spaces, **{"network": LSTM_16, "learning_rate": 1e-2, **settings, **changes})
    trainer(root, *callbacks).fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    return model


def model_and_rollouts(
    env: str,
    number: int,
    *,
    rows: int = 8,
    horizon: int = 8,
    network: Any = LSTM_16,
    settings: dict[str, Any] | None = None,
    **kwargs: Any,
) -> tuple[PPO, list]:
    """An untrained model with further `settings`, and rollouts of its own decisions, one after the other."""
    model = PPO(probe_spaces(env, kwargs), network=network, share_torso=True, **(settings or {}))
    model.clip_range_tensor = torch.tensor(0.2)
    envs = make_vector_env(env, rows, env_kwargs=kwargs)
    collector = RolloutCollector(envs, model, horizon, torch.Generator().manual_seed(0), "here")
    collector.reset(1)
    return model, [copied(collector.collect()) for _ in range(number)]


def copied(rollout: Rollout) -> Rollout:
    fresh = {name: value.clone() for name, value in rollout._asdict().items() if isinstance(value, Tensor)}
    state = {name: leaf.clone() for name, leaf in rollout.state.items()}
    extras = {name: value.clone() for name, value in rollout.extras.items()}
    return rollout._replace(**fresh, state=state, extras=extras)


@EVERY_NETWORK
@pytest.mark.parametrize("make_data", [snake_data, partial(cartpole_data, backend="vector", num_envs=8)])
def test_stored_log_probs_are_recomputed_also_where_episodes_end_inside(
    tmp_path: Path, network: Any, make_data: Any
) -> None:
    model = trained(tmp_path, make_data(), made=Spy, network=network)
    assert model.ended
    assert max(model.noted) <= 1e-5


def test_a_rollout_begins_with_the_state_that_the_one_before_ended_with_not_with_zero() -> None:
    model, (first, second) = model_and_rollouts("CartPole-v1", 2)
    with torch.no_grad():
        _, states = model.network.unroll_with_states(first.obs[:-1], first.state, first.episode_start)
    assert second.state["hidden"].abs().min() > 0 and set(second.state) == {"hidden", "cell"}
    for name, leaf in second.state.items():
        torch.testing.assert_close(leaf, states[name][-1])


def slow_next_value(model: PPO, rollout: Rollout) -> Tensor:
    """One observation after the other: of the true last one where truncated, else of the one that follows."""
    state, episode_start, expected = rollout.state, rollout.episode_start[0], torch.empty_like(rollout.reward)
    for t in range(len(rollout.reward)):
        _, state = model.network(rollout.obs[t], state, episode_start)
        episode_start = rollout.terminated[t] | rollout.truncated[t]
        expected[t] = model.critic(model.network(rollout.obs[t + 1], state, episode_start)[0])
        for slot, row in (rollout.final_step == t).nonzero().tolist():
            before = {name: leaf[row : row + 1] for name, leaf in state.items()}
            last = model.network(rollout.final_obs[slot, row].unsqueeze(0), before, torch.tensor([False]))[0]
            expected[t, row] = model.critic(last)[0]
    return expected


@EVERY_NETWORK
@pytest.mark.parametrize(
    ("env", "length"), [("Counting", 3), ("Counting", 4), ("CountingTensors", 8), ("CountingTensors", 11)]
)
def test_the_value_after_a_truncation_is_that_of_a_slow_loop(network: Any, env: str, length: int) -> None:
    path, settings = f"{counting.__name__}.{env}", {"length": length, "end": "truncated", "network": network}
    model, rollouts = model_and_rollouts(path, 3, **settings)
    assert any((rollout.final_step >= 0).any() for rollout in rollouts)
    with torch.no_grad():
        for rollout in rollouts:
            values, states = model.values(rollout)
            found, expected = model.next_value(rollout, values, states), slow_next_value(model, rollout)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_phantom_steps_have_no_effect_on_the_loss() -> None:
    model, rollouts = model_and_rollouts("CartPole-v1", 6)
    rollout = next(rollout for rollout in rollouts if not rollout.valid.all())
    with torch.no_grad():
        batch = model.prepare(rollout)
        wild = batch._replace(
            **{name: getattr(batch, name).masked_fill(~rollout.valid, 1e6) for name in ("log_prob", "target")}
        )
        assert torch.equal(model.loss(batch)[0], model.loss(wild)[0])


def test_a_minibatch_is_some_rows_with_their_whole_sequences_and_first_states() -> None:
    model, (_, rollout) = model_and_rollouts("CartPole-v1", 2)
    with torch.no_grad():
        batch = model.prepare(rollout)
        part = batch.select(torch.tensor([6, 1]))
        whole, some = model.torso_features(batch)[0], model.torso_features(part)[0]
    assert batch.size == 8 and part.advantage.shape == (8, 2)
    torch.testing.assert_close(some, whole[:, [6, 1]])


def test_a_compiled_loss_is_one_graph_and_equals_the_eager_one() -> None:
    model, (_, rollout) = model_and_rollouts("CartPole-v1", 2)
    with torch.no_grad():
        batch = model.prepare(rollout)
    eager = model.loss(batch)[0]
    compiled = torch.compile(model.loss, backend="aot_eager", fullgraph=True, dynamic=False)(batch)[0]
    torch.testing.assert_close(compiled, eager)
    weight = model.network.recurrent[0].weight
    torch.testing.assert_close(*(torch.autograd.grad(loss, weight)[0] for loss in (compiled, eager)))


@EVERY_NETWORK
def test_resume_equals_the_uninterrupted_run_bit_for_bit(tmp_path: Path, network: Any) -> None:
    path = tmp_path / "k.ckpt"
    uninterrupted = trained(tmp_path, snake_data(), network=network)
    trained(tmp_path, snake_data(), SaveAt(4, path, stop=True), network=network)
    resumed = trained(tmp_path, snake_data(), network=network, ckpt_path=path)
    assert weights_hash(resumed) == weights_hash(uninterrupted)


def test_a_recurrent_network_that_is_not_shared_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"model\.network is LSTM.*set model\.share_torso to true"):
        small_ppo(snake_data(), network=LSTM_16)


def test_minibatches_that_do_not_divide_the_rows_are_refused_with_those_that_would(tmp_path: Path) -> None:
    sentence = r"minibatches is 32.*16 rows \(environments\): the nearest that do are \[2, 4, 8, 16\]"
    with pytest.raises(ConfigurationError, match=sentence):
        trained(tmp_path, snake_data(), num_minibatches=32)


@pytest.mark.parametrize("network", [None, *NETWORKS.values()], ids=["plain", *NETWORKS])
def test_values_of_sequences_compile_into_one_graph_and_equal_the_eager_ones(network: Any) -> None:
    data = snake_data()
    model = small_ppo(data, **({} if network is None else {"network": network, "share_torso": True}))
    model.eval()
    obs, start = torch.randn(9, 3, *data.spaces["obs_shape"]), torch.rand(9, 3) < 0.2
    state = model.initial_state(3)

    compiled = torch.compile(model.values_of_sequences, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        found, expected = compiled(obs, state, start), model.values_of_sequences(obs, state, start)

    assert expected[0].shape == (9, 3)
    torch.testing.assert_close(found, expected)
