"""Other libraries training the same task with the same hyperparameters, each in its fastest usual form.

To add a peer, write its `train_...` of each kind of task and a line in `PEERS`. Those of DQN and SAC stand in files of
their own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from app.pace import Pace
from app.peer_drivers import (
    as_they_are,
    mlp_shape,
    refuse_without_counterpart,
    run_sb3,
    run_skrl,
    skrl_envs,
    skrl_layers,
    skrl_spaces,
)
from app.peers_dqn import QTask, q_task_of, train_sb3_dqn, train_skrl_dqn
from app.peers_sac import SACTask, sac_task_of, train_sb3_sac, train_skrl_sac
from datamodules.replay import ReplayData
from datamodules.rollout import RolloutData
from datamodules.types import UsageError
from modules.dqn import DQN
from modules.ppo import PPO
from modules.sac import SAC


class Task(NamedTuple):
    """What to train, in the words of our configs; `hidden` and `activation` are those of both separate networks."""

    env: str
    env_kwargs: dict[str, Any]
    action_kind: str
    num_envs: int
    horizon: int
    hidden: tuple[int, ...]
    activation: type[nn.Module]
    learning_rate: float
    gamma: float
    lam: float
    passes: int
    minibatches: int
    clip: float
    value_clip: float | None
    value_weight: float
    entropy_weight: float
    max_grad_norm: float

    @property
    def env_steps(self) -> int:
        """Environment steps of an iteration."""
        return self.num_envs * self.horizon


class Peer(NamedTuple):
    """A library: what to import, and how it trains each kind of task at a pace."""

    package: str
    trainers: dict[type, Callable[[Any, Pace], None]]

    def train(self, task: Any, pace: Pace) -> None:
        """Train a task until the pace says that it is over."""
        self.trainers[type(task)](task, pace)


def task_of(data: Any, model: Any, who: str) -> Task | QTask | SACTask:
    """The task in a form that every peer has.

    Raises: UsageError, one sentence, for what cannot be translated, with what to change.
    """
    if getattr(data, "backend", None) == "envpool":
        raise UsageError(f"{who} plays Gymnasium's environments, not EnvPool's: add `--set data.backend=auto`.")
    if isinstance(data, ReplayData) and isinstance(model, DQN):
        return q_task_of(data, model, who)
    if isinstance(data, ReplayData) and type(model) is SAC:
        return sac_task_of(data, model, who)
    if not (isinstance(data, RolloutData) and isinstance(model, PPO)):
        raise UsageError(f"{who} can be compared with modules.ppo.PPO, modules.dqn.DQN and modules.sac.SAC only.")
    refuse_untranslatable(data, model, who)
    hidden, activation = mlp_shape(model.network, who)
    plain = as_they_are(set(Task._fields), data, model)
    return Task(**plain, action_kind=data.spaces["action_kind"], hidden=hidden, activation=activation)


def refuse_untranslatable(data: RolloutData, model: PPO, who: str) -> None:
    """Raises: UsageError for settings whose counterpart in a peer is missing or means something else."""
    changes = {
        "model.shared=false": model.value_network is None,
        "model.normalize_obs=false": model.obs_normalizer is not None,
        "model.normalize_reward=false": model.reward_scaler is not None,
        "model.target_kl=null": model.target_kl is not None,
        "data.staleness=0": data.staleness > 0,
    }
    refuse_without_counterpart(who, changes)
    if data.env not in gym.registry:
        raise UsageError(f"{who} needs a Gymnasium id, but data.env is {data.env}.")
    if data.spaces["action_kind"] not in ("discrete", "continuous"):
        raise UsageError(f"{who} is compared on Discrete and Box actions only; {data.env} has other ones.")


def train_sb3(task: Task, pace: Pace) -> None:
    """Stable-Baselines3's PPO."""
    run_sb3(
        "PPO",
        task,
        pace,
        n_steps=task.horizon,
        batch_size=task.env_steps // task.minibatches,
        n_epochs=task.passes,
        gae_lambda=task.lam,
        clip_range=task.clip,
        clip_range_vf=task.value_clip,
        vf_coef=task.value_weight / 2,
        ent_coef=task.entropy_weight,
        max_grad_norm=task.max_grad_norm,
    )


def train_skrl(task: Task, pace: Pace) -> None:
    """Skrl's PPO."""
    from skrl.agents.torch.ppo import PPO as SkrlPPO

    class Paced(SkrlPPO):
        """Ticks after every update: an iteration is over."""

        def update(self, **timing: int) -> None:
            super().update(**timing)
            self.tracking_data.clear()
            if not pace.tick(task.env_steps):
                raise SystemExit(0)

    envs = skrl_envs(task)
    models = {role: skrl_model(task, role, skrl_spaces(envs)) for role in ("policy", "value")}
    run_skrl(Paced, task, envs, models, task.horizon, skrl_settings(task))


def skrl_settings(task: Task) -> dict[str, Any]:
    """Ours in skrl's words; it has no 1/2 in its value loss, and 0 switches its value clip off."""
    return {
        "rollouts": task.horizon,
        "learning_epochs": task.passes,
        "mini_batches": task.minibatches,
        "learning_rate": task.learning_rate,
        "discount_factor": task.gamma,
        "gae_lambda": task.lam,
        "ratio_clip": task.clip,
        "value_clip": task.value_clip or 0.0,
        "value_loss_scale": task.value_weight / 2,
        "entropy_loss_scale": task.entropy_weight,
        "grad_norm_clip": task.max_grad_norm,
        "time_limit_bootstrap": True,
    }


def skrl_model(task: Task, role: str, spaces: dict[str, Any]) -> Any:
    """A policy or a value function with its own network, as skrl wants them."""
    from skrl.models.torch import CategoricalMixin, DeterministicMixin, GaussianMixin, Model

    actor = GaussianMixin if task.action_kind == "continuous" else CategoricalMixin
    mixin = DeterministicMixin if role == "value" else actor

    class Torso(mixin, Model):  # type: ignore[valid-type, misc]
        """The layers of the task, and what the mixin makes of their output."""

        def __init__(self) -> None:
            Model.__init__(self, **spaces)
            mixin.__init__(self)
            outputs = 1 if role == "value" else self.num_actions
            self.net = skrl_layers(task, self.num_observations, outputs)
            self.log_std = nn.Parameter(torch.zeros(outputs if mixin is GaussianMixin else 0))

        def compute(self, inputs: dict[str, Tensor], role: str) -> tuple[Tensor, dict[str, Any]]:
            extras = {"log_std": self.log_std} if mixin is GaussianMixin else {}
            return self.net(inputs["observations"]), extras

    return Torso()


PEERS = {
    "sb3": Peer("stable_baselines3", {Task: train_sb3, QTask: train_sb3_dqn, SACTask: train_sb3_sac}),
    "skrl": Peer("skrl", {Task: train_skrl, QTask: train_skrl_dqn, SACTask: train_skrl_sac}),
}
