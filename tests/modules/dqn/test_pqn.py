"""PQN: its targets, masks and determinism."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch.testing import assert_close

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput
from modules.dqn.pqn import PQN
from tests.modules.dqn.test_dqn import SPACES, Table
from tests.support.small_runs import cartpole_data, snake_data, trainer, weights_hash


def fitted(root: Path, data: Any, **settings: Any) -> PQN:
    lightning.seed_everything(1, verbose=False)
    model = PQN(data.spaces, **{"update_epochs": 2, "num_minibatches": 4, "epsilon_decay_steps": 500, **settings})
    trainer(root).fit(model, datamodule=data)
    return model


@pytest.mark.parametrize("make_data", [snake_data, cartpole_data])
def test_the_same_seed_twice_gives_identical_weights(tmp_path: Path, make_data: Any) -> None:
    once, twice = fitted(tmp_path, make_data()), fitted(tmp_path, make_data())
    assert weights_hash(once) == weights_hash(twice)
    assert once.updates == 10 * 2 * 4
    assert {"train/td_loss", "train/q_mean", "train/epsilon", "train/updates"} <= {*once.last_logged}


@pytest.mark.parametrize(("q_lambda", "target"), [(0.0, [1.9, 2.9, 3, 13, 5.9]), (1.0, [2.8, 2, 3, 13, 5.9])])
def test_targets_by_hand(q_lambda: float, target: list[float]) -> None:
    model = PQN(SPACES, network=lambda shape: Table(), gamma=0.9, q_lambda=q_lambda)
    column = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).unsqueeze(1)
    flag = column > 9
    model.values.head.linear.weight.data = torch.eye(3)
    model.values.head.linear.bias.data.zero_()
    obs = torch.ones(6, 1, 3)
    rollout = next(iter(snake_rollouts()))._replace(
        obs=obs,
        action=column.long() * 0,
        reward=column,
        terminated=flag.index_fill(0, torch.tensor([1, 2] if q_lambda else [2]), True),
        truncated=flag.index_fill(0, torch.tensor([3]), True),
        valid=~flag,
        final_obs=10 * obs[:1],
        final_step=torch.tensor([[3]]),
        extras={"value": torch.ones(5, 1)},
    )
    assert_close(model.prepare(rollout).target, torch.tensor(target))


def snake_rollouts() -> Any:
    from datamodules.core.types import MetricVector, Rollout

    nothing = torch.zeros(0)
    empty = {name: nothing for name in Rollout._fields}
    yield Rollout(
        **{**empty, "state": {}, "extras": {}, "episodes": MetricVector((), nothing), "has_invalid_steps": False}
    )


def test_acting_never_takes_a_forbidden_action() -> None:
    model = PQN(SPACES, network=lambda shape: Table())
    mask = torch.tensor([False, True, False]).expand(50, 3)
    noise = model.noise((50,), torch.Generator().manual_seed(0))
    decision, _ = model.act(PolicyInput(torch.randn(50, 3), {}, torch.zeros(50) > 0, mask), noise=noise)
    assert (decision.action == 1).all()


def test_a_checkpoint_says_how_much_is_explored() -> None:
    model = PQN(SPACES, epsilon_end=0.0, epsilon_decay_steps=100)
    model.on_load_checkpoint({"counters": {"env_steps": 75, "updates": 0}})
    assert float(model.explore.epsilon) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon_decay_steps": 0}, "epsilon_decay_steps is 0; it must be positive"),
        ({"spaces": SPACES | {"action_type": "binary"}}, "PQN cannot act in .* MultiBinary: use modules.PPO"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PQN(**{"spaces": SPACES, **change})
