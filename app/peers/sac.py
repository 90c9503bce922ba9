"""Other libraries' SAC on the task of a `modules.sac.sac.SAC`; `app.peers.ppo` has the rest."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from app.peers.base import (
    ReplayTask,
    as_they_are,
    paced_by_updates,
    refuse_without_counterpart,
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
from datamodules.core.errors import UsageError
from datamodules.replay import ReplayData
from modules.networks.heads.twin_critic import TwinLinear, TwinMLP
from modules.networks.mlp import MLP
from modules.sac.sac import SAC, UNBOUNDED


@dataclass(frozen=True, kw_only=True)
class SACTask(ReplayTask):
    """What SAC trains."""

    tau: float
    alpha: float
    tune_alpha: bool


def sac_task_of(data: ReplayData, model: SAC, who: str) -> SACTask:
    """The task in a form that every peer has.

    Raises: UsageError, one sentence, for what cannot be translated, with what to change.
    """
    changes = {
        **replay_changes(data),
        "model.max_grad_norm=null": model.max_grad_norm < UNBOUNDED,
        "model.normalize_obs=false": model.obs_normalizer is not None,
        "model.noise_hold=1": model.noise_hold > 1,
        "model.curiosity=null": len(model.curiosity.metrics) > 0,
        "model.critic_learning_rate=null": model.critic_learning_rate != model.learning_rate,
    }
    refuse_without_counterpart(who, changes)
    if data.env not in gym.registry or not model.continuous:
        raise UsageError(f"{who} is compared on Gymnasium ids with Box actions only, and data.env is {data.env}.")
    hidden, activation = shape_of(model, who)
    plain = as_they_are(SACTask, data, model)
    alpha = float(model.log_alpha.detach().exp())
    derived = {"alpha": alpha, "updates": data.updates_per_iteration}  # the model's `updates` are what it made so far
    return SACTask(**{**plain, **derived, "hidden": hidden, "activation": activation})


def shape_of(model: SAC, who: str) -> tuple[tuple[int, ...], type[nn.Module]]:
    """Widths and activation of the networks.

    Raises: UsageError unless actor and critics are plain MLPs of the same ones.
    """
    actor = [layer for layer in model.network.modules() if not list(layer.children())]
    critic = [layer for layer in model.critic.modules() if not list(layer.children())]
    widths = tuple(layer.out_features for layer in actor if isinstance(layer, nn.Linear))
    twins = tuple(layer.weight.shape[-1] for layer in critic if isinstance(layer, TwinLinear))[:-1]
    kinds = {type(layer) for layer in actor + critic if not isinstance(layer, nn.Linear | nn.Flatten | TwinLinear)}
    plain = type(model.network) is MLP and type(model.critic) is TwinMLP and model.network.scale == 1
    if not plain or widths != twins or len(kinds) != 1:
        raise UsageError(
            f"{who} is compared on plain MLPs of the same widths and activation for actor and critics only."
        )
    return widths, kinds.pop()


def train_sb3_sac(task: SACTask, pace: Pace) -> None:
    """Stable-Baselines3's SAC."""
    run_sb3(
        "SAC",
        task,
        pace,
        after=task.learning_starts,
        buffer_size=task.capacity,
        learning_starts=task.learning_starts,
        batch_size=task.batch_size,
        tau=task.tau,
        train_freq=task.horizon,
        gradient_steps=task.updates,
        ent_coef=f"auto_{task.alpha}" if task.tune_alpha else task.alpha,
    )


def train_skrl_sac(task: SACTask, pace: Pace) -> None:
    """Skrl's SAC, on synchronous environments."""
    from skrl.agents.torch.sac import SAC as SkrlSAC

    envs = skrl_envs(task, own_vector=False)
    spaces = skrl_spaces(envs)
    critics = {name: network_of(task, spaces, critic=True) for name in ("critic_1", "critic_2")}
    targets = {f"target_{name}": network_of(task, spaces, critic=True) for name in critics}
    models = {"policy": network_of(task, spaces, critic=False), **critics, **targets}
    paced = paced_by_updates(SkrlSAC, pace, task.num_envs)  # it updates after every vector step
    run_skrl(paced, task, envs, models, task.capacity // task.num_envs, skrl_settings(task))


def skrl_settings(task: SACTask) -> dict[str, Any]:
    """Ours in skrl's words; it makes its updates after every vector step.

    Raises: UsageError if that is no whole number of them.
    """
    updates, rest = divmod(task.updates, task.horizon)
    if rest:
        raise UsageError("skrl makes whole updates after every vector step: choose a data.horizon that divides them.")
    return {
        "gradient_steps": updates,
        "batch_size": task.batch_size,
        "discount_factor": task.gamma,
        "polyak": task.tau,
        "learning_rate": task.learning_rate,
        "random_timesteps": task.learning_starts // task.num_envs,
        "learning_starts": task.learning_starts // task.num_envs,
        "learn_entropy": task.tune_alpha,
        "initial_entropy_value": task.alpha,
    }


def network_of(task: SACTask, spaces: dict[str, Any], *, critic: bool) -> Any:
    """A squashed policy or a critic of observation and action, as skrl wants them."""
    observations, actions = skrl_sizes(spaces)
    if critic:
        return skrl_model("Deterministic", spaces, skrl_layers(task, observations + actions, 1), of_both)
    return skrl_model("Gaussian", spaces, skrl_layers(task, observations, 2 * actions), squashed)


def of_both(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Any]]:
    """What a critic makes of observation and action."""
    return model.net(torch.cat([inputs["observations"], inputs["taken_actions"]], -1)), {}


def squashed(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Any]]:
    """The squashed mean, and the log standard deviation within bounds."""
    mean, log_std = model.net(inputs["observations"]).chunk(2, -1)
    return torch.tanh(mean), {"log_std": log_std.clamp(-5, 2)}
