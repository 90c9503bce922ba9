"""Parallelised Q-networks."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer, RAdam

from datamodules.core.phase import Joint
from datamodules.core.types import Decision, Rollout, Scalars, Spaces, State
from modules.base.algorithm import Algorithm
from modules.base.bootstrap import next_values
from modules.base.checks import check_memoryless, check_values
from modules.base.hparams import keep_hyperparameters
from modules.dqn.epsilon_greedy import EpsilonGreedy
from modules.functional.policy_gradient import masked_mean
from modules.functional.returns import gae
from modules.functional.sampling import MASKED
from modules.functional.schedules import Schedule
from modules.networks.base import Network
from modules.networks.heads.q_value import QHead, QNetwork
from modules.networks.mlp import MLP
from modules.optim.optimizer_group import make_optimizer

METRICS = ("td_loss", "q_mean", "grad_norm")


class PQNBatch(NamedTuple):
    """Transitions `[N, ...]` and what their actions' values should have been; `valid` is None where all count."""

    obs: Tensor
    action: Tensor
    target: Tensor
    valid: Tensor | None

    def rows(self, index: Tensor) -> "PQNBatch":
        """The transitions at `index`."""
        return PQNBatch._make(None if column is None else column.index_select(0, index) for column in self)


class PQN(Algorithm):
    """Q-learning from many environments at once (Gallici et al. 2025, arXiv:2407.04811, algorithm 1).

    There is neither a replay nor a target network: targets are lambda-returns of the rollout at hand.

    G_t = r_t + gamma (1 - terminated_t) (lam G_{t+1} + (1 - lam) max_a Q(s_{t+1}, a))

    The network must normalise its layers (`layer_norm: true`), which is what makes this stable. A truncated step is
    followed by max_a Q of the true last observation. Targets are computed once a rollout, as in the authors' code.

    Args:
        spaces: what the environment shows and takes, Discrete actions; on the command line it comes from the data.
        network: makes a torso from `obs_shape` (a class_path on the command line).
        dueling: values as V + A - mean A.
        optimizer: makes the optimizer from the parameters; its learning rate is `learning_rate`.
        learning_rate: of the optimizer, at the start.
        learning_rate_schedule: constant, or a decay to 0 over the run: linear or cosine.
        gamma: discount per environment step, in [0, 1].
        lam: lambda of the returns, in [0, 1]: 0 is one-step, 1 is Monte Carlo.
        passes: epochs over each rollout.
        minibatches: in each pass; they must divide the rollout's transitions.
        epsilon_start: share of random actions at the start.
        epsilon: share of random actions in the end.
        epsilon_steps: environment steps, all ranks together, from the one to the other.
        max_grad_norm: bound on the gradient's global norm.

    Raises: UsageError for values that cannot be.
    """

    action_kinds = ("discrete",)

    def __init__(
        self,
        spaces: Spaces,
        network: Callable[[tuple[int, ...]], nn.Module] = lambda shape: MLP(shape, layer_norm=True),
        dueling: bool = False,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = RAdam,
        learning_rate: float = 2.5e-4,
        learning_rate_schedule: Schedule = "constant",
        gamma: float = 0.99,
        lam: float = 0.65,
        passes: int = 2,
        minibatches: int = 32,
        epsilon_start: float = 1.0,
        epsilon: float = 0.05,
        epsilon_steps: int = 100_000,
        max_grad_norm: float = 10.0,
    ):
        super().__init__(spaces)
        keep_hyperparameters(self)
        check_values(gamma=gamma, lam=lam, passes=passes, minibatches=minibatches)
        check_values(learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        torso = self.with_obs_scale(network(spaces["obs_shape"]))
        check_memoryless(torso, "PQN")
        self.values = QNetwork(torso, QHead(cast(Network, torso).features, spaces["action_sizes"][0], dueling))
        self.optimizer, self.max_grad_norm, self.gamma, self.lam = optimizer, max_grad_norm, gamma, lam
        self.learning_rate, self.learning_rate_schedule = learning_rate, learning_rate_schedule
        self.passes, self.minibatches = passes, minibatches
        self.explore = EpsilonGreedy(spaces["action_sizes"][0], epsilon_start, epsilon, epsilon_steps)

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
        """The best allowed action, or any allowed one with probability epsilon; and the value of the best."""
        value, best = self.allowed(obs, mask).max(-1)
        if greedy or noise is None:
            return Decision(best, {}), state
        return Decision(self.explore(best, noise, mask), {"value": value}), state

    def allowed(self, obs: Tensor, mask: Tensor | None) -> Tensor:
        """Action values `[N, actions]`, those of forbidden actions out of reach."""
        value = self.values.head.mean(self.values(obs))
        return value if mask is None else value.masked_fill(~mask, MASKED)

    def prepare(self, rollout: Rollout) -> PQNBatch:
        """Lambda-returns of a rollout, flattened to T x B transitions."""
        value = rollout.extras["value"]
        next_value = self.next_value(rollout, value)
        flags = (rollout.terminated, rollout.truncated)
        target = gae(rollout.reward, value, next_value, *flags, gamma=self.gamma, lam=self.lam).target
        columns = (rollout.obs[:-1], rollout.action, target, rollout.valid if rollout.phantoms else None)
        return PQNBatch._make(None if column is None else column.flatten(0, 1) for column in columns)

    def next_value(self, rollout: Rollout, value: Tensor) -> Tensor:
        """max_a Q(s_{t+1}, a) `[T, B]` before any reset, of the true last observation where truncated.

        Of the very last observation, and of true last ones, all actions count as allowed.
        """
        last = self.allowed(rollout.obs[-1], None).amax(-1)
        values = torch.cat([value, last.unsqueeze(0)])
        return next_values(rollout, values, lambda obs: self.allowed(obs, None).amax(-1))

    def update(self, batch: PQNBatch) -> Scalars:
        """All passes over the batch, each in fresh minibatches; means of the metrics over them."""
        measured = []
        for _ in range(self.passes):
            order = torch.randperm(len(batch.target), generator=self.minibatch_generator, device=self.device)
            measured.append(self.joints["update"](batch, order.view(self.minibatches, -1)).clone())
        self.updates += self.passes * self.minibatches
        return Scalars(METRICS, torch.stack(measured).mean(0))

    def run_pass(self, batch: PQNBatch, order: Tensor) -> Tensor:
        """One optimizer step on each minibatch; means of the metrics."""
        return torch.stack([self.learn(batch.rows(rows)) for rows in order.unbind()]).mean(0)

    def learn(self, batch: PQNBatch) -> Tensor:
        """One optimizer step on one minibatch; its metrics."""
        loss, value = self.loss(batch)
        norm = self.step(loss, self.raw_optimizers[0], self.max_grad_norm)
        return torch.stack([loss, value, norm]).detach()

    def loss(self, batch: PQNBatch) -> tuple[Tensor, Tensor]:
        """Half the squared error of the values of what was done, and their mean."""
        values = self.values.head.mean(self.values(batch.obs))
        value = values.gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)
        error = (value - batch.target).square()
        return 0.5 * masked_mean(error, batch.valid), masked_mean(value, batch.valid)

    def tick(self, collected: Any, metrics: Scalars | None) -> None:
        """Count the iteration, then set how much the next one explores."""
        super().tick(collected, metrics)
        self.explore.set_(self.env_steps)

    def on_train_start(self) -> None:
        """Explore as much as the env steps so far say."""
        super().on_train_start()
        self.explore.set_(self.env_steps)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Explore as much as the env steps so far say, also where an evaluation samples and nothing is trained."""
        super().on_load_checkpoint(checkpoint)
        self.explore.set_(self.env_steps)

    def schedule_(self) -> None:
        """The learning rate of the iteration that begins."""
        self.schedule_learning_rates_()

    def measured(self) -> dict[str, float | Tensor]:
        """How much the policy explores, and updates so far."""
        return {"train/epsilon": self.explore.now, "train/updates": self.updates}

    def make_joints(self) -> dict[str, Joint[Any]]:
        """Prepare, and one pass of the update."""
        parts = [(self, "loss")]
        update = Joint(self.run_pass, self.device, name="update", parts=parts, owned=self.owned_tensors)
        return {"prepare": Joint(self.prepare, self.device, name="prepare"), "update": update}

    def make_optimizers(self) -> list[Optimizer]:
        """One, over all parameters."""
        return [make_optimizer(self.optimizer, self.parameters())]
