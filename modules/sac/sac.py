"""Soft actor-critic (`SAC`)."""

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from datamodules.core.phase import Phase
from datamodules.core.pytree import add_prefix, tree_map
from datamodules.core.types import (
    STATE,
    MetricVector,
    Obs,
    OffPolicyIteration,
    PolicyInput,
    PolicyOutput,
    SpaceSpec,
    State,
)
from modules.base.algorithm import Algorithm
from modules.base.checks import check_values
from modules.base.hparams import save_plain_hyperparameters
from modules.functional.returns import td_target
from modules.functional.schedules import Schedule, schedule_value
from modules.functional.soft_actor_critic import expected_soft_value, soft_value, temperature_loss
from modules.networks.base import Network, extract_features
from modules.networks.distributions import Categorical
from modules.networks.heads.multi_input_critic import make_critic
from modules.networks.heads.policy import CategoricalHead
from modules.networks.heads.squashed_gaussian import SquashedGaussian, SquashedGaussianHead
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import sac_mlp
from modules.networks.multi_input import make_network, make_obs_normalizer, obs_shape_of
from modules.optim.optimizer_group import make_optimizer, without_decay
from modules.optim.target_network import polyak_update_
from modules.sac.batch import SACBatch, sac_batch
from modules.sac.curiosity import Curiosity, NoCuriosity
from modules.sac.sequences import ACTOR, CRITIC, SequenceObs, check_recurrent_parts, step_torso

Policy = SquashedGaussian | Categorical

NO_CLIP = math.inf
"""Gradient norm bound that never clips."""


class SAC(Algorithm):
    """Soft actor-critic with learned temperature (Haarnoja et al. 2018, arXiv:1812.05905), for Box or Discrete actions.

    1. Twin critics; targets and policy improvement use their minimum; target networks follow by Polyak averaging with
       `tau` after every update, parameters and buffers (`modules.optim.target_network.polyak_update_`).
    2. An update steps critics, actor, temperature and target networks, in this order, each network with its own
       optimizer.
    3. Box actions are tanh of a normal with state-dependent standard deviation; the critics get them in [-1, 1].
       Log-probabilities, and so the target entropy of -dims, are those of actions in [-1, 1], whatever the range.
    4. Discrete actions (Christodoulou 2019, arXiv:1910.07207): expectations over all actions instead of samples. The
       target entropy is a fraction of the logarithm of the number of allowed actions.
    5. Only termination stops the bootstrap; a truncated window bootstraps from its true last observation.
    6. Before the first update actions are uniform; evaluation uses tanh(mean) or the most likely action.
    7. n-step windows are used without off-policy correction, and without the entropies of their intermediate steps.
    8. Recurrent networks learn from sequences (`data.sequence_length`), from the states stored when they were
       collected, after a burn-in (`data.burn_in`) whose outputs give no loss, as in `modules.DQN`. Actor and critics
       have separate torsos (Ni et al. 2022, arXiv:2110.05038); the critics' state is also advanced while acting.

    Args:
        spaces: observation and action space; on the command line it comes from the data.
        network: makes the actor's torso from `obs_shape` (a class_path on the command line).
        critic: makes the twin critics from `obs_shape`, action dimensions and outputs
            (`modules.networks.heads.twin_critic.Critic`); with a recurrent network `modules.networks.RecurrentCritic`.
        optimizer: makes each optimizer from its parameters.
        learning_rate: initial learning rate of the actor.
        critic_learning_rate: initial learning rate of critics and temperature; null: equal to `learning_rate`.
        learning_rate_schedule: constant, or a decay of all rates to 0 over the run: linear or cosine.
        gamma: discount per environment step, in [0, 1].
        tau: Polyak averaging coefficient of the target critics per update, in (0, 1].
        init_temperature: initial temperature alpha, in units of the return per nat.
        learn_temperature: learn the temperature; false keeps it constant.
        target_entropy: target entropy in nats; null: -dims for Box actions, for Discrete ones `target_entropy_ratio` of
            log(actions).
        target_entropy_ratio: target entropy of Discrete actions, as a fraction of the uniform policy's.
        target_entropy_schedule: constant, or a decay over the run from the entropy of uniform actions to the target
            entropy: linear or cosine.
        max_grad_norm: maximum norm of each network's gradient; null for no clipping.
        normalize_obs: scale observations by their running mean and standard deviation.
        noise_hold: number of consecutive vector steps with the same action noise, within an iteration: each action's
            distribution is unchanged, but exploration is correlated in time.
        curiosity: makes the intrinsic reward (class_path: modules.Curiosity); null: none.

    Raises: ConfigurationError for values out of range.
    """

    off_policy = True
    action_types = ("continuous", "discrete")
    always_eval = ("target_critic",)
    metric_names: tuple[str, ...] = (
        "critic_loss", "actor_loss", "alpha_action", "entropy", "q_mean", "critic_grad_norm", "actor_grad_norm",
    )  # fmt: skip
    compiled_methods: ClassVar[tuple[str, ...]] = ("critic_loss", "actor_loss")

    random_warmup: Tensor
    action_scale: Tensor
    action_center: Tensor
    entropy_decay: Tensor

    def __init__(
        self,
        spaces: SpaceSpec,
        network: Callable[[tuple[int, ...]], nn.Module] = sac_mlp,
        critic: Callable[[tuple[int, ...], int, int], nn.Module] = TwinMLP,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = lambda params: Adam(params, fused=True),
        learning_rate: float = 3e-4,
        critic_learning_rate: float | None = None,
        learning_rate_schedule: Schedule = "constant",
        gamma: float = 0.99,
        tau: float = 0.005,
        init_temperature: float = 1.0,
        learn_temperature: bool = True,
        target_entropy: float | None = None,
        target_entropy_ratio: float = 0.4,
        target_entropy_schedule: Schedule = "constant",
        max_grad_norm: float | None = None,
        normalize_obs: bool = False,
        noise_hold: int = 1,
        curiosity: Callable[[SpaceSpec], Curiosity] | None = None,
    ):
        super().__init__(spaces)
        save_plain_hyperparameters(self)
        check_values(learning_rate=learning_rate, critic_learning_rate=critic_learning_rate, noise_hold=noise_hold)
        check_values(gamma=gamma, tau=tau, init_temperature=init_temperature, max_grad_norm=max_grad_norm)
        self.optimizer, self.max_grad_norm = optimizer, max_grad_norm or NO_CLIP
        self.learning_rate, self.critic_learning_rate = learning_rate, critic_learning_rate or learning_rate
        self.learning_rate_schedule, self.gamma, self.tau = learning_rate_schedule, gamma, tau
        self.target_entropy, self.target_entropy_ratio = target_entropy, target_entropy_ratio
        self.target_entropy_schedule = target_entropy_schedule
        if target_entropy_schedule != "constant":
            self.register_buffer("entropy_decay", torch.tensor(1.0), persistent=False)
        self.learn_temperature, self.noise_hold = learn_temperature, noise_hold
        self.curiosity_index = 2 + learn_temperature
        self.continuous = spaces["action_type"] == "continuous"
        self.obs_normalizer = make_obs_normalizer(spaces) if normalize_obs else None
        self.log_alpha = nn.Parameter(torch.tensor(math.log(init_temperature)), requires_grad=learn_temperature)
        self.register_buffer("random_warmup", torch.tensor(False), persistent=False)
        self.make_networks(network, critic)
        self.recurrent = hasattr(self.network, "unroll")
        check_recurrent_parts(self.network, self.critic, curiosity)
        self.curiosity = NoCuriosity() if curiosity is None else self.with_obs_scale(curiosity(spaces))

    def make_networks(
        self,
        network: Callable[[tuple[int, ...]], nn.Module],
        critic: Callable[[tuple[int, ...], int, int], nn.Module],
    ) -> None:
        """Create the actor's torso and head, the critics and the target critics."""
        dims = len(self.spaces["action_low"])
        low, high = torch.tensor(self.spaces["action_low"]), torch.tensor(self.spaces["action_high"])
        self.register_buffer("action_scale", (high - low) / 2, persistent=False)
        self.register_buffer("action_center", (high + low) / 2, persistent=False)
        self.network = self.with_obs_scale(make_network(network, obs_shape_of(self.spaces)))
        features = cast(Network, self.network).features
        choices = 1 if self.continuous else self.spaces["action_sizes"][0]
        self.head = SquashedGaussianHead(features, dims) if self.continuous else CategoricalHead(features, choices)
        self.critic = self.with_obs_scale(
            make_critic(critic, obs_shape_of(self.spaces), dims, self.critic_columns * choices)
        )
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)

    def initial_state(self, batch: int) -> State:
        """Return the states of both torsos at the start of an episode; `{}` if they are not recurrent."""
        if not self.recurrent:
            return {}
        actor, critic = cast(Network, self.network), cast(Network, self.critic.torso)
        return add_prefix(ACTOR, actor.initial_state(batch)) | add_prefix(CRITIC, critic.initial_state(batch))

    @property
    def critic_columns(self) -> int:
        """Return the number of values per action of each critic."""
        return 1

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the policy's noise: normal for Box, Gumbel for Discrete actions; repeated for `noise_hold` steps."""
        steps, *rows = shape
        if self.noise_hold == 1 or not rows:
            return self.head.noise(shape, generator)
        held = self.head.noise((-(-steps // self.noise_hold), *rows), generator)
        return held.repeat_interleave(self.noise_hold, 0)[:steps]

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Return tanh(mean) or the most likely action if greedy, else a sample; uniform before the first update.

        The recurrent state before the step is an extra of samples, under names that begin with `STATE`.
        """
        policy, state = self.step_policy(inputs)
        if greedy:
            return PolicyOutput(self.unscale_action(policy.mode), {}), state
        assert noise is not None
        action = torch.where(self.random_warmup, policy.uniform(noise), policy.sample(noise))
        return PolicyOutput(self.unscale_action(action), add_prefix(STATE, inputs.state)), state

    def step_policy(self, inputs: PolicyInput) -> tuple[Policy, State]:
        """Return the distribution over actions, and the next state of both torsos."""
        obs = self.normalized(inputs.obs)
        if not self.recurrent:
            return self.policy(obs, inputs.action_mask), inputs.state
        features, state = step_torso(self.network, ACTOR, obs, inputs)
        _, critic_state = step_torso(self.critic.torso, CRITIC, obs, inputs)
        return self.policy_of(features, inputs.action_mask), state | critic_state

    def action_details(self, inputs: PolicyInput, output: PolicyOutput, state: State) -> dict[str, Tensor]:
        """Return the lower critic's value of the action or, if it is discrete, of the policy, and probabilities."""
        obs = self.normalized(inputs.obs)
        if self.recurrent:  # the critics take features of their torso in place of observations
            obs, _ = step_torso(self.critic.torso, CRITIC, obs, inputs)
        if self.continuous:
            scaled = (output.action - self.action_center) / self.action_scale
            return {"value": self.critic(obs, scaled.clamp(-1, 1)).squeeze(-1).amin(0)}
        probabilities = cast(Categorical, self.step_policy(inputs)[0]).log_probs.exp()
        q = self.critic(obs).amin(0)
        return {"value": (probabilities * q).sum(-1), "probabilities": probabilities}

    def unscale_action(self, action: Tensor) -> Tensor:
        """Map an action from [-1, 1] to the environment's units; return a discrete one unchanged."""
        return torch.addcmul(self.action_center, self.action_scale, action) if self.continuous else action

    def normalized(self, obs: Any) -> Any:
        """Return normalised observations."""
        if self.obs_normalizer is None:
            return obs
        return obs.map_obs(self.obs_normalizer) if isinstance(obs, SequenceObs) else self.obs_normalizer(obs)

    def policy(self, obs: Obs | SequenceObs, mask: Tensor | None) -> Policy:
        """Return the distribution over actions in normalised observations `[N, *obs]`."""
        if isinstance(obs, SequenceObs):
            return self.policy_of(obs.features(self.network, ACTOR), mask)
        return self.policy_of(extract_features(self.network, obs), mask)

    def policy_of(self, features: Tensor, mask: Tensor | None) -> Policy:
        """Return the distribution over actions for features `[N, F]` of the actor's torso."""
        return self.head(features) if self.continuous else self.head(features, mask)

    def q(self, critic: nn.Module, obs: Obs | SequenceObs, action: Tensor | None = None) -> Tensor:
        """Return the estimates `[2, N, outputs]` of the critics or the target critics."""
        inputs = obs.features(critic.torso, CRITIC) if isinstance(obs, SequenceObs) else obs
        return critic(inputs, action)

    def prepare(self, collected: OffPolicyIteration) -> SACBatch:
        """Compute n-step returns, and scale actions and observations for the networks."""
        assert collected.transitions is not None
        batch = sac_batch(collected.transitions, self.gamma)
        action = (
            ((batch.action - self.action_center) / self.action_scale).clamp(-1, 1) if self.continuous else batch.action
        )
        obs, next_obs = self.normalized(batch.obs), self.normalized(batch.next_obs)
        return self.curiosity.add_intrinsic_reward(batch._replace(obs=obs, next_obs=next_obs, action=action))

    def update(self, batch: SACBatch) -> MetricVector:
        """Take an optimizer step of every network on each minibatch; return the means of the metrics over them."""
        errors, metrics = self.phases["update"](batch, self.update_noise(batch))
        self.td_errors = batch.priority_errors(errors)
        self.updates += len(batch.return_)
        self.random_warmup.fill_(False)
        return MetricVector(self.metric_names + self.curiosity.metric_names, metrics)

    def update_noise(self, batch: SACBatch) -> Tensor | None:
        """Draw the action noise of updates, `[U, 2, N, ...]`, for next and current state; None if discrete."""
        shape = (len(batch.return_), 2, *batch.return_.shape[1:])
        return self.head.noise(shape, self.minibatch_generator) if self.continuous else None

    def run_updates(self, batch: SACBatch, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Take all updates; return absolute errors of the critics `[U, N]`, and means of the metrics."""
        draws = [(None, None)] * len(batch.return_) if noise is None else [draw.unbind() for draw in noise]
        results = [self.train_minibatch(batch.minibatch(update), *draw) for update, draw in enumerate(draws)]
        errors, metrics = zip(*results, strict=True)
        return torch.stack(errors), torch.stack(metrics).mean(0)

    def train_minibatch(
        self, batch: SACBatch, next_noise: Tensor | None, noise: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Take one update; return absolute errors of the critics `[N]`, and the metrics."""
        errors, metrics = self.gradient_step(batch, next_noise, noise)
        polyak_update_(self.target_critic, self.critic, self.tau)
        return errors, torch.stack(metrics + self.curiosity.learn_(batch, self))

    def gradient_step(
        self, batch: SACBatch, next_noise: Tensor | None, noise: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Step critics, actor and temperature; return the critics' absolute errors, and the metrics."""
        actor, critic, *temperature = self.raw_optimizers[: self.curiosity_index]
        alpha = self.log_alpha.detach().exp()
        critic_loss, errors, q_mean = self.critic_loss(batch, next_noise, alpha)
        critic_norm = self.step(critic_loss, critic, self.max_grad_norm)
        actor_loss, entropy = self.actor_loss(batch, noise, alpha)
        actor_norm = self.step(actor_loss, actor, self.max_grad_norm)
        if temperature:
            surplus = batch.counts * (entropy - self.target_entropy_of(batch.mask))
            loss = temperature_loss(self.log_alpha, surplus, 0.0)
            self.step(loss, temperature[0], NO_CLIP)
        losses = (critic_loss.detach(), actor_loss.detach())
        return errors, [*losses, alpha, entropy.mean(), q_mean, critic_norm, actor_norm]

    def critic_loss(self, batch: SACBatch, noise: Tensor | None, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the summed squared errors of both critics, their mean absolute errors `[N]`, and their mean value."""
        with torch.no_grad():
            value, _ = self.soft_value(self.target_critic, batch.next_obs, noise, batch.next_mask, alpha)
            target = td_target(batch.return_, value, batch.discount)
        if self.continuous:
            q = self.q(self.critic, batch.obs, batch.action).squeeze(-1)
        else:
            q = self.q(self.critic, batch.obs).gather(-1, batch.action.expand(2, -1).unsqueeze(-1)).squeeze(-1)
        error = q - target
        loss = (batch.weight * error.square()).sum(0).mean()
        return loss, error.detach().abs().mean(0), q.detach().mean()

    def actor_loss(self, batch: SACBatch, noise: Tensor | None, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return the negative soft value of the policy under the critics, and its entropy `[N]` without gradient."""
        value, entropy = self.soft_value(self.critic, batch.obs, noise, batch.mask, alpha)
        return -(batch.counts * value).mean(), entropy.detach()

    def soft_value(
        self, critic: nn.Module, obs: Obs | SequenceObs, noise: Tensor | None, mask: Tensor | None, alpha: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the policy's soft value under the lower critic, and its entropy or an estimate of it; both `[N]`."""
        policy = self.policy(obs, mask)
        if isinstance(policy, SquashedGaussian):
            assert noise is not None
            action, log_prob = policy.sample_with_log_prob(noise)
            q1, q2 = self.q(critic, obs, action).squeeze(-1)
            return soft_value(q1, q2, log_prob, alpha), -log_prob
        q1, q2 = self.q(critic, obs).detach()
        return expected_soft_value(q1, q2, policy.log_probs, alpha), policy.entropy()

    def target_entropy_of(self, mask: Tensor | None) -> float | Tensor:
        """Return the current target entropy in nats; one per entry where actions are masked."""
        if self.target_entropy is not None:
            target: float | Tensor = self.target_entropy
        elif self.continuous:
            target = -float(len(self.action_scale))
        else:
            target = self.target_entropy_ratio * self.max_entropy(mask)
        if self.target_entropy_schedule == "constant":
            return target
        return target + self.entropy_decay * (self.max_entropy(mask) - target)

    def max_entropy(self, mask: Tensor | None = None) -> float | Tensor:
        """Return the entropy of uniform actions in nats; one per entry where actions are masked."""
        if self.continuous:
            return len(self.action_scale) * math.log(2.0)
        return math.log(self.spaces["action_sizes"][0]) if mask is None else mask.sum(-1).log()

    def on_fit_start(self) -> None:
        """Explore uniformly until the first update."""
        super().on_fit_start()
        self.curiosity.check(self.data)
        self.random_warmup.fill_(self.updates == 0)

    def update_schedules(self) -> None:
        """Set learning rates, target entropy and the scale of curiosity for the iteration."""
        if self.target_entropy_schedule != "constant":
            self.entropy_decay.fill_(schedule_value(self.target_entropy_schedule, 1.0, self.progress))
        self.curiosity.anneal_(self.env_steps)
        self.schedule_learning_rates_()

    def learning_rates(self) -> list[float]:
        """Return the initial learning rates, in the order of `build_optimizers`."""
        return [self.learning_rate, *[self.critic_learning_rate] * (1 + self.learn_temperature), *self.curiosity.rates]

    def after_update(self, collected: OffPolicyIteration) -> None:
        """Merge the new steps into the running statistics; update the priorities with the critics' errors."""
        if self.obs_normalizer is not None:
            self.obs_normalizer.update_(
                tree_map(lambda part: part[:-1], collected.rollout.obs), collected.rollout.valid
            )
        if collected.transitions is not None:
            collected.replay.update_priorities(collected.transitions.indices, self.td_errors)

    def configure_phases(self) -> dict[str, Phase[Any]]:
        """Return the phases `prepare` and `update`, the latter all updates of an iteration."""
        update = Phase(
            self.run_updates,
            self.device,
            name="update",
            compile_targets=[(self, name) for name in self.compiled_methods],
            mutated_tensors=self.mutated_tensors,
        )
        return {"prepare": Phase(self.prepare, self.device, name="prepare"), "update": update}

    def build_optimizers(self) -> list[Optimizer]:
        """Return the optimizers of actor, critics and, if learned, temperature and curiosity.

        Weight decay does not apply to the temperature.
        """
        actor, critic = [*self.network.parameters(), *self.head.parameters()], self.critic.parameters()
        networks = [make_optimizer(self.optimizer, each) for each in (actor, critic)]
        temperature = (
            [without_decay(make_optimizer(self.optimizer, [self.log_alpha]))] if self.learn_temperature else []
        )
        return [*networks, *temperature, *(make_optimizer(self.optimizer, each) for each in self.curiosity.groups)]
