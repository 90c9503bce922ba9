"""Other libraries training the same task with the same hyperparameters, each in its fastest usual form.

To add a peer, write its `train_...` of each kind of task and a line in `PEERS`. DQN's stand in `app.peers_dqn`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from app.pace import Pace
from app.peers_dqn import QTask, q_task_of, train_sb3_dqn, train_skrl_dqn
from datamodules.replay import ReplayData
from datamodules.rollout import RolloutData
from datamodules.types import UsageError
from modules.dqn import DQN
from modules.networks.mlp import MLP
from modules.ppo import PPO

FOREVER = 10**12
"""Environment steps that no benchmark reaches, so that schedules stay at their start."""


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


class Peer(NamedTuple):
    """A library: what to import, and how it trains each kind of task at a pace."""

    package: str
    trainers: dict[type, Callable[[Any, Pace], None]]

    def train(self, task: Any, pace: Pace) -> None:
        """Train a task until the pace says that it is over."""
        self.trainers[type(task)](task, pace)


def task_of(data: Any, model: Any, who: str) -> Task | QTask:
    """The task in a form that every peer has.

    Raises: UsageError, one sentence, for what cannot be translated, with what to change.
    """
    if isinstance(data, ReplayData) and isinstance(model, DQN):
        return q_task_of(data, model, who)
    if not (isinstance(data, RolloutData) and isinstance(model, PPO)):
        raise UsageError(f"{who} can be compared with modules.ppo.PPO and modules.dqn.DQN only.")
    refuse_untranslatable(data, model, who)
    layers = [layer for layer in model.network.modules() if not list(layer.children())]
    kinds = {type(layer) for layer in layers if not isinstance(layer, nn.Linear | nn.Flatten)}
    if type(model.network) is not MLP or model.network.scale != 1 or len(kinds) != 1:
        raise UsageError(f"{who} is compared on plain MLPs only: use `modules.networks.MLP`, no layer_norm, scale 1.")
    names = set(Task._fields)
    plain = {name: getattr(owner, name) for owner in (data, model) for name in names if name in vars(owner)}
    return Task(
        **plain,
        action_kind=data.spaces["action_kind"],
        hidden=tuple(layer.out_features for layer in layers if isinstance(layer, nn.Linear)),
        activation=kinds.pop(),
    )


def refuse_untranslatable(data: RolloutData, model: PPO, who: str) -> None:
    """Raises: UsageError for settings whose counterpart in a peer is missing or means something else."""
    changes = {
        "model.shared=false": model.value_network is None,
        "model.normalize_obs=false": model.obs_normalizer is not None,
        "model.normalize_reward=false": model.reward_scaler is not None,
        "model.target_kl=null": model.target_kl is not None,
    }
    for change, needed in changes.items():
        if needed:
            raise UsageError(f"{who} has no exact counterpart of `{change.partition('=')[0]}`: add `--set {change}`.")
    if data.env not in gym.registry:
        raise UsageError(f"{who} needs a Gymnasium id, but data.env is {data.env}.")
    if data.spaces["action_kind"] not in ("discrete", "continuous"):
        raise UsageError(f"{who} is compared on Discrete and Box actions only; {data.env} has other ones.")


def train_sb3(task: Task, pace: Pace) -> None:
    """Stable-Baselines3: DummyVecEnv, on the CPU, no logging."""
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class Paced(BaseCallback):
        """Ticks where the next rollout begins: an iteration is over."""

        def _on_rollout_start(self) -> None:
            if self.num_timesteps and not pace.tick(task.horizon * task.num_envs):
                raise SystemExit(0)

        def _on_step(self) -> bool:
            return True

    agent = stable_baselines3.PPO(
        "MlpPolicy",
        make_vec_env(task.env, task.num_envs, seed=1, env_kwargs=task.env_kwargs),
        n_steps=task.horizon,
        batch_size=task.horizon * task.num_envs // task.minibatches,
        n_epochs=task.passes,
        learning_rate=task.learning_rate,
        gamma=task.gamma,
        gae_lambda=task.lam,
        clip_range=task.clip,
        clip_range_vf=task.value_clip,
        vf_coef=task.value_weight / 2,
        ent_coef=task.entropy_weight,
        max_grad_norm=task.max_grad_norm,
        policy_kwargs={"net_arch": list(task.hidden), "activation_fn": task.activation},
        device="cpu",
    )
    agent.learn(FOREVER, callback=Paced(), log_interval=FOREVER)


def train_skrl(task: Task, pace: Pace) -> None:
    """skrl: the id's own vector environment where there is one, on the CPU, no tracking."""
    from skrl.agents.torch.ppo import PPO as SkrlPPO
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.memories.torch import RandomMemory
    from skrl.trainers.torch import SequentialTrainer

    class Paced(SkrlPPO):
        """Ticks after every update: an iteration is over."""

        def update(self, **timing: int) -> None:
            super().update(**timing)
            self.tracking_data.clear()
            if not pace.tick(task.horizon * task.num_envs):
                raise SystemExit(0)

    own = gym.spec(task.env).vector_entry_point is not None
    mode = "vector_entry_point" if own else "sync"
    envs = wrap_env(gym.make_vec(task.env, task.num_envs, vectorization_mode=mode, **task.env_kwargs), verbose=False)
    spaces = {"observation_space": envs.observation_space, "action_space": envs.action_space, "device": "cpu"}
    agent = Paced(
        models={role: skrl_model(task, role, spaces) for role in ("policy", "value")},
        memory=RandomMemory(memory_size=task.horizon, num_envs=task.num_envs, device="cpu"),
        cfg=skrl_settings(task),
        **spaces,
    )
    SequentialTrainer(env=envs, agents=agent, cfg=skrl_trainer_settings()).train()


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
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
    }


def skrl_trainer_settings() -> dict[str, Any]:
    """A quiet run without end."""
    return {"timesteps": FOREVER, "headless": True, "disable_progressbar": True, "close_environment_at_exit": False}


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
            widths = zip((self.num_observations, *task.hidden[:-1]), task.hidden, strict=True)
            hidden = [layer for width in widths for layer in (nn.Linear(*width), task.activation())]
            self.net = nn.Sequential(*hidden, nn.Linear(task.hidden[-1], outputs))
            self.log_std = nn.Parameter(torch.zeros(outputs if mixin is GaussianMixin else 0))

        def compute(self, inputs: dict[str, Tensor], role: str) -> tuple[Tensor, dict[str, Any]]:
            extras = {"log_std": self.log_std} if mixin is GaussianMixin else {}
            return self.net(inputs["observations"]), extras

    return Torso()


PEERS = {
    "sb3": Peer("stable_baselines3", {Task: train_sb3, QTask: train_sb3_dqn}),
    "skrl": Peer("skrl", {Task: train_skrl, QTask: train_skrl_dqn}),
}
