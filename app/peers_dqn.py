"""Other libraries' DQN on the task of a `modules.dqn.DQN`; `app.peers` has the rest."""

from typing import Any, NamedTuple

import gymnasium as gym
from torch import Tensor, nn

from app.pace import Pace
from datamodules.replay import ReplayData
from datamodules.types import UsageError
from modules.dqn import DQN
from modules.networks.mlp import MLP
from modules.networks.q_heads import QHead

FOREVER = 10**12


class QTask(NamedTuple):
    """What to train, in the words of our configs; `updates` are those of an iteration."""

    env: str
    env_kwargs: dict[str, Any]
    num_envs: int
    horizon: int
    hidden: tuple[int, ...]
    activation: type[nn.Module]
    learning_rate: float
    gamma: float
    batch_size: int
    updates: int
    capacity: int
    learning_starts: int
    target_interval: int
    epsilon: float
    max_grad_norm: float

    @property
    def env_steps(self) -> int:
        """Environment steps of an iteration."""
        return self.num_envs * self.horizon


def q_task_of(data: ReplayData, model: DQN, who: str) -> QTask:
    """The task in a form that every peer has.

    Raises: UsageError, one sentence, for what cannot be translated, with what to change.
    """
    changes = {
        "model.double=false": model.online_chooses,
        "model.tau=null": model.tau is not None,
        "data.n_step=1": data.n_step > 1,
        "data.priority_alpha=0": data.priority_alpha > 0,
        "data.frame_stack=1": data.frame_stack > 1,
        "model.head=modules.networks.q_heads.QHead": type(model.online.head) is not QHead or model.online.head.dueling,
    }
    for change, needed in changes.items():
        if needed:
            raise UsageError(f"{who} has no exact counterpart of `{change.partition('=')[0]}`: add `--set {change}`.")
    torso = model.online.torso
    layers = [layer for layer in torso.modules() if not list(layer.children())]
    kinds = {type(layer) for layer in layers if not isinstance(layer, nn.Linear | nn.Flatten)}
    if type(torso) is not MLP or torso.scale != 1 or len(kinds) != 1:
        raise UsageError(f"{who} is compared on plain MLPs only: use `modules.networks.MLP`, no layer_norm, scale 1.")
    names = set(QTask._fields)
    plain = {name: getattr(owner, name) for owner in (data, model) for name in names if name in vars(owner)}
    hidden = tuple(layer.out_features for layer in layers if isinstance(layer, nn.Linear))
    derived = {"hidden": hidden, "activation": kinds.pop(), "updates": data.updates_per_iteration}
    return QTask(**{**plain, **derived})


def train_sb3_dqn(task: QTask, pace: Pace) -> None:
    """Stable-Baselines3: DummyVecEnv, on the CPU, no logging; it has no target interval but in environment steps."""
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class Paced(BaseCallback):
        """Ticks where the next steps begin: an iteration is over."""

        def _on_rollout_start(self) -> None:
            if self.num_timesteps and not pace.tick(task.env_steps):
                raise SystemExit(0)

        def _on_step(self) -> bool:
            return True

    agent = stable_baselines3.DQN(
        "MlpPolicy",
        make_vec_env(task.env, task.num_envs, seed=1, env_kwargs=task.env_kwargs),
        learning_rate=task.learning_rate,
        buffer_size=task.capacity,
        learning_starts=task.learning_starts,
        batch_size=task.batch_size,
        gamma=task.gamma,
        train_freq=task.horizon,
        gradient_steps=task.updates,
        target_update_interval=max(1, task.target_interval * task.env_steps // task.updates),
        exploration_final_eps=task.epsilon,
        max_grad_norm=task.max_grad_norm,
        policy_kwargs={"net_arch": list(task.hidden), "activation_fn": task.activation},
        device="cpu",
    )
    agent.learn(FOREVER, callback=Paced(), log_interval=FOREVER)


def train_skrl_dqn(task: QTask, pace: Pace) -> None:
    """skrl: the id's own vector environment where there is one, on the CPU, no tracking; it cannot clip gradients."""
    from skrl.agents.torch.dqn import DQN as SkrlDQN
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.memories.torch import RandomMemory
    from skrl.trainers.torch import SequentialTrainer

    class Paced(SkrlDQN):
        """Ticks after every `horizon` vector steps: an iteration is over."""

        def post_interaction(self, *, timestep: int, timesteps: int) -> None:
            super().post_interaction(timestep=timestep, timesteps=timesteps)
            self.tracking_data.clear()
            if (timestep + 1) % task.horizon == 0 and not pace.tick(task.env_steps):
                raise SystemExit(0)

    own = gym.spec(task.env).vector_entry_point is not None
    mode = "vector_entry_point" if own else "sync"
    envs = wrap_env(gym.make_vec(task.env, task.num_envs, vectorization_mode=mode, **task.env_kwargs), verbose=False)
    spaces = {"observation_space": envs.observation_space, "action_space": envs.action_space, "device": "cpu"}
    agent = Paced(
        models={role: skrl_q_network(task, spaces) for role in ("q_network", "target_q_network")},
        memory=RandomMemory(memory_size=task.capacity // task.num_envs, num_envs=task.num_envs, device="cpu"),
        cfg={
            "gradient_steps": task.updates,
            "batch_size": task.batch_size,
            "discount_factor": task.gamma,
            "polyak": 1.0,
            "learning_rate": task.learning_rate,
            "learning_starts": task.learning_starts // task.num_envs,
            "update_interval": task.horizon,
            "target_update_interval": task.target_interval,
            "exploration_scheduler": lambda timestep, timesteps: 1.0,
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        },
        **spaces,
    )
    quiet = {"timesteps": FOREVER, "headless": True, "disable_progressbar": True, "close_environment_at_exit": False}
    SequentialTrainer(env=envs, agents=agent, cfg=quiet).train()


def skrl_q_network(task: QTask, spaces: dict[str, Any]) -> Any:
    """Action values as skrl wants them."""
    from skrl.models.torch import DeterministicMixin, Model

    class Values(DeterministicMixin, Model):
        """The layers of the task and a number for every action."""

        def __init__(self) -> None:
            Model.__init__(self, **spaces)
            DeterministicMixin.__init__(self)
            widths = zip((self.num_observations, *task.hidden[:-1]), task.hidden, strict=True)
            hidden = [layer for width in widths for layer in (nn.Linear(*width), task.activation())]
            self.net = nn.Sequential(*hidden, nn.Linear(task.hidden[-1], int(spaces["action_space"].n)))

        def compute(self, inputs: dict[str, Tensor], role: str) -> tuple[Tensor, dict[str, Any]]:
            return self.net(inputs["observations"]), {}

    return Values()
