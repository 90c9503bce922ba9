"""The older system's agent on Leyden's networks: deep Q-learning, one transition at a time."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from checkpoint import apart, laid_out, named_alike, read_checkpoint
from torch import Tensor

from callbacks.run_control.atomic_write import save_tensors
from modules.functional.q_learning import huber
from modules.functional.returns import td_target
from modules.manual_backward.relu_mlp import layers_of
from modules.networks.heads.q_value import QHead, QNetwork
from modules.networks.mlp import MLP
from modules.optim.flat_parameters import FlatParameters, flatten_optimizer

HIDDEN = (256, 256, 128)


class Memory:
    """The newest transitions, in arrays that are allocated once.

    Args:
        capacity: transitions kept.
        state_size: numbers in a state.
    """

    def __init__(self, capacity: int, state_size: int) -> None:
        self.states = np.zeros((2, capacity, state_size), np.float32)
        self.actions, self.rewards = np.zeros(capacity, np.int64), np.zeros(capacity, np.float32)
        self.goes_on = np.zeros(capacity, np.float32)
        self.capacity, self.written = capacity, 0

    def __len__(self) -> int:
        return min(self.written, self.capacity)

    def append(self, state: Any, action: int, reward: float, next_state: Any, done: bool) -> None:
        """Keep one transition, over the oldest when full."""
        place = self.written % self.capacity
        self.states[0, place], self.states[1, place] = state, next_state
        self.actions[place], self.rewards[place], self.goes_on[place] = action, reward, not done
        self.written += 1

    def sample(self, rows: np.ndarray, device: torch.device) -> list[Tensor]:
        """States, actions, rewards, next states, and 1 where the episode goes on, of some rows."""
        columns = (self.states[0], self.actions, self.rewards, self.states[1], self.goes_on)
        return [torch.from_numpy(column[rows]).to(device) for column in columns]


def q_network(state_size: int, action_size: int) -> QNetwork:
    """Values of all actions, `[B, actions, 1]`, from states `[B, state_size]`: Leyden's."""
    torso = MLP((state_size,), HIDDEN, activation="relu")
    return QNetwork(torso, QHead(torso.features, action_size))


class DQNAgent:
    """Deep Q-learning as the old system had it (Mnih et al. 2015, doi:10.1038/nature14236), without its dropout.

    An old loop keeps to `remember(..., terminated or truncated)`, so that a cut-off episode counts as a terminal one;
    what Leyden's own DQN does better is in docs/algorithms/dqn.md.

    Args:
        state_size: numbers in a state.
        action_size: actions.
        learning_rate: of Adam.   gamma: discount per step.   capacity: transitions remembered.
        batch_size: transitions a replay learns from; by default 64 on a GPU and 32 on a CPU, as it was.
        target_interval: replays between two copies of the network to its target.
        epsilon, epsilon_min, epsilon_decay: the share of random actions, its end, and its factor at every replay.
        max_grad_norm: bound on the gradient's norm.   device: a GPU where there is one, unless named.   seed: of all.
    """

    def __init__(
        self,
        state_size: int,
        action_size: int,
        *,
        learning_rate: float = 5e-4,
        gamma: float = 0.99,
        capacity: int = 10_000,
        batch_size: int | None = None,
        target_interval: int = 100,
        epsilon: float = 1.0,
        epsilon_min: float = 0.01,
        epsilon_decay: float = 0.995,
        max_grad_norm: float = 10.0,
        device: str | None = None,
        seed: int = 0,
    ) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.batch_size = batch_size or (64 if self.device.type == "cuda" else 32)
        self.action_size, self.gamma, self.target_interval = action_size, gamma, target_interval
        self.epsilon, self.epsilon_min, self.epsilon_decay = epsilon, epsilon_min, epsilon_decay
        self.max_grad_norm, self.updates, self.random = max_grad_norm, 0, np.random.default_rng(seed)
        self.memory = Memory(capacity, state_size)
        with torch.random.fork_rng(), self.device:
            torch.manual_seed(seed)
            self.network, self.target = (q_network(state_size, action_size) for _ in range(2))
        self.target.load_state_dict(self.network.state_dict())
        self.parameters = list(self.network.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, learning_rate, fused=True)
        self.flat = cast(FlatParameters, flatten_optimizer(self.optimizer))
        self.layers, self.target_layers = map(layers_of, (self.flat, FlatParameters([*self.target.parameters()])))

    def act(self, state: Any, greedy: bool = False) -> int:
        """An action: the best, or with probability `epsilon`, unless greedy, any."""
        if not greedy and self.random.random() < self.epsilon:
            return int(self.random.integers(self.action_size))
        with torch.inference_mode():
            states = torch.from_numpy(np.asarray(state, np.float32).reshape(1, -1)).to(self.device)
            return int(self.layers(states)[0].argmax())

    def remember(self, state: Any, action: int, reward: float, next_state: Any, done: bool) -> None:
        """Keep a transition to learn from."""
        self.memory.append(np.ravel(state), action, reward, np.ravel(next_state), done)

    @torch.no_grad()
    def replay(self) -> Tensor:
        """One step of learning from a random batch; the Huber loss, 0-d."""
        rows = self.random.integers(len(self.memory), size=self.batch_size)
        states, actions, rewards, next_states, goes_on = self.memory.sample(rows, self.device)
        target = td_target(rewards, self.target_layers(next_states)[0].amax(1), self.gamma * goes_on)
        values, seen = self.layers(states)
        error = values.gather(1, actions[:, None]).squeeze(1) - target
        huber_slope = error.clamp(-1, 1) / self.batch_size
        self.layers.backward_(seen, torch.zeros_like(values).scatter_(1, actions[:, None], huber_slope[:, None]))
        self.flat.clip_(self.max_grad_norm)
        self.flat.step_(self.optimizer)
        self.updates += 1
        if self.updates % self.target_interval == 0:
            self.target.load_state_dict(self.network.state_dict())
        self.epsilon = max(self.epsilon_min, self.epsilon * self.epsilon_decay)
        return huber(error).mean()

    def save(self, path: str | Path) -> None:
        """Write a checkpoint under the old system's keys; the memory is not part of it.

        Raises: OSError if it cannot be written; an older file at `path` stays as it was then.
        """
        checkpoint = {
            "model_state_dict": self.network.state_dict(),
            "target_model_state_dict": self.target.state_dict(),
            "optimizer_state_dict": apart(self.optimizer.state_dict(), self.parameters),
            "epsilon": self.epsilon,
            "step_count": self.updates,
        }
        save_tensors(checkpoint, Path(path))

    def load(self, path: str | Path) -> None:
        """Continue from a checkpoint of `save` or of the old system."""
        checkpoint = read_checkpoint(path)
        keys = ("model_state_dict", "target_model_state_dict")
        weights = [named_alike(self.network, checkpoint[key]) for key in keys]
        for network, state in zip((self.network, self.target), weights, strict=True):
            network.load_state_dict(state)
        self.optimizer.load_state_dict(laid_out(checkpoint["optimizer_state_dict"], self.optimizer.state_dict()))
        self.epsilon, self.updates = float(checkpoint["epsilon"]), int(checkpoint["step_count"])
