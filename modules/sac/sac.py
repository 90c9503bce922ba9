"""Soft actor-critic."""

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from datamodules.core.phase import Joint
from datamodules.core.types import Decision, Experience, Scalars, Spaces, State
from modules.base.algorithm import Algorithm
from modules.base.checks import check_memoryless, check_values
from modules.base.hparams import keep_hyperparameters
from modules.functional.returns import td_target
from modules.functional.schedules import Schedule
from modules.functional.soft_actor_critic import expected_soft_value, follow_network_, soft_value, temperature_loss
from modules.manual_backward.sac import WrittenOut, can_be_written_out
from modules.networks.base import Network, features_of
from modules.networks.distributions import Categorical
from modules.networks.heads.policy import CategoricalHead
from modules.networks.heads.squashed_gaussian import SquashedGaussian, SquashedGaussianHead
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import wide_mlp
from modules.networks.normalization import RunningNormalizer
from modules.optim.optimizer_group import make_optimizer, without_decay
from modules.sac.batch import SACBatch, sac_batch
from modules.sac.curiosity import Curiosity, Incurious

Policy = SquashedGaussian | Categorical

UNBOUNDED = math.inf
"""A bound on gradient norms that never acts."""


class SAC(Algorithm):
    """Soft actor-critic with a learned temperature (Haarnoja et al. 2018, arXiv:1812.05905), for boxes and choices.

    1. Twin critics; targets and the policy's improvement use the lower one; the targets follow by `tau` every
        update, parameters and buffers (`modules.functional.soft_actor_critic.follow_network_`).
    2. An update: critics, actor, temperature, targets, in this order, each network with its own optimizer.
    3. Box actions are tanh of a normal whose deviation depends on the state; the critics see them in [-1, 1]. Log-
       probabilities, and so the entropy target of -dims, are those of the actions in [-1, 1], whatever the range.
    4. Discrete actions (Christodoulou 2019, arXiv:1910.07207): expectations over all choices instead of samples. The
       entropy target is a share of the logarithm of the number of allowed choices.
    5. Only `terminated` stops the bootstrap; a truncated window goes on from its true last observation.
    6. Before the first update actions are uniform; evaluation takes tanh(mean) or the likeliest choice.
    7. n-step windows are not corrected for what the policy does meanwhile, and leave out its entropies there.

    Args:
        spaces: what the environment shows and takes; on the command line it comes from the data.
        network: makes the actor's torso from `obs_shape` (a class_path on the command line); memoryless.
        critic: makes the twin critics from `obs_shape`, action dimensions and outputs (`modules.networks.heads.twin_critic.Critic`).
        optimizer: makes each optimizer from its parameters.
        learning_rate: of the actor, at the start.
        critic_learning_rate: of critics and temperature; null: the same.
        learning_rate_schedule: of all rates: constant, or a decay to 0 over the run: linear or cosine.
        gamma: discount per environment step, in [0, 1].
        tau: share by which the target critics follow in every update, in (0, 1].
        alpha: temperature at the start, in units of the return per nat.
        tune_alpha: learn the temperature; false keeps it.
        target_entropy: in nats; null: -dims of a box, or `target_entropy_share` of log(choices).
        target_entropy_share: target entropy of discrete actions, as a part of that of an even choice.
        max_grad_norm: bound on the norm of each network's gradient; null for none.
        normalize_obs: scale observations by their running mean and deviation.
        noise_hold: vector steps in a row that act with the same noise, within a horizon: the policy in each stays what
            it is, but the agent wanders further where a single push leads nowhere.
        curiosity: makes the reward for unpredicted transitions (class_path: modules.sac.curiosity.Curiosity); null: none.

    Raises: UsageError for values that cannot be.
    """

    off_policy = True
    action_kinds = ("continuous", "discrete")
    always_eval = ("target_critic",)
    metrics: tuple[str, ...] = (
        "critic_loss", "actor_loss", "alpha_action", "entropy", "q_mean", "critic_grad_norm", "actor_grad_norm",
    )  # fmt: skip
    compiled: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss")

    exploring: Tensor
    scale: Tensor
    centre: Tensor

    def __init__(
        self,
        spaces: Spaces,
        network: Callable[[tuple[int, ...]], nn.Module] = wide_mlp,
        critic: Callable[[tuple[int, ...], int, int], nn.Module] = TwinMLP,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = lambda params: Adam(params, fused=True),
        learning_rate: float = 3e-4,
        critic_learning_rate: float | None = None,
        learning_rate_schedule: Schedule = "constant",
        gamma: float = 0.99,
        tau: float = 0.005,
        alpha: float = 1.0,
        tune_alpha: bool = True,
        target_entropy: float | None = None,
        target_entropy_share: float = 0.4,
        max_grad_norm: float | None = None,
        normalize_obs: bool = False,
        noise_hold: int = 1,
        curiosity: Callable[[Spaces], Curiosity] | None = None,
    ):
        super().__init__(spaces)
        keep_hyperparameters(self)
        check_values(learning_rate=learning_rate, critic_learning_rate=critic_learning_rate, alpha=alpha)
        check_values(gamma=gamma, tau=tau, noise_hold=noise_hold, max_grad_norm=max_grad_norm)
        self.optimizer, self.max_grad_norm = optimizer, max_grad_norm or UNBOUNDED
        self.learning_rate, self.critic_learning_rate = learning_rate, critic_learning_rate or learning_rate
        self.learning_rate_schedule, self.gamma, self.tau = learning_rate_schedule, gamma, tau
        self.target_entropy, self.target_entropy_share = target_entropy, target_entropy_share
        self.tune_alpha, self.curious_at, self.noise_hold = tune_alpha, 2 + tune_alpha, noise_hold
        self.continuous = spaces["action_kind"] == "continuous"
        self.obs_normalizer = RunningNormalizer(spaces["obs_shape"]) if normalize_obs else None
        self.log_alpha = nn.Parameter(torch.tensor(math.log(alpha)), requires_grad=tune_alpha)
        self.register_buffer("exploring", torch.tensor(False), persistent=False)
        self.make_networks(network, critic)
        self.curiosity = Incurious() if curiosity is None else self.with_obs_scale(curiosity(spaces))

    def make_networks(
        self,
        network: Callable[[tuple[int, ...]], nn.Module],
        critic: Callable[[tuple[int, ...], int, int], nn.Module],
    ) -> None:
        """The actor's torso and head, the critics and their targets."""
        shape, dims = self.spaces["obs_shape"], len(self.spaces["action_low"])
        low, high = torch.tensor(self.spaces["action_low"]), torch.tensor(self.spaces["action_high"])
        self.register_buffer("scale", (high - low) / 2, persistent=False)
        self.register_buffer("centre", (high + low) / 2, persistent=False)
        self.network = self.with_obs_scale(network(shape))
        check_memoryless(self.network, "SAC")
        features = cast(Network, self.network).features
        choices = 1 if self.continuous else self.spaces["action_sizes"][0]
        self.head = SquashedGaussianHead(features, dims) if self.continuous else CategoricalHead(features, choices)
        self.critic = self.with_obs_scale(critic(shape, dims, choices))
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """What the policy samples with: normal for a box, Gumbel for choices; over a horizon held for `noise_hold`."""
        steps, *rows = shape
        if self.noise_hold == 1 or not rows:
            return self.head.noise(shape, generator)
        held = self.head.noise((-(-steps // self.noise_hold), *rows), generator)
        return held.repeat_interleave(self.noise_hold, 0)[:steps]

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
        """tanh(mean) or the likeliest choice if greedy, else a sample; a uniform one before the first update."""
        policy = self.policy(self.normalized(obs), mask)
        if greedy:
            return Decision(self.in_units(policy.mode), {}), state
        assert noise is not None
        action = torch.where(self.exploring, policy.uniform(noise), policy.sample(noise))
        return Decision(self.in_units(action), {}), state

    def in_units(self, action: Tensor) -> Tensor:
        """An action in [-1, 1] in the environment's units; a choice stays as it is."""
        return torch.addcmul(self.centre, self.scale, action) if self.continuous else action

    def normalized(self, obs: Tensor) -> Tensor:
        """Observations as the networks see them."""
        return obs if self.obs_normalizer is None else self.obs_normalizer(obs)

    def policy(self, obs: Tensor, mask: Tensor | None) -> Policy:
        """The distribution over actions in normalised observations `[N, *obs]`."""
        features = features_of(self.network, obs)
        return self.head(features) if self.continuous else self.head(features, mask)

    def prepare(self, experience: Experience) -> SACBatch:
        """Returns of the windows, and actions and observations as the networks see them."""
        assert experience.transitions is not None
        batch = sac_batch(experience.transitions, self.gamma)
        action = ((batch.action - self.centre) / self.scale).clamp(-1, 1) if self.continuous else batch.action
        obs, next_obs = self.normalized(batch.obs), self.normalized(batch.next_obs)
        return self.curiosity.rewarded(batch._replace(obs=obs, next_obs=next_obs, action=action))

    def update(self, batch: SACBatch) -> Scalars:
        """An optimizer step of every network on each minibatch; means of the metrics over them."""
        self.errors, measured = self.joints["update"](batch, self.update_noise(batch))
        self.updates += len(batch.return_)
        self.exploring.fill_(False)
        return Scalars(self.metrics + self.curiosity.metrics, measured)

    def update_noise(self, batch: SACBatch) -> Tensor | None:
        """What updates sample actions with, `[U, 2, N, ...]`: of the next state and of this; choices need none."""
        shape = (len(batch.return_), 2, *batch.return_.shape[1:])
        return self.head.noise(shape, self.minibatch_generator) if self.continuous else None

    def run_updates(self, batch: SACBatch, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """All updates: absolute errors of the critics `[U, N]`, and means of the metrics."""
        draws = [(None, None)] * len(batch.return_) if noise is None else [draw.unbind() for draw in noise]
        learned = [self.learn(batch.minibatch(update), *draw) for update, draw in enumerate(draws)]
        errors, measured = zip(*learned, strict=True)
        return torch.stack(errors), torch.stack(measured).mean(0)

    def learn(self, batch: SACBatch, next_noise: Tensor | None, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """One update: absolute errors of the critics `[N]`, and the metrics."""
        errors, measured = self.descend(batch, next_noise, noise)
        follow_network_(self.target_critic, self.critic, self.tau)
        return errors, torch.stack(measured + self.curiosity.learn_(batch, self))

    def descend(self, batch: SACBatch, next_noise: Tensor | None, noise: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """One step of critics, actor and temperature: the critics' absolute errors, and the metrics."""
        if self.written_out is not None:
            return self.written_out.descend(batch, next_noise, noise)
        actor, critic, *temperature = self.raw_optimizers[: self.curious_at]
        alpha = self.log_alpha.detach().exp()
        critic_loss, errors, q_mean = self.critic_loss(batch, next_noise, alpha)
        critic_norm = self.step(critic_loss, critic, self.max_grad_norm)
        actor_loss, entropy = self.actor_loss(batch, noise, alpha)
        actor_norm = self.step(actor_loss, actor, self.max_grad_norm)
        if temperature:
            loss = temperature_loss(self.log_alpha, entropy, self.entropy_wanted(batch.mask))
            self.step(loss, temperature[0], UNBOUNDED)
        losses = [critic_loss.detach(), actor_loss.detach()]
        return errors, [*losses, alpha, entropy.mean(), q_mean, critic_norm, actor_norm]

    def critic_loss(self, batch: SACBatch, noise: Tensor | None, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Squared errors of both critics added up, their mean absolute errors `[N]`, and their mean value."""
        with torch.no_grad():
            value, _ = self.soft_value(self.target_critic, batch.next_obs, noise, batch.next_mask, alpha)
            target = td_target(batch.return_, value, batch.discount)
        if self.continuous:
            q = self.critic(batch.obs, batch.action).squeeze(-1)
        else:
            q = self.critic(batch.obs).gather(-1, batch.action.expand(2, -1).unsqueeze(-1)).squeeze(-1)
        error = q - target
        loss = (batch.weight * error.square()).sum(0).mean()
        return loss, error.detach().abs().mean(0), q.detach().mean()

    def actor_loss(self, batch: SACBatch, noise: Tensor | None, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Minus the soft value of the policy under the critics, and its entropy `[N]` without gradient."""
        value, entropy = self.soft_value(self.critic, batch.obs, noise, batch.mask, alpha)
        return -(batch.weight.sign() * value).mean(), entropy.detach()

    def soft_value(
        self, critic: nn.Module, obs: Tensor, noise: Tensor | None, mask: Tensor | None, alpha: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The policy's soft value under the lower critic, and its entropy or an estimate of it; both `[N]`."""
        policy = self.policy(obs, mask)
        if isinstance(policy, SquashedGaussian):
            assert noise is not None
            action, log_prob = policy.sample_with_log_prob(noise)
            q1, q2 = critic(obs, action).squeeze(-1)
            return soft_value(q1, q2, log_prob, alpha), -log_prob
        q1, q2 = critic(obs).detach()
        return expected_soft_value(q1, q2, policy.log_probs, alpha), policy.entropy()

    def entropy_wanted(self, mask: Tensor | None) -> float | Tensor:
        """The entropy that the temperature aims at, in nats; one an entry where choices are masked."""
        if self.target_entropy is not None:
            return self.target_entropy
        if self.continuous:
            return -float(len(self.scale))
        entropy = math.log(self.spaces["action_sizes"][0]) if mask is None else mask.sum(-1).log()
        return self.target_entropy_share * entropy

    def on_fit_start(self) -> None:
        """Explore uniformly until something was learned."""
        super().on_fit_start()
        self.curiosity.check(self.data)
        self.exploring.fill_(self.updates == 0)

    def write_out(self) -> WrittenOut | None:
        """An update, for plain networks on a CPU."""
        return WrittenOut(self) if type(self) is SAC and can_be_written_out(self) else None

    def schedule_(self) -> None:
        """Learning rates, and the scale of curiosity, for the iteration that begins."""
        self.curiosity.anneal_(self.env_steps)
        self.schedule_learning_rates_()

    def learning_rates(self) -> list[float]:
        """Where they begin, in the order of `make_optimizers`."""
        return [self.learning_rate, *[self.critic_learning_rate] * (1 + self.tune_alpha), *self.curiosity.rates]

    def absorb_(self, experience: Experience) -> None:
        """Merge the new steps into the statistics; tell the replay how wrong the critics were."""
        if self.obs_normalizer is not None:
            self.obs_normalizer.update_(experience.rollout.obs[:-1], experience.rollout.valid)
        if experience.transitions is not None:
            experience.replay.reprioritize_(experience.transitions.entry, self.errors)

    def make_joints(self) -> dict[str, Joint[Any]]:
        """Prepare, and all updates of an iteration."""
        parts = [(self, name) for name in self.compiled] if self.written_out is None else []
        update = Joint(self.run_updates, self.device, name="update", parts=parts, owned=self.owned_tensors)
        return {"prepare": Joint(self.prepare, self.device, name="prepare"), "update": update}

    def make_optimizers(self) -> list[Optimizer]:
        """Make those of the actor, the critics and, where there are any that learn, temperature and curiosity.

        Weight decay leaves the temperature alone.
        """
        actor, critic = [*self.network.parameters(), *self.head.parameters()], self.critic.parameters()
        networks = [make_optimizer(self.optimizer, each) for each in (actor, critic)]
        temperature = [without_decay(make_optimizer(self.optimizer, [self.log_alpha]))] if self.tune_alpha else []
        return [*networks, *temperature, *(make_optimizer(self.optimizer, each) for each in self.curiosity.groups)]
