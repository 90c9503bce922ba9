"""The older system's agent on Leyden's networks: deep Q-learning, one transition at a time."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from checkpoint import named_alike, read_checkpoint
from torch import Tensor, nn
from torch.nn.functional import linear, smooth_l1_loss

from modules.networks.mlp import MLP

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


class QNetwork(nn.Module):
    """Values of all actions, `[B, actions]`, from states `[B, state_size]`: Leyden's MLP, with a backward pass by hand.

    Autograd would take as long again as the arithmetic of networks and batches this small, most of it for gradients in
    fresh memory; here they are views of `gradient` `[weights]`, written in place.
    """

    def __init__(self, state_size: int, action_size: int) -> None:
        super().__init__()
        torso = MLP((state_size,), HIDDEN, activation="relu")
        hidden = [layer for layer in torso.body.children() if isinstance(layer, nn.Linear)]
        self.layers = [*hidden, nn.Linear(torso.features, action_size)]
        self.sequence = nn.ModuleList(self.layers)
        weights = list(self.parameters())
        self.gradient = torch.zeros(sum(weight.numel() for weight in weights))
        for weight, piece in zip(weights, self.gradient.split([weight.numel() for weight in weights]), strict=True):
            weight.grad = piece.view_as(weight)

    def inputs(self, states: Tensor) -> list[Tensor]:
        """What each layer reads, `[B, width]`."""
        seen = [states]
        for layer in self.layers[:-1]:
            seen.append(linear(seen[-1], layer.weight, layer.bias).relu_())
        return seen

    def forward(self, states: Tensor) -> Tensor:
        """Values of the actions."""
        return self.layers[-1](self.inputs(states)[-1])

    def backward_(self, inputs: list[Tensor], slope: Tensor) -> None:
        """Gradients of every layer, from what each read and the loss's slope by the values, `[B, actions]`."""
        for index in reversed(range(len(inputs))):
            layer = self.layers[index]
            torch.mm(slope.t(), inputs[index], out=layer.weight.grad)
            torch.sum(slope, 0, out=layer.bias.grad)
            if index:
                slope = slope.mm(layer.weight).mul_(inputs[index] > 0)


class DQNAgent:
    """Deep Q-learning as the old system had it (Mnih et al. 2015, doi:10.1038/nature14236), without its dropout.

    An old loop keeps to `remember(..., terminated or truncated)`, so that a cut-off episode counts as a terminal one;
    what Leyden's own DQN does better is in the README.

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
            self.network, self.target = (QNetwork(state_size, action_size) for _ in range(2))
        self.target.load_state_dict(self.network.state_dict())
        self.parameters = list(self.network.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, learning_rate, fused=True)

    def act(self, state: Any, greedy: bool = False) -> int:
        """An action: the best, or with probability `epsilon`, unless greedy, any."""
        if not greedy and self.random.random() < self.epsilon:
            return int(self.random.integers(self.action_size))
        with torch.inference_mode():
            values = self.network(torch.from_numpy(np.asarray(state, np.float32).reshape(1, -1)).to(self.device))
            return int(values.argmax())

    def remember(self, state: Any, action: int, reward: float, next_state: Any, done: bool) -> None:
        """Keep a transition to learn from."""
        self.memory.append(np.ravel(state), action, reward, np.ravel(next_state), done)

    @torch.no_grad()
    def replay(self) -> Tensor:
        """One step of learning from a random batch; the Huber loss, 0-d."""
        rows = self.random.integers(len(self.memory), size=self.batch_size)
        states, actions, rewards, next_states, goes_on = self.memory.sample(rows, self.device)
        target = rewards + self.gamma * goes_on * self.target(next_states).amax(1)
        inputs = self.network.inputs(states)
        values = self.network.layers[-1](inputs[-1])
        chosen = values.gather(1, actions[:, None]).squeeze(1)
        huber_slope = (chosen - target).clamp(-1, 1) / self.batch_size
        slope = torch.zeros_like(values).scatter_(1, actions[:, None], huber_slope[:, None])
        self.network.backward_(inputs, slope)
        gradient = self.network.gradient
        gradient.mul_((self.max_grad_norm / gradient.norm()).clamp_(max=1))
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.target_interval == 0:
            self.target.load_state_dict(self.network.state_dict())
        self.epsilon = max(self.epsilon_min, self.epsilon * self.epsilon_decay)
        return smooth_l1_loss(chosen, target)

    def save(self, path: str | Path) -> None:
        """Write a checkpoint under the old system's keys; the memory is not part of it."""
        checkpoint = {
            "model_state_dict": self.network.state_dict(),
            "target_model_state_dict": self.target.state_dict(),
            "optimizer_state_dict": self.optimizer.state_dict(),
            "epsilon": self.epsilon,
            "step_count": self.updates,
        }
        torch.save(checkpoint, path)

    def load(self, path: str | Path) -> None:
        """Continue from a checkpoint of `save` or of the old system."""
        checkpoint = read_checkpoint(path)
        self.network.load_state_dict(named_alike(self.network, checkpoint["model_state_dict"]))
        self.target.load_state_dict(named_alike(self.target, checkpoint["target_model_state_dict"]))
        self.optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
        for group in self.optimizer.param_groups:
            group["fused"], group["foreach"] = True, None  # an old choice would be taken over, and is slower
        self.epsilon, self.updates = float(checkpoint["epsilon"]), int(checkpoint["step_count"])
