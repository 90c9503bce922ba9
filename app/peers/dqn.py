"""DQN of other libraries on the task of a `modules.DQN`; see also `app.peers.ppo`."""

from dataclasses import dataclass
from typing import Any

from app.peers.base import (
    ReplayTask,
    check_translatable,
    common_settings,
    mlp_shape,
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
from datamodules.replay import ReplayDataModule
from modules.dqn.dqn import DQN
from modules.networks.heads.q_value import QHead


@dataclass(frozen=True, kw_only=True)
class DQNTask(ReplayTask):
    """Training task of DQN."""

    target_interval: int
    epsilon: float
    max_grad_norm: float


def q_task_of(data: ReplayDataModule, model: DQN, who: str) -> DQNTask:
    """Return the task in a form that every peer supports.

    Raises: ConfigurationError, one sentence, for settings that cannot be translated, with what to change.
    """
    changes = {
        "model.double_q=false": model.double_q,
        "model.tau=null": model.tau is not None,
        **replay_changes(data),
        "model.head=modules.networks.QHead": type(model.online.head) is not QHead or model.online.head.dueling,
    }
    check_translatable(who, changes)
    hidden, activation = mlp_shape(model.online.torso, who)
    plain = common_settings(DQNTask, data, model)
    derived = {"updates": data.updates_per_iteration, "epsilon": model.explore.end, "vector_steps": data.train_freq}
    return DQNTask(**{**plain, **derived, "hidden": hidden, "activation": activation})


def train_sb3_dqn(task: DQNTask, pace: Pace) -> None:
    """Train Stable-Baselines3's DQN after exploration; it supports target intervals only in environment steps."""
    run_sb3(
        "DQN",
        task,
        pace,
        buffer_size=task.capacity,
        learning_starts=task.learning_starts,
        batch_size=task.batch_size,
        train_freq=task.vector_steps,
        gradient_steps=task.updates,
        target_update_interval=max(1, task.target_interval * task.env_steps // task.updates),
        exploration_initial_eps=task.epsilon,
        exploration_final_eps=task.epsilon,
        max_grad_norm=task.max_grad_norm,
    )


def train_skrl_dqn(task: DQNTask, pace: Pace) -> None:
    """Train skrl's DQN after exploration; it cannot clip gradients."""
    from skrl.agents.torch.dqn import DQN as SkrlDQN

    class Paced(SkrlDQN):
        """Agent that calls `Pace.count` after every `vector_steps` steps, at the end of an iteration."""

        def post_interaction(self, *, timestep: int, timesteps: int) -> None:
            super().post_interaction(timestep=timestep, timesteps=timesteps)
            self.tracking_data.clear()
            if (timestep + 1) % task.vector_steps == 0 and not pace.count(task.env_steps):
                raise SystemExit(0)

    envs = skrl_envs(task)
    models = {role: network_of(task, skrl_spaces(envs)) for role in ("q_network", "target_q_network")}
    settings = {
        "gradient_steps": task.updates,
        "batch_size": task.batch_size,
        "discount_factor": task.gamma,
        "polyak": 1.0,
        "learning_rate": task.learning_rate,
        "learning_starts": task.learning_starts // task.num_envs,
        "update_interval": task.vector_steps,
        "target_update_interval": task.target_interval,
        "exploration_scheduler": lambda timestep, timesteps: task.epsilon,
    }
    run_skrl(Paced, task, envs, models, task.capacity // task.num_envs, settings)


def network_of(task: DQNTask, spaces: dict[str, Any]) -> Any:
    """Create skrl's Q-network."""
    return skrl_model("Deterministic", spaces, skrl_layers(task, *skrl_sizes(spaces)))
