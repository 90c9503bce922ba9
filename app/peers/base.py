"""Parts shared by all peers: the task, checks of its settings, and drivers of Stable-Baselines3 and skrl."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from app.peers.pacer import Pace
from datamodules.base import EnvDataModule
from datamodules.core.errors import ConfigurationError
from datamodules.replay import ReplayDataModule
from modules.networks.mlp import MLP

UNREACHABLE_STEPS = 10**12
"""Number of environment steps that no benchmark reaches, so that schedules stay at their initial value."""

Compute = Callable[[Any, dict[str, Tensor]], tuple[Tensor, dict[str, Any]]]
"""Function of a skrl model and its inputs that returns output and extras."""

QUIET = {"experiment": {"write_interval": 0, "checkpoint_interval": 0}}
"""Settings of a skrl agent that writes no files."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Training task with the settings of our configs.

    env: a Gymnasium id.   vector_steps: per iteration.   hidden, activation: of every network; they are separate.
    learning_rate: of every optimizer.
    """

    env: str
    env_kwargs: dict[str, Any]
    num_envs: int
    vector_steps: int
    hidden: tuple[int, ...]
    activation: type[nn.Module]
    learning_rate: float
    gamma: float

    @property
    def env_steps(self) -> int:
        """Return the environment steps of an iteration."""
        return self.num_envs * self.vector_steps


@dataclass(frozen=True, kw_only=True)
class ReplayTask(Task):
    """Training task of an off-policy algorithm.   updates: per iteration."""

    batch_size: int
    updates: int
    capacity: int
    learning_starts: int


def check_translatable(who: str, changes: Mapping[str, bool]) -> None:
    """Raise ConfigurationError for the first change, `KEY=VALUE`, that is needed for a peer to have a counterpart."""
    for change, needed in changes.items():
        if needed:
            raise ConfigurationError(
                f"{who} has no exact counterpart of `{change.partition('=')[0]}`: add `--set {change}`."
            )


def mlp_shape(network: nn.Module, who: str) -> tuple[tuple[int, ...], type[nn.Module]]:
    """Return widths of the layers and the activation after each.

    Raises: ConfigurationError unless the network is a plain MLP.
    """
    layers = [layer for layer in network.modules() if not list(layer.children())]
    kinds = {type(layer) for layer in layers if not isinstance(layer, nn.Linear | nn.Flatten)}
    if type(network) is not MLP or network.scale != 1 or len(kinds) != 1:
        raise ConfigurationError(
            f"{who} is compared on plain MLPs only: use `modules.networks.MLP`, no layer_norm, scale 1."
        )
    return tuple(layer.out_features for layer in layers if isinstance(layer, nn.Linear)), kinds.pop()


def common_settings(task: type[Task], *owners: object) -> dict[str, Any]:
    """Return the settings of a task that data and model have under the same name."""
    names = {field.name for field in fields(task)}
    return {name: getattr(owner, name) for owner in owners for name in names if name in vars(owner)}


def wrapper_changes(data: EnvDataModule) -> dict[str, bool]:
    """Return the changes that leave the environment without wrappers, and whether each is needed."""
    training = len(data.train_wrappers) > len(data.wrappers)
    return {"data.wrappers=null": bool(data.wrappers), "data.train_wrappers=null": training}


def replay_changes(data: ReplayDataModule) -> dict[str, bool]:
    """Return the changes of the data's settings that peers require, and whether each is needed."""
    return {
        **wrapper_changes(data),
        "data.n_step=1": data.n_step > 1,
        "data.priority_alpha=0": data.priority_alpha > 0,
        "data.frame_stack=1": data.frame_stack > 1,
    }


def run_sb3(agent: str, task: Task, pace: Pace, *, after: int = 0, **settings: Any) -> None:
    """Train a Stable-Baselines3 agent: DummyVecEnv, on the CPU, no logging.

    Args:
        agent: name of the class.   after: environment steps before iterations are counted.
        settings: settings of the agent in addition to those of all tasks.
    """
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class Paced(BaseCallback):
        """Callback that calls `Pace.count` at the start of the next rollout, when an iteration is over."""

        def _on_rollout_start(self) -> None:
            if self.num_timesteps > after and not pace.count(task.env_steps):
                raise SystemExit(0)

        def _on_step(self) -> bool:
            return True

    getattr(stable_baselines3, agent)(
        "MlpPolicy",
        make_vec_env(task.env, task.num_envs, seed=1, env_kwargs=task.env_kwargs),
        learning_rate=task.learning_rate,
        gamma=task.gamma,
        policy_kwargs={"net_arch": list(task.hidden), "activation_fn": task.activation},
        device="cpu",
        **settings,
    ).learn(UNREACHABLE_STEPS, callback=Paced(), log_interval=UNREACHABLE_STEPS)


def skrl_envs(task: Task, own_vector: bool = True) -> Any:
    """Create skrl's environments: the id's own vector environment if available and requested, else synchronous."""
    from skrl.envs.wrappers.torch import wrap_env

    own = own_vector and gym.spec(task.env).vector_entry_point is not None
    mode = "vector_entry_point" if own else "sync"
    return wrap_env(gym.make_vec(task.env, task.num_envs, vectorization_mode=mode, **task.env_kwargs), verbose=False)


def skrl_spaces(envs: Any) -> dict[str, Any]:
    """Return the spaces and device for skrl's agents and models."""
    return {"observation_space": envs.observation_space, "action_space": envs.action_space, "device": "cpu"}


def skrl_layers(task: Task, inputs: int, outputs: int) -> nn.Sequential:
    """Create the layers of the task's network for skrl."""
    widths = zip((inputs, *task.hidden[:-1]), task.hidden, strict=True)
    hidden = [layer for width in widths for layer in (nn.Linear(*width), task.activation())]
    return nn.Sequential(*hidden, nn.Linear(task.hidden[-1], outputs))


def skrl_sizes(spaces: dict[str, Any]) -> tuple[int, int]:
    """Return the lengths of an observation and of an action: the number of choices of a discrete one."""
    return gym.spaces.flatdim(spaces["observation_space"]), gym.spaces.flatdim(spaces["action_space"])


def of_observation(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Any]]:
    """Apply a network to the observation."""
    return model.net(inputs["observations"]), {}


def skrl_model(
    kind: str, spaces: dict[str, Any], net: nn.Module, compute: Compute = of_observation, log_stds: int = 0
) -> Any:
    """Create a skrl model of a network.

    Args:
        kind: type of its output: Deterministic, Categorical or Gaussian.
        compute: returns output and extras, from the model and its inputs.
        log_stds: size of the free parameter `log_std`.
    """
    from skrl.models import torch as skrl

    mixin = getattr(skrl, f"{kind}Mixin")

    class Network(mixin, skrl.Model):  # type: ignore[valid-type, misc]
        """Model of the layers with the mixin of its output."""

        def __init__(self) -> None:
            skrl.Model.__init__(self, **spaces)
            mixin.__init__(self)
            self.net, self.log_std = net, nn.Parameter(torch.zeros(log_stds))

        def compute(self, inputs: dict[str, Tensor], role: str) -> tuple[Tensor, dict[str, Any]]:
            return compute(self, inputs)

    return Network()


def paced_by_updates(agent: Any, pace: Pace, env_steps: int) -> Any:
    """Return a subclass of a skrl agent that calls `Pace.count` after every update."""

    class Paced(agent):
        def update(self, **timing: int) -> None:
            super().update(**timing)
            self.tracking_data.clear()
            if not pace.count(env_steps):
                raise SystemExit(0)

    return Paced


def run_skrl(agent: Any, task: Task, envs: Any, models: dict[str, Any], memory: int, settings: Any) -> None:
    """Train a skrl agent: on the CPU, no tracking.

    Args:
        agent: a class that counts iterations.   memory: capacity in vector steps.
    """
    from skrl.memories.torch import RandomMemory
    from skrl.trainers.torch import SequentialTrainer

    remembers = RandomMemory(memory_size=memory, num_envs=task.num_envs, device="cpu")
    made = agent(models=models, memory=remembers, cfg=settings | QUIET, **skrl_spaces(envs))
    quiet = {
        "timesteps": UNREACHABLE_STEPS,
        "headless": True,
        "disable_progressbar": True,
        "close_environment_at_exit": False,
    }
    SequentialTrainer(env=envs, agents=made, cfg=quiet).train()
