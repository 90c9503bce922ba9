"""PPO of other libraries with the same task and hyperparameters, each in its fastest common setup; table of peers.

To add a peer, write its `train_...` of each type of task and a line in `PEERS`. Those of DQN and SAC are in separate
files.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
from torch import Tensor

from app.peers.base import (
    Task,
    check_translatable,
    common_settings,
    mlp_shape,
    paced_by_updates,
    run_sb3,
    run_skrl,
    skrl_envs,
    skrl_layers,
    skrl_model,
    skrl_sizes,
    skrl_spaces,
    wrapper_changes,
)
from app.peers.dqn import DQNTask, q_task_of, train_sb3_dqn, train_skrl_dqn
from app.peers.pacer import Pace
from app.peers.sac import SACTask, sac_task_of, train_sb3_sac, train_skrl_sac
from datamodules.core.errors import ConfigurationError
from datamodules.replay import ReplayDataModule
from datamodules.rollout import RolloutDataModule
from modules.dqn.dqn import DQN
from modules.ppo.ppo import PPO
from modules.sac.sac import SAC


@dataclass(frozen=True, kw_only=True)
class PPOTask(Task):
    """Training task of PPO."""

    action_type: str
    gae_lambda: float
    update_epochs: int
    num_minibatches: int
    clip_range: float
    value_clip_range: float | None
    value_loss_coef: float
    entropy_coef: float
    max_grad_norm: float


class Peer(NamedTuple):
    """Library: modules to import, and a training function for each type of task."""

    package: str
    trainers: dict[type[Task], Callable[[Any, Pace], None]]

    def train(self, task: Task, pace: Pace) -> None:
        """Train a task until the pace ends it."""
        self.trainers[type(task)](task, pace)


def task_of(data: Any, model: Any, who: str) -> Task:
    """Return the task in a form that every peer supports.

    Raises: ConfigurationError, one sentence, for settings that cannot be translated, with what to change.
    """
    if getattr(data, "backend", None) == "envpool":
        raise ConfigurationError(f"{who} plays Gymnasium's environments, not EnvPool's: add `--set data.backend=auto`.")
    if isinstance(data, ReplayDataModule) and isinstance(model, DQN):
        return q_task_of(data, model, who)
    if isinstance(data, ReplayDataModule) and type(model) is SAC:
        return sac_task_of(data, model, who)
    if not (isinstance(data, RolloutDataModule) and isinstance(model, PPO)):
        raise ConfigurationError(f"{who} can be compared with modules.PPO, modules.DQN and modules.SAC only.")
    refuse_untranslatable(data, model, who)
    hidden, activation = mlp_shape(model.network, who)
    plain = common_settings(PPOTask, data, model)
    return PPOTask(
        **plain,
        vector_steps=data.rollout_length,
        action_type=data.spaces["action_type"],
        hidden=hidden,
        activation=activation,
    )


def refuse_untranslatable(data: RolloutDataModule, model: PPO, who: str) -> None:
    """Raise ConfigurationError for settings without an equivalent in a peer."""
    changes = {
        "model.share_torso=false": model.value_network is None,
        "model.normalize_obs=false": model.obs_normalizer is not None,
        "model.normalize_reward=false": model.reward_scaler is not None,
        "model.target_kl=null": model.target_kl is not None,
        "data.policy_lag=0": data.policy_lag > 0,
        **wrapper_changes(data),
    }
    check_translatable(who, changes)
    if data.env not in gym.registry:
        raise ConfigurationError(f"{who} needs a Gymnasium id, but data.env is {data.env}.")
    if data.spaces["action_type"] not in ("discrete", "continuous"):
        raise ConfigurationError(f"{who} is compared on Discrete and Box actions only; {data.env} has other ones.")


def train_sb3(task: PPOTask, pace: Pace) -> None:
    """Train Stable-Baselines3's PPO."""
    run_sb3(
        "PPO",
        task,
        pace,
        n_steps=task.vector_steps,
        batch_size=task.env_steps // task.num_minibatches,
        n_epochs=task.update_epochs,
        gae_lambda=task.gae_lambda,
        clip_range=task.clip_range,
        clip_range_vf=task.value_clip_range,
        vf_coef=task.value_loss_coef / 2,
        ent_coef=task.entropy_coef,
        max_grad_norm=task.max_grad_norm,
    )


def train_skrl(task: PPOTask, pace: Pace) -> None:
    """Train skrl's PPO."""
    from skrl.agents.torch.ppo import PPO as SkrlPPO

    envs = skrl_envs(task)
    models = {role: network_of(task, role, skrl_spaces(envs)) for role in ("policy", "value")}
    run_skrl(
        paced_by_updates(SkrlPPO, pace, task.env_steps), task, envs, models, task.vector_steps, skrl_settings(task)
    )


def skrl_settings(task: PPOTask) -> dict[str, Any]:
    """Return the task as skrl's settings; its value loss has no factor 1/2, and 0 disables its value clipping."""
    return {
        "rollouts": task.vector_steps,
        "learning_epochs": task.update_epochs,
        "mini_batches": task.num_minibatches,
        "learning_rate": task.learning_rate,
        "discount_factor": task.gamma,
        "gae_lambda": task.gae_lambda,
        "ratio_clip": task.clip_range,
        "value_clip": task.value_clip_range or 0.0,
        "value_loss_scale": task.value_loss_coef / 2,
        "entropy_loss_scale": task.entropy_coef,
        "grad_norm_clip": task.max_grad_norm,
        "time_limit_bootstrap": True,
    }


def network_of(task: PPOTask, role: str, spaces: dict[str, Any]) -> Any:
    """Create skrl's policy or value function with its own network."""
    observations, actions = skrl_sizes(spaces)
    if role == "value":
        return skrl_model("Deterministic", spaces, skrl_layers(task, observations, 1))
    layers = skrl_layers(task, observations, actions)
    if task.action_type == "discrete":
        return skrl_model("Categorical", spaces, layers)
    return skrl_model("Gaussian", spaces, layers, with_log_std, log_stds=actions)


def with_log_std(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Any]]:
    """Return the means, and the state-independent log standard deviation."""
    return model.net(inputs["observations"]), {"log_std": model.log_std}


PEERS = {
    "sb3": Peer("stable_baselines3", {PPOTask: train_sb3, DQNTask: train_sb3_dqn, SACTask: train_sb3_sac}),
    "skrl": Peer("skrl", {PPOTask: train_skrl, DQNTask: train_skrl_dqn, SACTask: train_skrl_sac}),
}
