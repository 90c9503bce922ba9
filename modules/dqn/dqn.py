"""Deep Q-networks (`DQN`) with a replay buffer."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from datamodules.core.phase import Phase
from datamodules.core.pytree import add_prefix, tree_map, tree_unbind
from datamodules.core.types import (
    STATE,
    MetricVector,
    Obs,
    OffPolicyIteration,
    PolicyInput,
    PolicyOutput,
    SequenceContext,
    SpaceSpec,
    State,
)
from modules.base.algorithm import Algorithm, Collected
from modules.base.checks import check_values
from modules.base.hparams import save_plain_hyperparameters
from modules.base.sequences import learned_features, next_features
from modules.dqn.epsilon_greedy import EpsilonGreedy
from modules.functional.policy_gradient import masked_mean
from modules.functional.q_learning import sequence_priority
from modules.functional.returns import truncated_n_step_return
from modules.functional.sampling import MASKED_LOGIT
from modules.functional.schedules import Schedule
from modules.networks.base import Network, call_without_hooks
from modules.networks.heads.q_value import QHead, QNetwork
from modules.networks.mlp import MLP
from modules.networks.multi_input import make_network, obs_shape_of
from modules.optim.optimizer_group import make_optimizer
from modules.optim.target_network import polyak_update_

METRICS = ("td_loss", "q_mean", "td_error", "grad_norm")


class DQNBatch(NamedTuple):
    """U minibatches of N windows, `[U, N, ...]`, or one of them, `[N, ...]`; `L', N` instead of N with sequences.

    n_step_return, discount: discounted rewards of the window, and the factor of the bootstrapped value.
    next_outputs: outputs of the target network for `next_obs` `[..., actions, K]`, if it is constant during the
        updates; else None.
    next_mask: actions allowed in `next_obs`; None allows all.
    weight: of the entry in the loss.
    target: target of the action's outputs, `[..., K]`, if it is known before the updates; else None.
    context: sequences of the windows, for a recurrent network; else None.
    """

    obs: Obs
    action: Tensor
    n_step_return: Tensor
    discount: Tensor
    next_obs: Obs
    next_mask: Tensor | None
    next_outputs: Tensor | None
    weight: Tensor
    target: Tensor | None = None
    context: SequenceContext | None = None

    def minibatches(self) -> list["DQNBatch"]:
        """Return the U minibatches."""
        columns = [[None] * len(self.weight) if column is None else tree_unbind(column) for column in self]
        return [DQNBatch(*parts) for parts in zip(*columns, strict=True)]


class DQN(Algorithm):
    """Deep Q-learning from a replay buffer (Mnih et al. 2015, doi:10.1038/nature14236, algorithm 1).

    y = R + discount Q'(s', argmax_a Q''(s', a)),   Q'' the online network if `double_q`, else the target network

    1. n-step windows, priorities, replay ratio and learning starts are settings of the data (`ReplayDataModule`).
    2. `double_q`: the online network selects the next action, the target network evaluates it (van Hasselt et al. 2016,
       arXiv:1509.06461).
    3. `head`: scalar, scalar on a compressed scale, categorical or quantiles, each with or without `dueling`
       (`modules.networks.heads.q_value`). Huber loss.
    4. The target network is copied between iterations, once `target_interval` updates have passed since the last copy,
       or updated by Polyak averaging with `tau` after every update: parameters and buffers
       (`modules.optim.target_network.polyak_update_`).
    5. Epsilon-greedy, linear in env steps; random until learning starts, greedy in evaluation. Masked actions are
       neither selected nor bootstrapped from.
    6. A truncated window bootstraps from its true last observation, a terminated one does not bootstrap.
    7. Importance weights multiply the loss; priorities are updated with every entry's absolute error after the
       iteration.
    8. A recurrent network learns from sequences (`data.sequence_length`), from the state stored when they were
       collected, after a burn-in (`data.burn_in`) whose outputs give no loss (Kapturowski et al. 2019, "Recurrent
       Experience Replay in Distributed Reinforcement Learning"). The priority of a sequence is 0.9 times the largest
       plus 0.1 times the mean error. Their rescaling of values is the head
       `RescaledQHead`.

    Args:
        spaces: observation and action space, Discrete actions; on the command line it comes from the data.
        network: makes a torso from `obs_shape` (a class_path on the command line).
        head: makes a Q head from the number of features and of actions.
        optimizer: makes the optimizer from the parameters; its learning rate is `learning_rate`.
        learning_rate: initial learning rate of the optimizer.
        learning_rate_schedule: constant rate, or a decay to 0 over the run: linear or cosine.
        gamma: discount per environment step, in [0, 1].
        double_q: double Q-learning: the online network selects the next action, the target network evaluates it.
        target_interval: minimum number of updates between two copies to the target network; unused with `tau`.
        tau: Polyak averaging coefficient of the target network per update, in (0, 1]; null copies instead.
        epsilon_start: probability of a random action at the start.
        epsilon_end: probability of a random action after `epsilon_decay_steps`.
        epsilon_decay_steps: environment steps, all ranks together, of the linear decay of epsilon.
        max_grad_norm: maximum global norm of the gradient; larger ones are scaled down.

    Raises: ConfigurationError for values out of range.
    """

    off_policy = True
    action_types = ("discrete",)
    always_eval = ("target",)

    def __init__(
        self,
        spaces: SpaceSpec,
        network: Callable[[tuple[int, ...]], nn.Module] = MLP,
        head: Callable[[int, int], QHead] = QHead,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = lambda params: Adam(params, fused=True),
        learning_rate: float = 3e-4,
        learning_rate_schedule: Schedule = "constant",
        gamma: float = 0.99,
        double_q: bool = True,
        target_interval: int = 1_000,
        tau: float | None = None,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.05,
        epsilon_decay_steps: int = 10_000,
        max_grad_norm: float = 10.0,
    ):
        super().__init__(spaces)
        save_plain_hyperparameters(self)
        check_values(gamma=gamma, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        check_values(target_interval=target_interval, tau=1.0 if tau is None else tau)
        self.optimizer, self.max_grad_norm, self.gamma, self.double_q = optimizer, max_grad_norm, gamma, double_q
        self.learning_rate, self.learning_rate_schedule = learning_rate, learning_rate_schedule
        self.target_interval, self.tau = target_interval, tau
        self.explore = EpsilonGreedy(spaces["action_sizes"][0], epsilon_start, epsilon_end, epsilon_decay_steps)
        self.last_target_sync = 0
        self.online, self.target = (self.make_network(network, head) for _ in range(2))
        self.target.load_state_dict(self.online.state_dict())
        polyak_update_(self.target, self.online, 1.0)  # for buffers that are not part of the state dict
        self.target.requires_grad_(False)
        self.recurrent = self.online.recurrent

    def make_network(self, network: Callable[[tuple[int, ...]], nn.Module], head: Callable[[int, int], QHead]) -> Any:
        """Create a torso with a Q head."""
        torso = self.with_obs_scale(make_network(network, obs_shape_of(self.spaces)))
        features = cast(Network, torso).features
        return QNetwork(torso, head(features, self.spaces["action_sizes"][0]))

    def initial_state(self, batch: int) -> State:
        """Return the network's state at the start of an episode."""
        return self.online.initial_state(batch)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the noise of epsilon-greedy exploration."""
        return self.explore.noise(shape, generator)

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Return the greedy allowed action, or with probability epsilon a random allowed one.

        The state before the step is an extra, under names that begin with `STATE`.
        """
        output, state = self.step_network(inputs)
        best = self.greedy_action(output, inputs.action_mask)
        if greedy or noise is None:
            return PolicyOutput(best, {}), state
        extras = add_prefix(STATE, inputs.state)
        return PolicyOutput(call_without_hooks(self.explore, best, noise, inputs.action_mask), extras), state

    def action_details(self, inputs: PolicyInput, output: PolicyOutput, state: State) -> dict[str, Tensor]:
        """Return the action values, and the largest allowed one as the value."""
        q = self.online.head.mean(self.step_network(inputs)[0])
        allowed = q if inputs.action_mask is None else q.masked_fill(~inputs.action_mask, MASKED_LOGIT)
        return {"value": allowed.amax(-1), "q_values": q}

    def step_network(self, inputs: PolicyInput) -> tuple[Any, State]:
        """Return the outputs `[B, actions, K]` of the online network, and its next state."""
        if self.recurrent:
            return self.online.step(inputs.obs, inputs.state, inputs.episode_start)
        return self.q_outputs(self.online, inputs.obs), inputs.state

    def q_outputs(self, network: nn.Module, obs: Obs) -> Any:
        """Return the outputs `[N, actions, K]` of the online or the target network, where no gradient is needed."""
        return network(obs)

    def greedy_action(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        """Return the allowed action of the largest value, `[...]`."""
        value = self.online.head.mean(outputs)
        return (value if mask is None else value.masked_fill(~mask, MASKED_LOGIT)).argmax(-1)

    def prepare(self, collected: OffPolicyIteration) -> DQNBatch:
        """Compute n-step returns, discounts and, if the target network is constant during the updates, its outputs."""
        assert collected.transitions is not None
        transitions = collected.transitions
        rewards = (transitions.reward, transitions.num_steps, transitions.terminated)
        n_step_return, discount = truncated_n_step_return(*rewards, gamma=self.gamma)
        next_outputs = None
        if self.tau is None and not self.recurrent:
            next_obs = tree_map(lambda part: part.flatten(0, 1), transitions.next_obs)
            next_outputs = self.q_outputs(self.target, next_obs).unflatten(0, n_step_return.shape)
        batch = DQNBatch(
            obs=transitions.obs,
            action=transitions.action,
            n_step_return=n_step_return,
            discount=discount,
            next_obs=transitions.next_obs,
            next_mask=transitions.next_masks.get("action_mask"),
            next_outputs=next_outputs,
            weight=transitions.loss_weight,
            context=transitions.context,
        )
        targets_are_constant = next_outputs is not None and not self.double_q
        return batch._replace(target=self.targets(batch)) if targets_are_constant else batch

    def update(self, batch: DQNBatch) -> MetricVector:
        """Take an optimizer step on every minibatch, then copy to the target network if due."""
        metrics, error = self.phases["update"](batch)
        self.updates += len(batch.weight)
        self.td_errors = sequence_priority(error, (batch.weight > 0).float()) if self.recurrent else error
        if self.tau is None and self.updates - self.last_target_sync >= self.target_interval:
            self.last_target_sync = self.updates
            self.polyak_update_(1.0)
        return MetricVector(METRICS, metrics)

    def run_updates(self, batch: DQNBatch) -> tuple[Tensor, Tensor]:
        """Take all updates of an iteration; return means of `METRICS`, and absolute errors `[U, N]` or `[U, L', N]`."""
        loss, value, error, norm = self.train_minibatches(batch)
        return torch.stack([loss.mean(), value.mean(), masked_mean(error, batch.weight > 0), norm.mean()]), error

    def train_minibatches(self, batch: DQNBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Train on every minibatch; return losses `[U]`, values and absolute errors `[U, N]`, gradient norms `[U]`."""
        steps = [self.train_minibatch(minibatch) for minibatch in batch.minibatches()]
        loss, outputs, error, norm = (torch.stack(each) for each in zip(*steps, strict=True))
        return loss, self.online.head.mean(outputs.unsqueeze(-2)), error, norm

    def train_minibatch(self, batch: DQNBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Take an optimizer step; return loss, outputs of the taken actions `[N, K]`, errors `[N]`, gradient norm."""
        loss, outputs, error = self.loss(batch)
        norm = self.step(loss, self.raw_optimizers[0], self.max_grad_norm)
        self.update_target_()
        return loss.detach(), outputs, error, norm

    def loss(self, batch: DQNBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, the outputs of the taken actions `[N, K]`, and absolute errors `[N]`."""
        outputs = gather_action(self.outputs(batch), batch.action)
        loss, error = self.online.head.loss(outputs, self.targets(batch) if batch.target is None else batch.target)
        return (loss * batch.weight).mean(), outputs.detach(), error

    def outputs(self, batch: DQNBatch) -> Tensor:
        """Return the outputs `[..., actions, K]` of the online network, with gradient."""
        if batch.context is None:
            return self.online(batch.obs)
        return call_without_hooks(self.online.head, learned_features(self.online.torso, batch.context))

    @torch.no_grad()
    def targets(self, batch: DQNBatch) -> Tensor:
        """Return the targets of the taken actions' outputs, `[..., K]`."""
        next_outputs = self.next_outputs(self.target, batch) if batch.next_outputs is None else batch.next_outputs
        selecting_outputs = self.next_outputs(self.online, batch) if self.double_q else next_outputs
        next_action = self.greedy_action(selecting_outputs, batch.next_mask)
        return self.online.head.target(gather_action(next_outputs, next_action), batch.n_step_return, batch.discount)

    def next_outputs(self, network: Any, batch: DQNBatch) -> Tensor:
        """Return a network's outputs `[..., actions, K]` of the observations after windows."""
        if batch.context is None:
            return self.q_outputs(network, batch.next_obs)
        return call_without_hooks(network.head, next_features(network.torso, batch.context, batch.next_obs))

    def update_target_(self) -> None:
        """Update the target network by Polyak averaging, if `tau` is set."""
        if self.tau is not None:
            self.polyak_update_(self.tau)

    def polyak_update_(self, tau: float) -> None:
        """Set the target network's parameters and buffers to (1 - tau) target + tau online."""
        polyak_update_(self.target, self.online, tau)

    def after_update(self, collected: OffPolicyIteration) -> None:
        """Update the priorities with the errors of the update."""
        if collected.transitions is not None:
            collected.replay.update_priorities(collected.transitions.indices, self.td_errors)

    def end_iteration(self, collected: Collected, metrics: MetricVector | None) -> None:
        """Count the iteration, then set epsilon for the next one."""
        super().end_iteration(collected, metrics)
        self.explore.update_(self.env_steps, self.data.learning_starts)

    def update_schedules(self) -> None:
        """Set the learning rate of the iteration."""
        self.schedule_learning_rates_()

    def extra_metrics(self) -> dict[str, float | Tensor]:
        """Return epsilon and the number of updates."""
        return {"train/epsilon": self.explore.epsilon, "train/updates": self.updates}

    def configure_phases(self) -> dict[str, Phase[Any]]:
        """Return the phases `prepare` and `update`, the latter all updates of an iteration."""
        update = Phase(
            self.run_updates,
            self.device,
            name="update",
            compile_targets=[(self, "loss")],
            mutated_tensors=self.mutated_tensors,
        )
        return {"prepare": Phase(self.prepare, self.device, name="prepare"), "update": update}

    def on_train_start(self) -> None:
        """Set epsilon for the env steps taken so far."""
        super().on_train_start()
        self.explore.update_(self.env_steps, self.data.learning_starts)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Set epsilon for the env steps taken so far, for evaluations that sample without training."""
        super().on_load_checkpoint(checkpoint)
        self.explore.update_(self.env_steps)

    def build_optimizers(self) -> list[Optimizer]:
        """Return one optimizer over the online network."""
        return [make_optimizer(self.optimizer, self.online.parameters())]

    def rank_state_dict(self) -> dict[str, Any]:
        """Add the update count at the last copy of the target network."""
        return super().rank_state_dict() | {"last_target_sync": self.last_target_sync}

    def load_rank_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state saved by `rank_state_dict`."""
        super().load_rank_state_dict(state)
        self.last_target_sync = state["last_target_sync"]


def gather_action(outputs: Tensor, action: Tensor) -> Tensor:
    """Return the outputs `[..., K]` of actions `[...]` among `[..., actions, K]`."""
    index = action[..., None, None].expand(*action.shape, 1, outputs.shape[-1])
    return outputs.gather(-2, index).squeeze(-2)
