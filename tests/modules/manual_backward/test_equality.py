"""Training with hand-written gradients equals training with autograd: every algorithm, network and setting."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import lightning
import pytest
import torch
from torch import Tensor

from datamodules.core.types import PolicyInput, Rollout
from modules.manual_backward.dqn import ManualDQN
from modules.manual_backward.ppo import ManualPPO
from modules.networks.heads.q_value import QHead
from modules.networks.mlp import MLP
from modules.ppo.ppo import PPO
from tests.oracles.sac import box_data, small_sac
from tests.support.manual_backward_cases import (
    CASES,
    MASK,
    RELU,
    make_dqn,
    make_ppo,
    ppo_batch,
    replace_methods,
)
from tests.support.replay_fixtures import replay_data, small_dqn
from tests.support.small_runs import Told, cartpole_data, snake_data, trainer, weights_hash


@pytest.mark.parametrize("name", CASES)
def test_installed_training_equals_plain_training(name: str) -> None:
    make, train, tolerance = CASES[name]
    plain, installed = make(), make()
    replace_methods(installed)

    expected, found = train(plain), train(installed)

    assert all(torch.equal(*pair) for pair in zip(expected.exact, found.exact, strict=True))
    torch.testing.assert_close(found.close, expected.close, **(tolerance or {"rtol": None, "atol": None}))


def ppo(data: Any, **settings: Any) -> PPO:
    sizes: dict[str, Any] = {"update_epochs": 2, "num_minibatches": 4, "learning_rate": 1e-3, "entropy_coef": 0.01}
    return PPO(data.spaces, normalize_obs=True, **sizes, **settings)


NARROW = {"network": partial(MLP, hidden=(16, 8), activation="relu")}
RUNS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "ppo, masked": (snake_data, ppo),
    "ppo, autoreset steps": (partial(cartpole_data, backend="vector", num_envs=16), ppo),
    "ppo, policy lag": (partial(snake_data, policy_lag=1), ppo),
    "ppo, shared": (snake_data, partial(ppo, share_torso=True)),
    "dqn, dueling": (replay_data, partial(small_dqn, **NARROW, head=partial(QHead, dueling=True))),
    "dqn, not double": (replay_data, partial(small_dqn, **NARROW, double_q=False)),
    "dqn, following": (replay_data, partial(small_dqn, **NARROW, tau=0.1)),
    "sac": (box_data, partial(small_sac, normalize_obs=True, max_grad_norm=1.0)),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_with_the_callback_equals_one_without_it(tmp_path: Path, name: str) -> None:
    make_data, make_model = RUNS[name]
    models, replaced = [], []
    for manual_backward in (True, False):
        lightning.seed_everything(1, verbose=False)
        data, told = make_data(), Told()
        model = make_model(data)
        trainer(tmp_path, told, manual_backward=manual_backward).fit(model, datamodule=data)
        models.append(model)
        replaced.append(told.manual_backward)

    assert replaced == [True, False]
    if name.startswith("ppo"):
        torch.testing.assert_close(*([*model.parameters()] for model in models), rtol=1e-4, atol=1e-5)
    else:
        assert weights_hash(models[0]) == weights_hash(models[1])


@pytest.mark.parametrize(
    ("settings", "mask"),
    [({}, None), ({"share_torso": True, "network": RELU, "normalize_obs": True}, MASK)],
    ids=["separate tanh", "shared relu, masked"],
)
def test_ppo_acts_and_values_observations_as_its_modules_do(settings: dict[str, Any], mask: Tensor | None) -> None:
    model, obs = make_ppo(**settings), ppo_batch().obs
    noise, episode_start = torch.randn(50, 4), torch.zeros(50, dtype=torch.bool)
    no = torch.zeros(9, 5, dtype=torch.bool)
    steps = {"reward": torch.zeros(9, 5), "episode_start": no, "terminated": no, "truncated": no}
    rollout = SimpleNamespace(obs=obs.unflatten(0, (10, 5)), state={}, extras={}, **steps)

    def found() -> list[Tensor]:
        decision, _ = model.act(PolicyInput(obs, {}, episode_start, mask), noise=noise)
        return [decision.action, *decision.extras.values(), model.values(cast(Rollout, rollout))[0]]

    with torch.no_grad():
        expected = found()
        replace_methods(model)
        torch.testing.assert_close(found(), expected)


def test_memory_kept_for_one_size_of_minibatch_serves_another() -> None:
    model, batch = make_ppo(network=RELU), ppo_batch()
    manual, flat = ManualPPO(model), model.optim.flat[model.raw_optimizers[0]]
    manual.compute_grads_(batch)

    manual.compute_grads_(batch.slice(slice(0, 20)))

    found = flat.gradient.clone()
    loss, *_ = model.loss(batch.slice(slice(0, 20)))
    flat.copy_grads_(torch.autograd.grad(loss, flat.parameters))
    torch.testing.assert_close(found, flat.gradient, rtol=1e-5, atol=1e-7)


def test_many_rows_pass_a_q_network_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    model, obs = make_dqn((5,), 3, (24, 16)), torch.randn(100, 5)
    manual = ManualDQN(model)
    whole = manual.q_outputs(model.online, obs)

    monkeypatch.setattr("modules.manual_backward.dqn.ROWS", 16)

    torch.testing.assert_close(manual.q_outputs(model.online, obs), whole)
    torch.testing.assert_close(manual.q_outputs(model.target, obs), model.target(obs))
