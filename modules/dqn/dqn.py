"""Deep Q-networks."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from datamodules.core.phase import Joint
from datamodules.core.types import Decision, Experience, Rollout, Scalars, Spaces, State
from modules.base.algorithm import Algorithm, Collected
from modules.base.checks import check_memoryless, check_values
from modules.base.hparams import keep_hyperparameters
from modules.dqn.epsilon_greedy import EpsilonGreedy
from modules.functional.policy_gradient import masked_mean
from modules.functional.returns import window_return
from modules.functional.sampling import MASKED
from modules.functional.schedules import Schedule
from modules.functional.soft_actor_critic import follow_network_
from modules.manual_backward.dqn import WrittenOut, can_be_written_out
from modules.networks.base import Network, applied
from modules.networks.heads.q_value import QHead, QNetwork
from modules.networks.mlp import MLP
from modules.optim.optimizer_group import make_optimizer

METRICS = ("td_loss", "q_mean", "td_error", "grad_norm")


class DQNBatch(NamedTuple):
    """U minibatches of N windows, `[U, N, ...]`, or one of them, `[N, ...]`.

    return_, discount: rewards of the window, and the factor of what follows.
    following: of a network that stays as it is meanwhile, the numbers of `next_obs` `[..., actions, K]`; else None.
    next_mask: actions allowed in `next_obs`; None allows all.
    weight: of the entry in the loss.   entry: where the replay has it.
    target: what the numbers of the actions should be, `[..., K]`, where that is known before the updates; else None.
    """

    obs: Tensor
    action: Tensor
    return_: Tensor
    discount: Tensor
    next_obs: Tensor
    next_mask: Tensor | None
    following: Tensor | None
    weight: Tensor
    entry: Tensor
    target: Tensor | None = None

    def minibatches(self) -> list["DQNBatch"]:
        """The U minibatches."""
        columns = [[None] * len(self.weight) if column is None else column.unbind() for column in self]
        return [DQNBatch(*parts) for parts in zip(*columns, strict=True)]


class DQN(Algorithm):
    """Deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236, algorithm 1) from windows of a replay.

    y = R + discount Q'(s', argmax_a Q''(s', a)),   Q'' the online network if `double`, else the target network

    1. Windows of n steps, priorities, how much is replayed and when learning starts are the data's (`ReplayData`).
    2. `double`: the online network chooses, the target network judges (van Hasselt et al. 2016, arXiv:1509.06461).
    3. `head`: plain, categorical or quantiles, each `dueling` or not (`modules.networks.heads.q_value`). Huber loss.
    4. The target network is copied between iterations, when `target_interval` updates have passed since the last copy,
       or follows every update by `tau`: parameters and buffers (`modules.functional.soft_actor_critic.follow_network_`).
    5. Epsilon-greedy, linear in env steps; random until learning starts, greedy in evaluation. Masked actions are
       neither tried nor bootstrapped from.
    6. A truncated window bootstraps from its true last observation, a terminated one from nothing.
    7. Importance weights multiply the loss; the replay learns every entry's absolute error after the iteration.

    Args:
        spaces: what the environment shows and takes, Discrete actions; on the command line it comes from the data.
        network: makes a torso from `obs_shape` (a class_path on the command line).
        head: makes action values from the number of features and of actions.
        optimizer: makes the optimizer from the parameters; its learning rate is `learning_rate`.
        learning_rate: of the optimizer, at the start.
        learning_rate_schedule: constant, or a decay to 0 over the run: linear or cosine.
        gamma: discount per environment step, in [0, 1].
        double: the online network chooses the next action, the target network judges it.
        target_interval: updates between two copies to the target network, at least.
        tau: share by which the target network follows in every update, in (0, 1]; null copies instead.
        epsilon_start: share of random actions at the start.
        epsilon: share of random actions in the end.
        epsilon_steps: environment steps, all ranks together, from the one to the other.
        max_grad_norm: bound on the gradient's global norm.

    Raises: UsageError for values that cannot be.
    """

    off_policy = True
    action_kinds = ("discrete",)
    always_eval = ("target",)

    def __init__(
        self,
        spaces: Spaces,
        network: Callable[[tuple[int, ...]], nn.Module] = MLP,
        head: Callable[[int, int], QHead] = QHead,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = lambda params: Adam(params, fused=True),
        learning_rate: float = 3e-4,
        learning_rate_schedule: Schedule = "constant",
        gamma: float = 0.99,
        double: bool = True,
        target_interval: int = 1_000,
        tau: float | None = None,
        epsilon_start: float = 1.0,
        epsilon: float = 0.05,
        epsilon_steps: int = 10_000,
        max_grad_norm: float = 10.0,
    ):
        super().__init__(spaces)
        keep_hyperparameters(self)
        check_values(gamma=gamma, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        check_values(target_interval=target_interval, tau=1.0 if tau is None else tau)
        self.optimizer, self.max_grad_norm, self.gamma, self.online_chooses = optimizer, max_grad_norm, gamma, double
        self.learning_rate, self.learning_rate_schedule = learning_rate, learning_rate_schedule
        self.target_interval, self.tau = target_interval, tau
        self.explore = EpsilonGreedy(spaces["action_sizes"][0], epsilon_start, epsilon, epsilon_steps)
        self.copied = 0
        self.online, self.target = (self.make_network(network, head) for _ in range(2))
        self.target.load_state_dict(self.online.state_dict())
        follow_network_(self.target, self.online, 1.0)  # for buffers that are not part of the state dict
        self.target.requires_grad_(False)

    def make_network(self, network: Callable[[tuple[int, ...]], nn.Module], head: Callable[[int, int], QHead]) -> Any:
        """A torso and the head on it.

        Raises: UsageError for a network that remembers.
        """
        torso = self.with_obs_scale(network(self.spaces["obs_shape"]))
        check_memoryless(torso, "DQN")
        features = cast(Network, torso).features
        return QNetwork(torso, head(features, self.spaces["action_sizes"][0]))

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """What exploration draws from."""
        return self.explore.noise(shape, generator)

    def act(
        self,
        obs: Tensor,
        state: State,
        reset: Tensor,
        *,
        mask: Tensor | None = None,
        noise: Tensor | None = None,
        greedy: bool = False,
    ) -> tuple[Decision, State]:
        """The best allowed action, or any allowed one with probability epsilon."""
        best = self.best(self.networks.online(obs), mask)
        if greedy or noise is None:
            return Decision(best, {}), state
        return Decision(applied(self.explore, best, noise, mask), {}), state

    @property
    def networks(self) -> Any:
        """Who has `online` and `target`, for what takes no gradient: this, or the shorter form of it."""
        return self.written_out or self

    def best(self, numbers: Tensor, mask: Tensor | None) -> Tensor:
        """The allowed action of the largest value, `[...]`."""
        value = self.online.head.mean(numbers)
        return (value if mask is None else value.masked_fill(~mask, MASKED)).argmax(-1)

    def prepare(self, experience: Experience) -> DQNBatch:
        """Returns, discounts, and what the target network says, if it stays as it is meanwhile."""
        assert experience.transitions is not None
        found = experience.transitions
        return_, discount = window_return(found.reward, found.length, found.terminated, gamma=self.gamma)
        following = None
        if self.tau is None:
            following = self.networks.target(found.next_obs.flatten(0, 1)).unflatten(0, return_.shape)
        mask = found.next_masks.get("action_mask")
        columns = (found.obs, found.action, return_, discount, found.next_obs, mask, following)
        batch = DQNBatch(*columns, found.weight, found.entry)
        known = following is not None and not self.online_chooses
        return batch._replace(target=self.targets(batch)) if known else batch

    def update(self, batch: DQNBatch) -> Scalars:
        """An optimizer step on every minibatch; the replay then learns how wrong each entry was."""
        measured, error = self.joints["update"](batch)
        self.updates += len(batch.weight)
        self.replay.reprioritize_(batch.entry, error)
        if self.tau is None and self.updates - self.copied >= self.target_interval:
            self.copied = self.updates
            self.follow_(1.0)
        return Scalars(METRICS, measured)

    def learn_all(self, batch: DQNBatch) -> tuple[Tensor, Tensor]:
        """All updates of an iteration: means of `METRICS`, and absolute errors `[U, N]`."""
        if self.written_out is not None:
            return self.written_out.learn_all(batch)
        steps = [self.learn(minibatch) for minibatch in batch.minibatches()]
        loss, numbers, error, norm = (torch.stack(each) for each in zip(*steps, strict=True))
        value = self.online.head.mean(numbers.unsqueeze(-2))
        return torch.stack([loss.mean(), value.mean(), masked_mean(error, batch.weight > 0), norm.mean()]), error

    def learn(self, batch: DQNBatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """One optimizer step: the loss, the numbers of what was done `[N, K]`, absolute errors `[N]`, gradient norm."""
        loss, numbers, error = self.loss(batch)
        norm = self.step(loss, self.raw_optimizers[0], self.max_grad_norm)
        self.follow_update_()
        return loss.detach(), numbers, error, norm

    def loss(self, batch: DQNBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The objective to descend, the numbers of what was done `[N, K]`, and absolute errors `[N]`."""
        numbers = taken(self.online(batch.obs), batch.action)
        each, error = self.online.head.loss(numbers, self.targets(batch) if batch.target is None else batch.target)
        return (each * batch.weight).mean(), numbers.detach(), error

    @torch.no_grad()
    def targets(self, batch: DQNBatch) -> Tensor:
        """What the numbers of the actions taken should be, `[..., K]`."""
        following = self.networks.target(batch.next_obs) if batch.following is None else batch.following
        chooser = self.networks.online(batch.next_obs) if self.online_chooses else following
        following = taken(following, self.best(chooser, batch.next_mask))
        return self.online.head.target(following, batch.return_, batch.discount)

    def follow_update_(self) -> None:
        """What the target network does after every update."""
        if self.tau is not None:
            self.follow_(self.tau)

    def follow_(self, share: float) -> None:
        """Move the target network's parameters and buffers a share of the way to the online network's."""
        if self.written_out is None:
            follow_network_(self.target, self.online, share)
        else:
            self.written_out.follow_(share)

    def iterate(self, collected: Collected) -> Scalars | None:
        """As every algorithm, on transitions of this replay."""
        self.replay = cast(Experience, collected).replay
        return super().iterate(collected)

    def tick(self, collected: Rollout | Experience, metrics: Scalars | None) -> None:
        """Count the iteration, then set how much the next one explores."""
        super().tick(collected, metrics)
        self.explore.set_(self.env_steps, self.data.learning_starts)

    def schedule_(self) -> None:
        """The learning rate of the iteration that begins."""
        self.schedule_learning_rates_()

    def measured(self) -> dict[str, float | Tensor]:
        """How much the policy explores, and updates so far."""
        return {"train/epsilon": self.explore.now, "train/updates": self.updates}

    def make_joints(self) -> dict[str, Joint[Any]]:
        """Prepare, and all updates of an iteration."""
        parts = [(self, "loss")] if self.written_out is None else []
        update = Joint(self.learn_all, self.device, name="update", parts=parts, owned=self.owned_tensors)
        return {"prepare": Joint(self.prepare, self.device, name="prepare"), "update": update}

    def write_out(self) -> WrittenOut | None:
        """The networks and all updates, for plain ones on a CPU."""
        return WrittenOut(self) if type(self) is DQN and can_be_written_out(self) else None

    def on_train_start(self) -> None:
        """Explore as much as the env steps so far say."""
        super().on_train_start()
        self.explore.set_(self.env_steps, self.data.learning_starts)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Explore as much as the env steps so far say, also where an evaluation samples and nothing is trained."""
        super().on_load_checkpoint(checkpoint)
        self.explore.set_(self.env_steps)

    def make_optimizers(self) -> list[Optimizer]:
        """One, over the online network."""
        return [make_optimizer(self.optimizer, self.online.parameters())]

    def rank_state(self) -> dict[str, Any]:
        """Adds when the target network was copied."""
        return super().rank_state() | {"copied": self.copied}

    def load_rank_state(self, state: dict[str, Any]) -> None:
        """Continue from `rank_state`."""
        super().load_rank_state(state)
        self.copied = state["copied"]


def taken(numbers: Tensor, action: Tensor) -> Tensor:
    """The numbers `[..., K]` of actions `[...]` among `[..., actions, K]`."""
    index = action[..., None, None].expand(*action.shape, 1, numbers.shape[-1])
    return numbers.gather(-2, index).squeeze(-2)
