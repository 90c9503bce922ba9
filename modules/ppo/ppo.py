"""Proximal policy optimisation."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from datamodules.core.phase import Joint
from datamodules.core.types import Decision, Rollout, Scalars, Spaces, State
from modules.base.algorithm import Algorithm
from modules.base.bootstrap import next_values
from modules.base.checks import check_recurrent, check_values
from modules.base.hparams import keep_hyperparameters
from modules.functional.policy_gradient import explained_variance
from modules.functional.ppo_objective import ppo_objective
from modules.functional.returns import gae, vtrace
from modules.functional.schedules import Schedule, scheduled
from modules.manual_backward.ppo import Deciding, WrittenOut, can_be_written_out
from modules.networks.base import Network, RecurrentNetwork, applied
from modules.networks.heads.policy import ValueHead, policy_head
from modules.networks.mlp import MLP
from modules.networks.normalization import RewardScaler, RunningNormalizer
from modules.optim.distributed import averaged
from modules.optim.optimizer_group import make_optimizer
from modules.ppo.batch import PPOBatch, states_at

METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm", "explained_variance")


class PPO(Algorithm):
    """Proximal policy optimisation, clipped form (Schulman et al. 2017, arXiv:1707.06347, eq. 7 and 9).

    The details that decide whether PPO works (Huang et al. 2022, "The 37 implementation details of PPO"), and ours:

    1. Vectorised environments, segments of fixed length that bootstrap across resets.
    2. Orthogonal initialisation: sqrt 2, the policy head 0.01, the value head 1; biases 0.
    3. Adam with eps 1e-5.   4. `learning_rate_schedule`, stepped once an iteration.
    5. GAE; a truncated step bootstraps from the value of the true last observation.
    6. Minibatches: a new permutation every pass.   7. Advantages normalised per minibatch, over all ranks.
    8. Clipped ratio (`clip`, `clip_schedule`).   9. `value_clip`, off by default: it helps little and has a unit.
    10. Loss = policy + value_weight x value - entropy_weight x entropy; the value loss carries its 1/2.
    11. Gradients clipped by their global norm (`max_grad_norm`).   12. `METRICS` logged; approx_kl is k3.
    13. Separate networks for policy and value; `shared` makes them one, as for images.
    14. Continuous actions: state-independent log-std, starting at 0; the unclipped action is stored.
    15. `normalize_obs` and `normalize_reward` (by the running deviation of the discounted return), both clipped at 10;
        statistics are part of the checkpoint, frozen within an iteration and in evaluation.
    16. Multi-discrete and binary parts are independent: log-probabilities and entropies add up.
    17. `target_kl` ends an iteration's passes early, agreed by all ranks, at 1.5 times the target.
    18. A recurrent network is shared; minibatches are whole sequences, unrolled anew through the resets inside.
    19. Masked actions have logits of -1e8.   20. Losses and log-probabilities are float32 under any precision.
    21. Of a stale rollout (`data.staleness` 1) advantages and targets are V-trace's; see `modules.ppo.ppo`.
    The Atari wrappers and frame stacks (items 14 to 22 there) are the environment's own matter.

    Args:
        spaces: what the environment shows and takes; on the command line it comes from the data.
        network: makes a torso from `obs_shape` (a class_path on the command line).
        shared: one torso for policy and value.
        optimizer: makes the optimizer from the parameters; its learning rate is `learning_rate`.
        learning_rate: of the optimizer, at the start.
        learning_rate_schedule: constant, or a decay to 0 over the run: linear or cosine.
        gamma: discount per environment step, in [0, 1].
        lam: lambda of the generalised advantage estimate, in [0, 1].
        passes: epochs over each rollout.
        minibatches: in each pass; they must divide the rollout's transitions (its rows, if the network is recurrent).
        minibatch_order: shuffled anew each pass, or strided: every n-th row, without a copy.
        clip: half-width of the interval around 1 beyond which the ratio earns no gradient.
        clip_schedule: constant, or a decay to 0 over the run: linear or cosine.
        value_clip: half-width of the trusted value interval in units of the (scaled) return; null for none.
        value_weight: coefficient of the value loss.
        entropy_weight: coefficient of the entropy bonus.
        max_grad_norm: bound on the gradient's global norm.
        target_kl: in nats; an iteration's passes end at 1.5 times this KL divergence; null never ends them early.
        normalize_obs: scale observations by their running mean and deviation.
        normalize_reward: scale rewards by the running deviation of the discounted return.

    Raises: UsageError for values that cannot be.
    """

    corrects_staleness = True

    def __init__(
        self,
        spaces: Spaces,
        network: Callable[[tuple[int, ...]], nn.Module] = MLP,
        shared: bool = False,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = lambda params: Adam(params, eps=1e-5, fused=True),
        learning_rate: float = 3e-4,
        learning_rate_schedule: Schedule = "constant",
        gamma: float = 0.99,
        lam: float = 0.95,
        passes: int = 4,
        minibatches: int = 4,
        minibatch_order: Literal["shuffled", "strided"] = "shuffled",
        clip: float = 0.2,
        clip_schedule: Schedule = "constant",
        value_clip: float | None = None,
        value_weight: float = 1.0,
        entropy_weight: float = 0.0,
        max_grad_norm: float = 0.5,
        target_kl: float | None = None,
        normalize_obs: bool = False,
        normalize_reward: bool = False,
    ):
        super().__init__(spaces)
        keep_hyperparameters(self)
        check_values(gamma=gamma, lam=lam, passes=passes, minibatches=minibatches, clip=clip)
        check_values(learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        self.optimizer, self.max_grad_norm = optimizer, max_grad_norm
        self.learning_rate, self.learning_rate_schedule = learning_rate, learning_rate_schedule
        self.gamma, self.lam, self.target_kl = gamma, lam, target_kl
        self.passes, self.minibatches, self.minibatch_order = passes, minibatches, minibatch_order
        self.clip, self.clip_schedule, self.value_clip = clip, clip_schedule, value_clip
        self.value_weight, self.entropy_weight = value_weight, entropy_weight
        self.obs_normalizer = RunningNormalizer(spaces["obs_shape"]) if normalize_obs else None
        self.reward_scaler = RewardScaler(gamma) if normalize_reward else None
        self.make_networks(network, shared)

    def make_networks(self, network: Callable[[tuple[int, ...]], nn.Module], shared: bool) -> None:
        """The torsos and the heads on them."""
        spaces = self.spaces
        self.network = self.with_obs_scale(network(spaces["obs_shape"]))
        self.recurrent = hasattr(self.network, "unroll")
        check_recurrent(self.network, shared)
        self.value_network = None if shared else self.with_obs_scale(network(spaces["obs_shape"]))
        features, dimensions = cast(Network, self.network).features, len(spaces["action_low"])
        self.actor = policy_head(features, spaces["action_kind"], spaces["action_sizes"], dimensions)
        self.critic = ValueHead(features)

    def initial_state(self, batch: int) -> State:
        """The network's state at the start of an episode."""
        return cast(Network, self.network).initial_state(batch)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """What the policy head samples with."""
        return self.actor.noise(shape, generator)

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
        """The policy's mode if greedy, else a sample; the policy itself, and from a shared torso the value."""
        if self.written_out is not None and not torch.compiler.is_compiling():
            policy, value = self.written_out.decide(obs, mask)
        else:
            features, state = applied(self.network, self.normalized(obs), state, reset)
            policy = applied(self.actor, features, mask)
            value = self.critic(features) if self.value_network is None and not self.recurrent else None
        action = policy.mode if greedy else policy.sample(cast(Tensor, noise))
        return Decision(action, {"policy": policy.parameters} | ({} if value is None else {"value": value})), state

    def normalized(self, obs: Tensor) -> Tensor:
        """Observations as the networks see them."""
        return obs if self.obs_normalizer is None else self.obs_normalizer(obs)

    def value(self, obs: Tensor, state: State | None = None) -> Tensor:
        """v(s) of observations `[N, *obs]`, `[N]`, with a recurrent network's state `[N, ...]` before them."""
        network = self.network if self.value_network is None else self.value_network
        reset = torch.zeros(len(obs), dtype=torch.bool, device=obs.device)
        return self.critic(network(self.normalized(obs), state or {}, reset)[0])

    def values(self, rollout: Rollout) -> tuple[Tensor, State]:
        """v(s_0) to v(s_T) `[T+1, B]`, and a recurrent network's states after each of these observations."""
        if "value" in rollout.extras:
            return torch.cat([rollout.extras["value"], self.value(rollout.obs[-1]).unsqueeze(0)]), {}
        if not self.recurrent:
            return (self.written_out or self).value(rollout.obs.flatten(0, 1)).view(rollout.obs.shape[:2]), {}
        reset = torch.cat([rollout.reset, rollout.terminated[-1:] | rollout.truncated[-1:]])
        obs = self.normalized(rollout.obs)
        features, states = cast(RecurrentNetwork, self.network).trace(obs, rollout.state, reset)
        return self.critic(features), states

    def prepare(self, rollout: Rollout) -> PPOBatch:
        """Advantages and value targets of a rollout, flattened to T x B transitions unless the network is recurrent."""
        acted, rollout = rollout, reconsidered(self, rollout) if self.stale else rollout
        values, states = self.values(rollout)
        value, next_value = values[:-1], self.next_value(rollout, values, states)
        reward = rollout.reward if self.reward_scaler is None else self.reward_scaler.scale(rollout.reward)
        series = (reward, value, next_value, rollout.terminated, rollout.truncated)
        log_prob = log_prob_of(self, rollout)
        estimate = partial(vtrace, log_prob - log_prob_of(self, acted)) if self.stale else gae
        advantage, target = estimate(*series, gamma=self.gamma, lam=self.lam)
        columns = (rollout.obs[:-1], rollout.action, log_prob, value, advantage, target)
        masks = (rollout.valid if rollout.phantoms else None, rollout.extras.get("action_mask"))
        if self.recurrent:
            return PPOBatch(*columns, *masks, rollout.reset, rollout.state)
        return PPOBatch(*columns, *masks, None, {}).map(lambda column: column.flatten(0, 1))

    def next_value(self, rollout: Rollout, values: Tensor, states: State | None = None) -> Tensor:
        """v(s_{t+1}) `[T, B]` before any reset, of the true last observation where truncated; see `values`."""
        value = partial(self.value, state=states_at(states, rollout.final_index)) if states else self.value
        return next_values(rollout, values, value)

    def on_fit_start(self) -> None:
        """Adds the clip range as a tensor, which a captured update reads."""
        self.clip_now = torch.tensor(self.clip, device=self.device)
        super().on_fit_start()

    def write_out(self) -> WrittenOut | None:
        """Deciding and the gradient, for plain networks on a CPU."""
        return WrittenOut(self) if type(self) is PPO and can_be_written_out(self) else None

    def twin(self) -> Self:
        """One that acts by weights of its own (see `Algorithm.twin`), as shortly as this one does."""
        twin = super().twin()
        self.shorten(twin)
        return twin

    def shorten(self, twin: Self) -> None:
        """Let a copy decide by few calls, where this module does."""
        twin.written_out = None if self.written_out is None else Deciding(twin)

    def schedule_(self) -> None:
        """Learning rate and clip range for the iteration that begins."""
        if self.clip_schedule != "constant":
            self.clip_now.fill_(scheduled(self.clip_schedule, self.clip, self.progress))
        self.schedule_learning_rates_()

    def absorb_(self, rollout: Rollout) -> None:
        """Merge the rollout into the normalisers."""
        if self.obs_normalizer is not None:
            self.obs_normalizer.update_(rollout.obs[:-1], rollout.valid)
        if self.reward_scaler is not None:
            ended = rollout.terminated | rollout.truncated | ~rollout.valid
            self.reward_scaler.update_(rollout.reward, ended, rollout.valid, rollout.reset[0])

    def make_joints(self) -> dict[str, Joint[Any]]:
        """Prepare, and one pass of the update."""
        parts = [(self, "loss")] if self.written_out is None else []
        update = Joint(self.run_pass, self.device, name="update", parts=parts, owned=self.owned_tensors)
        return {"prepare": Joint(self.prepare, self.device, name="prepare"), "update": update}

    def update(self, batch: PPOBatch) -> Scalars:
        """All passes over the batch, each in fresh minibatches; means of the metrics over them."""
        total, passes = torch.zeros(len(METRICS), device=self.device), 0
        for _ in range(self.passes):
            measured = self.joints["update"](batch, self.shuffled(batch.size))
            total, passes = total.add_(measured), passes + 1
            self.updates += self.minibatches
            if self.target_kl is not None and averaged(measured[METRICS.index("approx_kl")]) > 1.5 * self.target_kl:
                break
        return Scalars(METRICS, total / passes)

    def shuffled(self, parts: int) -> Tensor | None:
        """A fresh permutation; None where minibatches need none."""
        still = self.minibatches == 1 or self.minibatch_order == "strided"
        return None if still else torch.randperm(parts, generator=self.minibatch_generator, device=self.device)

    def run_pass(self, batch: PPOBatch, order: Tensor | None) -> Tensor:
        """One optimizer step on each minibatch; means of the metrics in the order of `METRICS`."""
        explained = explained_variance(batch.value, batch.target, batch.valid)
        steps = [self.learn(minibatch) for minibatch in batch.minibatches(self.minibatches, order)]
        return torch.cat([torch.stack(steps).mean(0), explained.unsqueeze(0)])

    def learn(self, batch: PPOBatch) -> Tensor:
        """One optimizer step on one minibatch; its metrics, all of `METRICS` but the last."""
        if self.written_out is None:
            loss, measured = self.loss(batch)
            norm = self.step(loss, self.raw_optimizers[0], self.max_grad_norm)
        else:
            measured = self.written_out.differentiate_(batch)
            norm = self.optimization.step_written(self.raw_optimizers[0], self.max_grad_norm)
        return torch.cat([measured, norm.unsqueeze(0)])

    def features(self, batch: PPOBatch) -> tuple[Tensor, Tensor]:
        """What the heads of policy and value read."""
        obs = self.normalized(batch.obs)
        if batch.reset is not None:
            features = cast(RecurrentNetwork, self.network).unroll(obs, batch.state, batch.reset)
            return features, features
        reset = torch.zeros_like(batch.advantage, dtype=torch.bool)
        features = self.network(obs, {}, reset)[0]
        return features, features if self.value_network is None else self.value_network(obs, {}, reset)[0]

    def loss(self, batch: PPOBatch) -> tuple[Tensor, Tensor]:
        """The objective to descend, and policy loss, value loss, entropy, approximate KL and clip fraction, `[5]`."""
        features, value_features = self.features(batch)
        policy = self.actor(features, batch.mask)
        log_prob, value = policy.log_prob(batch.action), self.critic(value_features)
        stored, share = batch.stored()
        loss, measures = ppo_objective(log_prob, policy.entropy(), value, **stored, **self.settings())
        return loss if share is None else loss * share, measures

    def settings(self) -> dict[str, Any]:
        """What the objective takes from the configuration."""
        weights = {"value_weight": self.value_weight, "entropy_weight": self.entropy_weight}
        return {"clip": self.clip_now, "value_clip": self.value_clip, **weights}

    def make_optimizers(self) -> list[Optimizer]:
        """One, over all parameters that learn."""
        return [make_optimizer(self.optimizer, self.parameters())]

    def rank_state(self) -> dict[str, object]:
        """Adds the running returns of the reward scaler."""
        return super().rank_state() | {"running_return": self.reward_scaler and self.reward_scaler.running}

    def load_rank_state(self, state: dict) -> None:
        """Continue from `rank_state`."""
        super().load_rank_state(state)
        if self.reward_scaler is not None and state["running_return"] is not None:
            self.reward_scaler.running = state["running_return"].to(self.device)


@torch.no_grad()
def reconsidered(model: "PPO", rollout: Rollout) -> Rollout:
    """The rollout with the policy and, from a shared torso, the value of now in the place of the older ones."""
    obs, mask = rollout.obs[:-1], rollout.extras.get("action_mask")
    if model.recurrent:
        features = cast(RecurrentNetwork, model.network).unroll(model.normalized(obs), rollout.state, rollout.reset)
        found = {"policy": model.actor(features, mask).parameters}
    else:
        flat = None if mask is None else mask.flatten(0, 1)
        decision, _ = model.act(obs.flatten(0, 1), {}, rollout.reset.flatten(), mask=flat, greedy=True)
        known = {name: column for name, column in decision.extras.items() if name in ("policy", "value")}
        found = {name: column.view(*obs.shape[:2], *column.shape[1:]) for name, column in known.items()}
    return rollout._replace(extras=rollout.extras | found)


def log_prob_of(model: "PPO", rollout: Rollout) -> Tensor:
    """Log-probabilities `[T, B]` of what was done, by the policy that the rollout holds."""
    return model.actor.distribution(rollout.extras["policy"]).log_prob(rollout.action)
