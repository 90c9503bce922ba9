"""Other libraries training the same task with the same hyperparameters, each in its fastest usual form.

To add a peer, write its `train_...` of each kind of task and a line in `PEERS`. Those of DQN and SAC stand in files of
their own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
from torch import Tensor

from app.peers.base import (
    Task,
    as_they_are,
    mlp_shape,
    paced_by_updates,
    refuse_without_counterpart,
    run_sb3,
    run_skrl,
    skrl_envs,
    skrl_layers,
    skrl_model,
    skrl_sizes,
    skrl_spaces,
)
from app.peers.dqn import DQNTask, q_task_of, train_sb3_dqn, train_skrl_dqn
from app.peers.pacer import Pace
from app.peers.sac import SACTask, sac_task_of, train_sb3_sac, train_skrl_sac
from datamodules.core.errors import UsageError
from datamodules.replay import ReplayData
from datamodules.rollout import RolloutData
from modules.dqn.dqn import DQN
from modules.ppo.ppo import PPO
from modules.sac.sac import SAC


@dataclass(frozen=True, kw_only=True)
class PPOTask(Task):
    """What PPO trains."""

    action_kind: str
    lam: float
    passes: int
    minibatches: int
    clip: float
    value_clip: float | None
    value_weight: float
    entropy_weight: float
    max_grad_norm: float


class Peer(NamedTuple):
    """A library: what to import, and how it trains each kind of task at a pace."""

    package: str
    trainers: dict[type[Task], Callable[[Any, Pace], None]]

    def train(self, task: Task, pace: Pace) -> None:
        """Train a task until the pace says that it is over."""
        self.trainers[type(task)](task, pace)


def task_of(data: Any, model: Any, who: str) -> Task:
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
        raise UsageError(
            f"{who} can be compared with modules.ppo.ppo.PPO, modules.dqn.dqn.DQN and modules.sac.sac.SAC only."
        )
    refuse_untranslatable(data, model, who)
    hidden, activation = mlp_shape(model.network, who)
    plain = as_they_are(PPOTask, data, model)
    return PPOTask(**plain, action_kind=data.spaces["action_kind"], hidden=hidden, activation=activation)


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


def train_sb3(task: PPOTask, pace: Pace) -> None:
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


def train_skrl(task: PPOTask, pace: Pace) -> None:
    """Skrl's PPO."""
    from skrl.agents.torch.ppo import PPO as SkrlPPO

    envs = skrl_envs(task)
    models = {role: network_of(task, role, skrl_spaces(envs)) for role in ("policy", "value")}
    run_skrl(paced_by_updates(SkrlPPO, pace, task.env_steps), task, envs, models, task.horizon, skrl_settings(task))


def skrl_settings(task: PPOTask) -> dict[str, Any]:
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


def network_of(task: PPOTask, role: str, spaces: dict[str, Any]) -> Any:
    """A policy or a value function with its own network, as skrl wants them."""
    observations, actions = skrl_sizes(spaces)
    if role == "value":
        return skrl_model("Deterministic", spaces, skrl_layers(task, observations, 1))
    layers = skrl_layers(task, observations, actions)
    if task.action_kind == "discrete":
        return skrl_model("Categorical", spaces, layers)
    return skrl_model("Gaussian", spaces, layers, with_log_std, log_stds=actions)


def with_log_std(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Any]]:
    """The means, and the log standard deviation, which is the same everywhere."""
    return model.net(inputs["observations"]), {"log_std": model.log_std}


PEERS = {
    "sb3": Peer("stable_baselines3", {PPOTask: train_sb3, DQNTask: train_sb3_dqn, SACTask: train_sb3_sac}),
    "skrl": Peer("skrl", {PPOTask: train_skrl, DQNTask: train_skrl_dqn, SACTask: train_skrl_sac}),
}
