"""Small models and batches of every algorithm that has hand-written gradients, made without a Trainer."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from datamodules.core.types import SpaceSpec
from modules.dqn.dqn import DQN, DQNBatch
from modules.manual_backward.callback import REGISTRY
from modules.networks.heads.q_value import QHead
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.optim.optimizer_group import OptimizerGroup
from modules.ppo.batch import PPOBatch
from modules.ppo.ppo import PPO
from modules.sac.batch import SACBatch
from modules.sac.sac import SAC

RELU = partial(MLP, hidden=(33, 17), activation="relu")
VALID = torch.arange(50) % 3 > 0
MASK = torch.arange(200).view(50, 4) % 5 > 0


class Results(NamedTuple):
    """What training gave: tensors that are to be equal to the last bit, and those that are to be close."""

    exact: list[Tensor]
    close: list[Tensor]


class Case(NamedTuple):
    """A model, how it is trained on a batch, and how close the results must be."""

    make: Callable[[], Any]
    train: Callable[[Any], Results]
    tolerance: dict[str, float] = {}  # noqa: RUF012


def replace_methods(model: Any) -> None:
    """Install the hand-written methods without asking whether the model is supported, which a Trainer tells."""
    _, methods = REGISTRY[type(model)]
    model.replace_methods_(methods(model))


def make_ppo(**settings: Any) -> PPO:
    """Four actions from observations of 2 x 3."""
    torch.manual_seed(0)
    choice: dict[str, Any] = {"action_type": "discrete", "action_low": [], "action_high": [], "action_start": [0]}
    spaces = SpaceSpec(obs_shape=(2, 3), obs_dtype="float32", action_sizes=[4], num_agents=1, **choice)
    model = PPO(spaces, **settings)
    model.optim, model.clip_range_tensor = OptimizerGroup(model.build_optimizers()), torch.tensor(model.clip_range)
    torch.nn.init.normal_(model.actor.linear.weight)
    return model


def ppo_batch(**changes: Any) -> PPOBatch:
    """Fifty transitions, with ratios and values on both sides of the clips."""
    generator = torch.Generator().manual_seed(1)
    draw = partial(torch.randn, 50, generator=generator)
    action, obs = torch.randint(4, (50,), generator=generator), torch.randn(50, 2, 3, generator=generator)
    columns = {"log_prob": draw() - 1, "value": draw(), "advantage": draw(), "target": draw()}
    nothing = {"valid": None, "mask": None, "episode_start": None, "state": {}}
    return PPOBatch(**{"obs": obs, "action": action, **columns, **nothing, **changes})


def train_ppo(batch: PPOBatch, model: PPO) -> Results:
    """One step: its metrics and its gradient, which sums in another order make differ in rounding."""
    if model.obs_normalizer is not None:
        model.obs_normalizer.update_(3 * batch.obs + 1)
    (metrics, _), flat = model.train_minibatch(batch), model.optim.flat[model.raw_optimizers[0]]
    assert flat.gradient.abs().max() > 0.01
    return Results([], [metrics, flat.gradient])


def make_dqn(obs_shape: tuple[int, ...], actions: int, hidden: tuple[int, ...], **settings: Any) -> DQN:
    """ReLU networks; the target's biases differ."""
    torch.manual_seed(0)
    choice: dict[str, Any] = {"action_type": "discrete", "action_low": [], "action_high": [], "action_start": [0]}
    spaces = SpaceSpec(obs_shape=obs_shape, obs_dtype="float32", action_sizes=[actions], num_agents=1, **choice)
    model = DQN(spaces, partial(MLP, hidden=hidden, activation="relu"), **settings)
    model.optim = OptimizerGroup(model.build_optimizers())
    torch.nn.init.normal_(model.target.head.linear.bias)
    return model


def train_dqn(updates: int, rows: int, model: DQN) -> Results:
    """Updates on minibatches of integer observations, some of them terminal and some without weight."""
    generator = torch.Generator().manual_seed(1)
    draw = partial(torch.randn, generator=generator)
    obs, next_obs = draw(2, updates, rows, *model.spaces["obs_shape"]).mul(3).round().long()
    action, allowed = draw(updates, rows, model.explore.actions).argmax(-1), draw(updates, rows, model.explore.actions)
    next_outputs = None
    if model.tau is None:
        next_outputs = model.target(next_obs.flatten(0, 1)).unflatten(0, (updates, rows))
    weight, discount = draw(updates, rows).clamp(min=0), draw(updates, rows).sign().clamp(min=0) * 0.9
    columns = (obs, action, 3 * draw(updates, rows), discount, next_obs, allowed > allowed.amin(-1, True), next_outputs)
    batch = DQNBatch(*columns, weight)
    if not (model.double_q or model.tau is not None):
        batch = batch._replace(target=model.targets(batch))
    measured, error = model.run_updates(batch)
    return Results([error, *model.parameters()], [measured])


def make_sac(obs_shape: tuple[int, ...], dims: int, hidden: tuple[int, ...], **settings: Any) -> SAC:
    """ReLU networks, actions in [-1, 3]."""
    torch.manual_seed(0)
    box: dict[str, Any] = {"action_type": "continuous", "action_low": [-1.0] * dims, "action_high": [3.0] * dims}
    spaces = SpaceSpec(obs_shape=obs_shape, obs_dtype="float32", action_sizes=[], action_start=[], num_agents=1, **box)
    networks: dict[str, Any] = {"network": partial(MLP, hidden=hidden, activation="relu")}
    model = SAC(spaces, critic=partial(TwinMLP, hidden=hidden), **networks, **settings)
    model.optim = OptimizerGroup(model.build_optimizers())
    return model


def train_sac(updates: int, rows: int, model: SAC, integers: bool = False) -> Results:
    """Updates on minibatches, some of whose entries are terminal and some without weight."""
    generator, shape, dims = torch.Generator().manual_seed(1), model.spaces["obs_shape"], len(model.action_scale)
    draw = partial(torch.randn, generator=generator)
    weight, ended = draw(updates, rows).clamp(min=0), draw(updates, rows) > 1
    columns = {"action": draw(updates, rows, dims).tanh(), "return_": draw(updates, rows), "terminated": ended}
    obs, discount = draw(2, updates, rows, *shape), 0.9 * (~ended).float()
    obs = obs.mul(9).long() if integers else obs
    rest: dict[str, Any] = {"extras": {}, "next_masks": {}, "discount": discount, "weight": weight}
    batch = SACBatch(obs=obs[0], next_obs=obs[1], **columns, **rest)
    results = model.run_updates(batch, draw(updates, 2, rows, dims))
    return Results([*results, *model.parameters()], [])


def ppo(batch: dict[str, Any], **settings: Any) -> Case:
    """A step of PPO on fifty transitions."""
    make = partial(make_ppo, max_grad_norm=1e6, **settings)  # the gradient is compared as it was before clipping
    return Case(make, partial(train_ppo, ppo_batch(**batch)), {"rtol": 1e-5, "atol": 1e-7})


def dqn(rows: int, *sizes: Any, **settings: Any) -> Case:
    """Fifty updates of DQN."""
    return Case(partial(make_dqn, *sizes, **settings), partial(train_dqn, 50, rows))


def sac(rows: int, *sizes: Any, updates: int = 50, integers: bool = False, **settings: Any) -> Case:
    """Updates of SAC."""
    return Case(partial(make_sac, *sizes, **settings), partial(train_sac, updates, rows, integers=integers))


CASES: dict[str, Case] = {
    "ppo, shared relu": ppo({}, network=RELU, share_torso=True, entropy_coef=0.1),
    "ppo, separate tanh": ppo({}, value_loss_coef=0.3, value_clip_range=0.2),
    "ppo, scaled bytes": ppo({"obs": torch.arange(300).view(50, 2, 3).byte()}, network=partial(RELU, scale=0.1)),
    "ppo, has autoreset steps": ppo({"valid": VALID}, share_torso=True, entropy_coef=0.1),
    "ppo, masked": ppo({"mask": MASK, "action": MASK.int().argmax(1)}, entropy_coef=0.1),
    "ppo, normalised": ppo({}, normalize_obs=True),
    "dqn, one layer": dqn(16, (3,), 2, (32,), double_q=False),
    "dqn, a pole": dqn(128, (4,), 2, (64, 64), learning_rate=1e-2, double_q=False),
    "dqn, clipped, Polyak": dqn(100, (2, 2), 5, (16, 8, 4), max_grad_norm=0.1, double_q=False, tau=0.1),
    "dqn, double, Polyak": dqn(7, (5,), 3, (33, 17), tau=0.01),
    "dqn, double, copied": dqn(64, (5,), 3, (24, 16), max_grad_norm=0.1),
    "dqn, dueling": dqn(32, (6,), 4, (24, 16), head=partial(QHead, dueling=True)),
    "sac, one dimension": sac(16, (3,), 1, (32,)),
    "sac, a robot": sac(256, (17,), 6, (64, 64), learning_rate=1e-2),
    "sac, clipped": sac(100, (2, 2), 3, (16, 8, 4), max_grad_norm=0.1),
    "sac, fixed temperature": sac(7, (5,), 2, (33, 17), learn_temperature=False, init_temperature=0.2),
    "sac, integers": sac(16, (3,), 1, (8,), updates=1, integers=True),
}
"""Every algorithm, network and setting that is compared."""
