"""Parallelised Q-networks (`PQN`)."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer, RAdam

from datamodules.core.phase import Phase
from datamodules.core.pytree import tree_map
from datamodules.core.types import MetricVector, Obs, PolicyInput, PolicyOutput, Rollout, SpaceSpec, State
from modules.base.algorithm import Algorithm
from modules.base.checks import check_values
from modules.base.hparams import save_plain_hyperparameters
from modules.base.sequences import gather_states, next_values
from modules.dqn.epsilon_greedy import EpsilonGreedy
from modules.functional.policy_gradient import masked_mean
from modules.functional.returns import gae
from modules.functional.sampling import MASKED_LOGIT
from modules.functional.schedules import Schedule
from modules.networks.base import Network, no_episode_start
from modules.networks.heads.q_value import QHead, QNetwork
from modules.networks.mlp import MLP
from modules.networks.multi_input import make_network, obs_shape_of
from modules.optim.optimizer_group import make_optimizer

METRICS = ("td_loss", "q_mean", "grad_norm")


class PQNBatch(NamedTuple):
    """Transitions and the targets of their action values.

    Columns are `[N, ...]`, or `[T, B, ...]` in whole sequences if the network is recurrent. `valid` is None if all
    transitions count, `episode_start` without sequences.

    state: the network's `[B, ...]` before t=0, when the rollout began.
    """

    obs: Obs
    action: Tensor
    target: Tensor
    valid: Tensor | None
    episode_start: Tensor | None
    state: State

    @property
    def size(self) -> int:
        """Return the number of transitions, or of sequences, that minibatches are drawn from."""
        return self.target.shape[0 if self.episode_start is None else 1]

    def rows(self, index: Tensor) -> "PQNBatch":
        """Return the transitions, or the sequences, at `index`."""
        dimension = 0 if self.episode_start is None else 1
        selected = tree_map(lambda column: column.index_select(dimension, index), self._replace(state={}))
        return selected._replace(state={name: leaf.index_select(0, index) for name, leaf in self.state.items()})


class PQN(Algorithm):
    """Q-learning from many parallel environments, without replay (Gallici et al. 2025, arXiv:2407.04811, algorithm 1).

    There is neither a replay buffer nor a target network: targets are lambda-returns of the current rollout.

    G_t = r_t + gamma (1 - terminated_t) (lambda G_{t+1} + (1 - lambda) max_a Q(s_{t+1}, a))

    A feed-forward network must normalise its layers (`layer_norm: true`) for stability; recurrent networks have no such
    argument. A truncated step bootstraps from max_a Q of the true last observation. Targets are computed once a
    rollout, as in the authors' code.

    With a recurrent network minibatches are whole sequences of a rollout, unrolled again from the stored state with the
    resets inside; the state is carried from one rollout to the next.

    Args:
        spaces: observation and action space, Discrete actions; on the command line it comes from the data.
        network: makes a torso from `obs_shape` (a class_path on the command line).
        dueling: separate value and advantage outputs, Q = V + A - mean A.
        optimizer: makes the optimizer from the parameters; its learning rate is `learning_rate`.
        learning_rate: initial learning rate of the optimizer.
        learning_rate_schedule: constant rate, or a decay to 0 over the run: linear or cosine.
        gamma: discount per environment step, in [0, 1].
        q_lambda: lambda of the returns, in [0, 1]: 0 is one-step, 1 is Monte Carlo.
        update_epochs: epochs over each rollout.
        num_minibatches: minibatches per epoch; must divide the rollout's transitions (its rows, if the network is
            recurrent).
        epsilon_start: probability of a random action at the start.
        epsilon_end: probability of a random action after `epsilon_decay_steps`.
        epsilon_decay_steps: environment steps, all ranks together, of the linear decay of epsilon.
        max_grad_norm: maximum global norm of the gradient; larger ones are scaled down.

    Raises: ConfigurationError for values out of range.
    """

    action_types = ("discrete",)

    def __init__(
        self,
        spaces: SpaceSpec,
        network: Callable[[tuple[int, ...]], nn.Module] = lambda shape: MLP(shape, layer_norm=True),
        dueling: bool = False,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = RAdam,
        learning_rate: float = 2.5e-4,
        learning_rate_schedule: Schedule = "constant",
        gamma: float = 0.99,
        q_lambda: float = 0.65,
        update_epochs: int = 2,
        num_minibatches: int = 32,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.05,
        epsilon_decay_steps: int = 100_000,
        max_grad_norm: float = 10.0,
    ):
        super().__init__(spaces)
        save_plain_hyperparameters(self)
        check_values(gamma=gamma, q_lambda=q_lambda, update_epochs=update_epochs, num_minibatches=num_minibatches)
        check_values(learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        torso = self.with_obs_scale(make_network(network, obs_shape_of(spaces)))
        self.values = QNetwork(torso, QHead(cast(Network, torso).features, spaces["action_sizes"][0], dueling))
        self.recurrent = self.values.recurrent
        self.optimizer, self.max_grad_norm, self.gamma, self.q_lambda = optimizer, max_grad_norm, gamma, q_lambda
        self.learning_rate, self.learning_rate_schedule = learning_rate, learning_rate_schedule
        self.update_epochs, self.num_minibatches = update_epochs, num_minibatches
        self.explore = EpsilonGreedy(spaces["action_sizes"][0], epsilon_start, epsilon_end, epsilon_decay_steps)

    def initial_state(self, batch: int) -> State:
        """Return the network's state at the start of an episode."""
        return self.values.initial_state(batch)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the noise of epsilon-greedy exploration."""
        return self.explore.noise(shape, generator)

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Return the greedy allowed action, or with probability epsilon a random allowed one.

        The greedy action's value is an extra.
        """
        q, state = self.q_values(inputs.obs, inputs.state, inputs.episode_start)
        value, best = mask_q_values(q, inputs.action_mask).max(-1)
        if greedy or noise is None:
            return PolicyOutput(best, {}), state
        return PolicyOutput(self.explore(best, noise, inputs.action_mask), {"value": value}), state

    def action_details(self, inputs: PolicyInput, output: PolicyOutput, state: State) -> dict[str, Tensor]:
        """Return the action values, and the largest allowed one as the value."""
        q, _ = self.q_values(inputs.obs, inputs.state, inputs.episode_start)
        return {"value": mask_q_values(q, inputs.action_mask).amax(-1), "q_values": q}

    def q_values(self, obs: Obs, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        """Return the action values `[N, actions]` of observations `[N, *obs]`, and the next state."""
        output, state = self.values.step(obs, state, episode_start)
        return self.values.head.mean(output), state

    def prepare(self, rollout: Rollout) -> PQNBatch:
        """Compute lambda-returns of a rollout, flattened to T x B transitions unless recurrent."""
        value = rollout.extras["value"]
        next_value = self.next_value(rollout, value)
        flags = (rollout.terminated, rollout.truncated)
        target = gae(rollout.reward, value, next_value, *flags, gamma=self.gamma, lam=self.q_lambda).target
        obs, valid = (
            tree_map(lambda part: part[:-1], rollout.obs),
            rollout.valid if rollout.has_invalid_steps else None,
        )
        if self.recurrent:
            return PQNBatch(obs, rollout.action, target, valid, rollout.episode_start, rollout.state)
        batch = PQNBatch(obs, rollout.action, target, valid, None, {})
        return tree_map(lambda column: column.flatten(0, 1), batch)

    def next_value(self, rollout: Rollout, value: Tensor) -> Tensor:
        """Return max_a Q(s_{t+1}, a) `[T, B]` before any reset, of the true last observation where truncated.

        In the rollout's last observation and in true last ones all actions count as allowed.
        """
        if self.recurrent:
            ended = rollout.terminated[-1:] | rollout.truncated[-1:]
            episode_start = torch.cat([rollout.episode_start, ended])
            output, states = self.values.unroll(rollout.obs, rollout.state, episode_start)
            last, before = self.values.head.mean(output[-1]).amax(-1), gather_states(states, rollout.final_step)
        else:
            last, before = self.greedy_value(tree_map(lambda part: part[-1], rollout.obs), {}), {}
        return next_values(rollout, torch.cat([value, last.unsqueeze(0)]), partial(self.greedy_value, state=before))

    def greedy_value(self, obs: Obs, state: State) -> Tensor:
        """Return max_a Q(s, a) `[N]` over all actions, given the network's state `[N, ...]` before the observations."""
        return self.q_values(obs, state, no_episode_start(obs))[0].amax(-1)

    def update(self, batch: PQNBatch) -> MetricVector:
        """Train `update_epochs` epochs on the batch; return the means of the metrics over them."""
        metrics = []
        for _ in range(self.update_epochs):
            order = torch.randperm(batch.size, generator=self.minibatch_generator, device=self.device)
            metrics.append(self.phases["update"](batch, order.view(self.num_minibatches, -1)).clone())
        self.updates += self.update_epochs * self.num_minibatches
        return MetricVector(METRICS, torch.stack(metrics).mean(0))

    def train_epoch(self, batch: PQNBatch, order: Tensor) -> Tensor:
        """Take one optimizer step on each minibatch; return means of the metrics."""
        return torch.stack([self.train_minibatch(batch.rows(rows)) for rows in order.unbind()]).mean(0)

    def train_minibatch(self, batch: PQNBatch) -> Tensor:
        """Take one optimizer step on one minibatch; return its metrics."""
        loss, value = self.loss(batch)
        norm = self.step(loss, self.raw_optimizers[0], self.max_grad_norm)
        return torch.stack([loss, value, norm]).detach()

    def loss(self, batch: PQNBatch) -> tuple[Tensor, Tensor]:
        """Return half the squared error of the taken actions' values, and their mean."""
        if batch.episode_start is None:
            output = self.values(batch.obs)
        else:
            output, _ = self.values.unroll(batch.obs, batch.state, batch.episode_start)
        values = self.values.head.mean(output)
        value = values.gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)
        error = (value - batch.target).square()
        return 0.5 * masked_mean(error, batch.valid), masked_mean(value, batch.valid)

    def end_iteration(self, collected: Any, metrics: MetricVector | None) -> None:
        """Count the iteration, then set epsilon for the next one."""
        super().end_iteration(collected, metrics)
        self.explore.update_(self.env_steps)

    def on_train_start(self) -> None:
        """Set epsilon for the env steps taken so far."""
        super().on_train_start()
        self.explore.update_(self.env_steps)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Set epsilon for the env steps taken so far, for evaluations that sample without training."""
        super().on_load_checkpoint(checkpoint)
        self.explore.update_(self.env_steps)

    def update_schedules(self) -> None:
        """Set the learning rate of the iteration."""
        self.schedule_learning_rates_()

    def extra_metrics(self) -> dict[str, float | Tensor]:
        """Return epsilon and the number of updates."""
        return {"train/epsilon": self.explore.epsilon, "train/updates": self.updates}

    def configure_phases(self) -> dict[str, Phase[Any]]:
        """Return the phases `prepare` and `update`, the latter one epoch."""
        parts = [(self, "loss")]
        update = Phase(
            self.train_epoch, self.device, name="update", compile_targets=parts, mutated_tensors=self.mutated_tensors
        )
        return {"prepare": Phase(self.prepare, self.device, name="prepare"), "update": update}

    def build_optimizers(self) -> list[Optimizer]:
        """Return one optimizer over all parameters."""
        return [make_optimizer(self.optimizer, self.parameters())]


def mask_q_values(value: Tensor, mask: Tensor | None) -> Tensor:
    """Return action values `[N, actions]`, those of masked actions -1e8."""
    return value if mask is None else value.masked_fill(~mask, MASKED_LOGIT)
