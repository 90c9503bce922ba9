"""SAC of other libraries on the task of a `modules.SAC`; see also `app.peers.ppo`."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from app.peers.base import (
    ReplayTask,
    check_translatable,
    common_settings,
    paced_by_updates,
    replay_changes,
    run_sb3,
    run_skrl,
    skrl_envs,
    skrl_layers,
    skrl_model,
    skrl_sizes,
    skrl_spaces,
)
from app.peers.pacer import Pace
from datamodules.core.errors import ConfigurationError
from datamodules.replay import ReplayDataModule
from modules.networks.heads.twin_critic import TwinLinear, TwinMLP
from modules.networks.mlp import MLP
from modules.sac.sac import NO_CLIP, SAC


@dataclass(frozen=True, kw_only=True)
class SACTask(ReplayTask):
    """Training task of SAC."""

    tau: float
    init_temperature: float
    learn_temperature: bool


def sac_task_of(data: ReplayDataModule, model: SAC, who: str) -> SACTask:
    """Return the task in a form that every peer supports.

    Raises: ConfigurationError, one sentence, for settings that cannot be translated, with what to change.
    """
    changes = {
        **replay_changes(data),
        "model.max_grad_norm=null": model.max_grad_norm < NO_CLIP,
        "model.normalize_obs=false": model.obs_normalizer is not None,
        "model.noise_hold=1": model.noise_hold > 1,
        "model.curiosity=null": len(model.curiosity.metric_names) > 0,
        "model.critic_learning_rate=null": model.critic_learning_rate != model.learning_rate,
    }
    check_translatable(who, changes)
    if data.env not in gym.registry or not model.continuous:
        raise ConfigurationError(
            f"{who} is compared on Gymnasium ids with Box actions only, and data.env is {data.env}."
        )
    hidden, activation = shape_of(model, who)
    plain = common_settings(SACTask, data, model)
    derived = {
        "vector_steps": data.train_freq,
        "updates": data.updates_per_iteration,  # the model's `updates` are what it made so far
        "init_temperature": float(model.log_alpha.detach().exp()),
    }
    return SACTask(**{**plain, **derived, "hidden": hidden, "activation": activation})


def shape_of(model: SAC, who: str) -> tuple[tuple[int, ...], type[nn.Module]]:
    """Return widths and activation of the networks.

    Raises: ConfigurationError unless actor and critics are plain MLPs of equal shape.
    """
    actor = [layer for layer in model.network.modules() if not list(layer.children())]
    critic = [layer for layer in model.critic.modules() if not list(layer.children())]
    widths = tuple(layer.out_features for layer in actor if isinstance(layer, nn.Linear))
    twins = tuple(layer.weight.shape[-1] for layer in critic if isinstance(layer, TwinLinear))[:-1]
    kinds = {type(layer) for layer in actor + critic if not isinstance(layer, nn.Linear | nn.Flatten | TwinLinear)}
    plain = type(model.network) is MLP and type(model.critic) is TwinMLP and model.network.scale == 1
    if not plain or widths != twins or len(kinds) != 1:
        raise ConfigurationError(
            f"{who} is compared on plain MLPs of the same widths and activation for actor and critics only."
        )
    return widths, kinds.pop()


def train_sb3_sac(task: SACTask, pace: Pace) -> None:
    """Train Stable-Baselines3's SAC."""
    run_sb3(
        "SAC",
        task,
        pace,
        after=task.learning_starts,
        buffer_size=task.capacity,
        learning_starts=task.learning_starts,
        batch_size=task.batch_size,
        tau=task.tau,
        train_freq=task.vector_steps,
        gradient_steps=task.updates,
        ent_coef=f"auto_{task.init_temperature}" if task.learn_temperature else task.init_temperature,
    )


def train_skrl_sac(task: SACTask, pace: Pace) -> None:
    """Train skrl's SAC, on synchronous environments."""
    from skrl.agents.torch.sac import SAC as SkrlSAC

    envs = skrl_envs(task, own_vector=False)
    spaces = skrl_spaces(envs)
    critics = {name: network_of(task, spaces, critic=True) for name in ("critic_1", "critic_2")}
    targets = {f"target_{name}": network_of(task, spaces, critic=True) for name in critics}
    models = {"policy": network_of(task, spaces, critic=False), **critics, **targets}
    paced = paced_by_updates(SkrlSAC, pace, task.num_envs)  # it updates after every vector step
    run_skrl(paced, task, envs, models, task.capacity // task.num_envs, skrl_settings(task))


def skrl_settings(task: SACTask) -> dict[str, Any]:
    """Return the task as skrl's settings; skrl updates after every vector step.

    Raises: ConfigurationError if the updates per vector step are not a whole number.
    """
    updates, rest = divmod(task.updates, task.vector_steps)
    if rest:
        raise ConfigurationError(
            "skrl makes whole updates after every vector step: choose a data.train_freq that divides them."
        )
    return {
        "gradient_steps": updates,
        "batch_size": task.batch_size,
        "discount_factor": task.gamma,
        "polyak": task.tau,
        "learning_rate": task.learning_rate,
        "random_timesteps": task.learning_starts // task.num_envs,
        "learning_starts": task.learning_starts // task.num_envs,
        "learn_entropy": task.learn_temperature,
        "initial_entropy_value": task.init_temperature,
    }


def network_of(task: SACTask, spaces: dict[str, Any], *, critic: bool) -> Any:
    """Create skrl's squashed policy, or a critic of observation and action."""
    observations, actions = skrl_sizes(spaces)
    if critic:
        return skrl_model("Deterministic", spaces, skrl_layers(task, observations + actions, 1), of_both)
    return skrl_model("Gaussian", spaces, skrl_layers(task, observations, 2 * actions), squashed)


def of_both(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Any]]:
    """Apply a critic to observation and action."""
    return model.net(torch.cat([inputs["observations"], inputs["taken_actions"]], -1)), {}


def squashed(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Any]]:
    """Return the squashed mean, and the bounded log standard deviation."""
    mean, log_std = model.net(inputs["observations"]).chunk(2, -1)
    return torch.tanh(mean), {"log_std": log_std.clamp(-5, 2)}
