"""Recurrent PQN: stored values are recomputed from sequences, and the network's state is carried and reset."""

from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor

from datamodules.collect.collector import RolloutCollector
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import Rollout
from datamodules.vector.make_env import make_vector_env, probe_spaces
from modules.dqn.pqn import PQN, PQNBatch, mask_q_values
from modules.networks import GRU, LSTM, MinGRU
from tests.modules.base.test_training_loop import SaveAt
from tests.modules.ppo.test_ppo_recurrent import copied
from tests.support import counting_env as counting
from tests.support.small_runs import cartpole_data, snake_data, trainer, weights_hash

NETWORKS: dict[str, Any] = {
    "lstm": partial(LSTM, hidden=16, encoder=(8,)),
    "gru": partial(GRU, hidden=16, encoder=(8,)),
    "mingru": partial(MinGRU, hidden=16, encoder=(8,), layers=2),
}
EVERY_NETWORK = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)


class Spy(PQN):
    """Notes how far recomputed values are from the stored ones, and whether episodes ended inside."""

    def prepare(self, rollout: Rollout) -> PQNBatch:
        batch = super().prepare(rollout)
        output, _ = self.values.unroll(batch.obs, batch.state, rollout.episode_start)
        q = mask_q_values(self.values.head.mean(output), rollout.extras.get("action_mask"))
        self.noted = [*getattr(self, "noted", []), float((q.amax(-1) - rollout.extras["value"]).abs().max())]
        self.ended = getattr(self, "ended", False) or bool(rollout.episode_start[1:].any())
        return batch


def fitted(root: Path, data: Any, *callbacks: Any, made: type[PQN] = PQN, **changes: Any) -> Any:
    lightning.seed_everything(1, verbose=False)
    ckpt_path = changes.pop("ckpt_path", None)
    settings: dict[str, Any] = {"update_epochs": 2, "num_minibatches": 2, "epsilon_decay_steps": 500}
    model = made(data.spaces, **{"network": NETWORKS["lstm"], "learning_rate": 1e-2, **settings, **changes})
    trainer(root, *callbacks).fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    return model


def model_and_rollouts(env: str, number: int, network: Any, **kwargs: Any) -> tuple[PQN, list[Rollout]]:
    """An untrained model, and rollouts that its own decisions made, one after the other."""
    model = PQN(probe_spaces(env, kwargs), network=network)
    envs = make_vector_env(env, 8, env_kwargs=kwargs)
    collector = RolloutCollector(envs, model, 8, torch.Generator().manual_seed(0), "here")
    collector.reset(1)
    return model, [copied(collector.collect()) for _ in range(number)]


@EVERY_NETWORK
@pytest.mark.parametrize("make_data", [snake_data, partial(cartpole_data, backend="vector", num_envs=8)])
def test_stored_values_are_recomputed_also_where_episodes_end_inside(
    tmp_path: Path, network: Any, make_data: Any
) -> None:
    model = fitted(tmp_path, make_data(), made=Spy, network=network)
    assert model.ended
    assert max(model.noted) <= 1e-5


def test_a_rollout_begins_with_the_state_that_the_one_before_ended_with() -> None:
    model, (first, second) = model_and_rollouts("CartPole-v1", 2, NETWORKS["lstm"])
    with torch.no_grad():
        _, states = model.values.unroll(first.obs[:-1], first.state, first.episode_start)
    assert set(second.state) == {"hidden", "cell"}
    for name, leaf in second.state.items():
        torch.testing.assert_close(leaf, states[name][-1])


def slow_next_value(model: PQN, rollout: Rollout) -> Tensor:
    """One observation after the other: of the true last one where truncated, else the stored one that follows."""
    state, expected = rollout.state, torch.empty_like(rollout.reward)
    nowhere = torch.zeros(rollout.reward.shape[1], dtype=torch.bool)
    for t in range(len(rollout.reward)):
        _, state = model.values.step(rollout.obs[t], state, rollout.episode_start[t])
        if t + 1 < len(rollout.reward):
            expected[t] = rollout.extras["value"][t + 1]
        else:
            episode_start = rollout.terminated[t] | rollout.truncated[t]
            expected[t] = model.q_values(rollout.obs[t + 1], state, episode_start)[0].amax(-1)
        for slot, row in (rollout.final_step == t).nonzero().tolist():
            expected[t, row] = model.q_values(rollout.final_obs[slot], state, nowhere)[0].amax(-1)[row]
    return expected


@EVERY_NETWORK
@pytest.mark.parametrize(("env", "length"), [("Counting", 3), ("Counting", 4), ("CountingTensors", 11)])
def test_the_value_after_a_truncation_is_that_of_a_slow_loop(network: Any, env: str, length: int) -> None:
    path, settings = f"{counting.__name__}.{env}", {"length": length, "end": "truncated"}
    model, rollouts = model_and_rollouts(path, 3, network, **settings)
    assert any((rollout.final_step >= 0).any() for rollout in rollouts)
    with torch.no_grad():
        for rollout in rollouts:
            found = model.next_value(rollout, rollout.extras["value"])
            torch.testing.assert_close(found, slow_next_value(model, rollout), rtol=0, atol=1e-6)


def test_autoreset_steps_have_no_effect_on_the_loss() -> None:
    model, rollouts = model_and_rollouts("CartPole-v1", 6, NETWORKS["gru"])
    rollout = next(rollout for rollout in rollouts if not rollout.valid.all())
    with torch.no_grad():
        batch = model.prepare(rollout)
        wild = batch._replace(target=batch.target.masked_fill(~rollout.valid, 1e6))
        assert torch.equal(model.loss(batch)[0], model.loss(wild)[0])


def test_a_minibatch_is_some_rows_with_their_whole_sequences_and_first_states() -> None:
    model, (_, rollout) = model_and_rollouts("CartPole-v1", 2, NETWORKS["lstm"])
    with torch.no_grad():
        batch = model.prepare(rollout)
        part = batch.rows(torch.tensor([6, 1]))
        whole, some = (model.values.unroll(each.obs, each.state, each.episode_start)[0] for each in (batch, part))
    assert batch.size == 8 and part.target.shape == (8, 2)
    torch.testing.assert_close(some, whole[:, [6, 1]])


@EVERY_NETWORK
def test_resume_equals_the_uninterrupted_run_bit_for_bit(tmp_path: Path, network: Any) -> None:
    path = tmp_path / "k.ckpt"
    uninterrupted = fitted(tmp_path, snake_data(), network=network)
    fitted(tmp_path, snake_data(), SaveAt(4, path, stop=True), network=network)
    resumed = fitted(tmp_path, snake_data(), network=network, ckpt_path=path)
    assert weights_hash(resumed) == weights_hash(uninterrupted)


def test_minibatches_that_do_not_divide_the_rows_are_refused_with_those_that_would(tmp_path: Path) -> None:
    sentence = r"minibatches is 32.*16 rows \(environments\): the nearest that do are \[2, 4, 8, 16\]"
    with pytest.raises(ConfigurationError, match=sentence):
        fitted(tmp_path, snake_data(), num_minibatches=32)
