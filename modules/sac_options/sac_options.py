"""Soft actor-critic over options (`SACOptions`)."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from datamodules.core.errors import ConfigurationError
from datamodules.core.seeding import derive_generator, global_seed, restore_generator
from datamodules.core.types import Obs, OffPolicyIteration, PolicyInput, PolicyOutput, ReplayBatch, SpaceSpec, State
from modules.base.checks import check_feed_forward, check_one_step
from modules.functional.options import choice_noise, option_target
from modules.functional.sampling import gumbel
from modules.functional.soft_actor_critic import expected_soft_value, soft_value, temperature_loss
from modules.networks.base import Network, extract_features
from modules.networks.distributions import Categorical
from modules.networks.heads.option import Torso
from modules.networks.heads.policy import CategoricalHead
from modules.networks.heads.squashed_gaussian import SquashedGaussian, SquashedGaussianHead
from modules.networks.multi_input import obs_shape_of
from modules.optim.optimizer_group import make_optimizer, without_decay
from modules.sac.batch import SACBatch
from modules.sac.sac import NO_CLIP, SAC
from modules.sac_options.controller import CriticOutputs, NextStateValues, OptionController
from modules.sac_options.intra_option_policy import (
    Policies,
    divergence,
    gather_option,
    policies,
    q_of_option_actions,
    q_of_taken_action,
)
from modules.sac_options.option_record import OptionRecord
from modules.sac_options.option_reward import OptionReward, check_option_rewards, rewards_of_options
from modules.sac_options.scripted import OptionPolicy, check_scripts
from modules.sac_options.update_metrics import metric_names, update_metrics
from modules.sac_options.usage_metrics import OptionStatistics


class SACOptions(SAC):
    """Soft actor-critic with call-and-return options, all learned off-policy with one objective.

    maximise E sum gamma^t [r_t + alpha H(pi(. | s_t, w_t)) + b_t alpha_option H(mu(. | s_t))], where b_t is 1 if an
    option starts at t. One option equals soft actor-critic, to the last bit of every weight.

    1. The actor has one head and the critics Q(s, w, a) one column per option.
    2. The value of arriving in s' with w is U = V + beta (V_master - V); see `modules.functional.options`.
    3. Q is conditioned on the action, so every option learns from every step, without importance ratios; the
       controller's `update_mode` restricts this.
    4. The master is improved softly on V; while an option is used too little, the KL of the usage over all states is
       added.
    5. Terminations minimise beta (A / std(A) + margin); A has no entropy term, else terminating would be rewarded.
    6. Two temperatures, each with a target entropy; every network has its own optimizer and gradient clipping. The
       master's learning rate is the actor's, the terminations' a third of it.
    7. Only termination of the episode stops a bootstrap. Masks of s and s' apply in acting, targets and losses.
    8. Before the first update actions are uniform, and options are chosen and terminated as usual; with `warmup`
       options, the choice of an option is uniform instead, and its own policy acts.
    9. With `option_rewards` every option maximises its own reward, as if it never ended, and only the choice and the
       terminations maximise the task's: the critics have K more columns for the options' own values.

    Args:
        spaces: observation and action space; on the command line it comes from the data.
        num_options: K, number of learned options.
        scripted_options: hand-written options instead, of which only the controller is learned (and the actor where
            they use it); they get unnormalised observations.
        controller: makes the option controller from `obs_shape`, K and `scripted_options`.
        warmup: what is drawn uniformly before the first update: `actions`, or `options` among those that may start.
        option_rewards: reward of each learned option: `task`, a name in the environment's info that begins with
            `reward_`, or a class_path (`modules.sac_options.option_reward.OptionReward`). Discrete actions.
        sac: arguments of `modules.SAC`.

    Raises: ConfigurationError for values out of range.

    Source: Bacon, Harb and Precup 2017, arXiv:1609.05140; Li et al. 2020, arXiv:2006.14363, for options with
        entropy.
    """

    compiled_methods = ("option_critic_loss", "policy_losses")
    statistics: OptionStatistics

    def __init__(
        self,
        spaces: SpaceSpec,
        num_options: int = 4,
        scripted_options: list[OptionPolicy] | None = None,
        controller: Callable[[Any, int, list[OptionPolicy] | None], OptionController] = OptionController,
        warmup: Literal["actions", "options"] = "actions",
        option_rewards: list[OptionReward | str] | None = None,
        **sac: Any,
    ):
        self.warmup, self.option_rewards = warmup, option_rewards
        # `make_networks` reads it.
        self.num_options = num_options if scripted_options is None else len(scripted_options)
        learned = scripted_options is None and spaces["action_type"] == "discrete"
        check_option_rewards(option_rewards, self.num_options, learned)
        check_scripts(scripted_options, sac.get("normalize_obs", False), spaces)
        super().__init__(spaces, **sac)
        self.controller = self.with_obs_scale(controller(obs_shape_of(spaces), self.num_options, scripted_options))
        self.metric_names = metric_names(self.num_options)
        self.min_duration = int(self.controller.min_duration.min())
        self.option_generator: torch.Generator | None = None
        if self.noise_hold != 1:
            raise ConfigurationError("Options are held over several steps already: leave model.noise_hold at 1.")

    @property
    def critic_columns(self) -> int:
        """Return K: the critics have one column per option, and one more for its own reward."""
        return self.num_options * (1 if self.option_rewards is None else 2)

    def setup(self, stage: str) -> None:
        """Refuse windows of several steps, whose later actions may be another option's."""
        super().setup(stage)
        check_one_step(self.data, "an option")

    def make_networks(self, network: Torso, critic: Callable[[tuple[int, ...], int, int], nn.Module]) -> None:
        """Create SAC's networks with K heads and K columns, in the same order, so that one option equals SAC.

        Several heads are initialised with gain 1: options with equal initial policies and equal data would stay equal.
        """
        super().make_networks(network, critic)
        check_feed_forward(self.network, "SACOptions")
        features, dims, sizes = (
            cast(Network, self.network).features,
            len(self.action_scale),
            self.spaces["action_sizes"],
        )
        if self.num_options > 1:
            wide = partial(CategoricalHead, features, self.num_options * sum(sizes))
            self.head = SquashedGaussianHead(features, dims, self.num_options) if self.continuous else wide()
            nn.init.orthogonal_(self.head.linear.weight)

    def initial_state(self, batch: int) -> State:
        """Return the state before any option runs; the environment's `option_mask` is added at every step."""
        return self.controller.initial_state(batch)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the action's noise from `generator`, as SAC does, and the option's from a separate generator."""
        own = self.option_generator if self.training and self.option_generator is not None else generator
        return torch.cat([self.action_noise(shape, generator), choice_noise(shape, self.num_options, own)], -1)

    def action_noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the noise of one option's action per index of `shape`: normal for Box, Gumbel for Discrete actions."""
        if self.continuous:
            return torch.randn((*shape, len(self.action_scale)), generator=generator, device=generator.device)
        return gumbel((*shape, *self.spaces["action_sizes"]), generator)

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Continue each row's option or choose a new one, then return its action: all rows in one forward pass."""
        obs, state, episode_start, mask = inputs
        obs, age = self.normalized(obs), state["option_age"]
        draw, option_draw = (None, None) if greedy or noise is None else self._split(noise)
        warms_up = self.random_warmup if self.warmup == "options" and option_draw is not None else None
        choice = self.controller.choose(obs, state, episode_start, option_draw, warms_up)
        since = (choice.age - 1).unsqueeze(-1).expand(-1, self.num_options)
        policy = self.option_policies(obs, mask, since)
        action = policy.mode
        if draw is not None:
            action = policy.sample(draw)
            if self.warmup == "actions":
                action = torch.where(self.random_warmup, policy.uniform(draw), action)
        action = gather_option(self.executed_action(obs, since, self.unscale_action(action)), choice.option)
        executed = OptionRecord(choice.option, state["option"], choice.started, age.masked_fill(episode_start, 0))
        state = {**state, "option": choice.option, "option_age": choice.age}
        return PolicyOutput(action, {} if greedy else executed.extras()), state

    def action_details(self, inputs: PolicyInput, output: PolicyOutput, state: State) -> dict[str, Tensor]:
        """Return the lower critic's value of the action under the running option, and its probabilities."""
        obs, option = self.normalized(inputs.obs), state["option"]
        action = (output.action - self.action_center) / self.action_scale if self.continuous else output.action
        q = q_of_taken_action(self.critic, obs, action, self.critic_columns).amin(0)
        details = {"value": gather_option(q, option)}
        if self.continuous:
            return details
        age = (state["option_age"] - 1).unsqueeze(-1).expand(-1, self.num_options)
        log_probs = cast(Categorical, self.option_policies(obs, inputs.action_mask, age)).log_probs
        return details | {"probabilities": gather_option(log_probs, option).exp()}

    def _split(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        own = noise.shape[-1] - self.num_options - 1
        return noise[..., :own].unsqueeze(1), noise[..., own:]

    def executed_action(self, obs: Obs, age: Tensor, action: Tensor) -> Tensor:
        """Return every option's action, `[N, K, ...]` in the environment's units; scripts replace the actor's."""
        scripted = self.controller.scripted_options
        return action if scripted is None else scripted.action(obs, age, action)

    def option_policies(self, obs: Obs, mask: Tensor | None, age: Tensor) -> Policies:
        """Return every option's distribution over actions, `[N, K, ...]`; a scripted discrete action has probability 1.

        Args:
            mask: `[N, A]`.
            age: steps that options have run, `[N, K]`, for scripts.
        """
        features = extract_features(self.network, obs)
        certain = None
        if self.controller.scripted_options is not None and not self.continuous:
            certain = self.controller.scripted_options.action(obs, age, torch.zeros_like(age))
        return policies(self.head(features), self.num_options, mask, certain)

    def prepare(self, collected: OffPolicyIteration) -> SACBatch:
        """Add the options' own rewards, `option_reward`, to the extras."""
        batch = super().prepare(collected)
        if self.option_rewards is None:
            return batch
        own = rewards_of_options(self.option_rewards, cast(ReplayBatch, collected.transitions), batch.return_)
        return batch._replace(extras=batch.extras | {"option_reward": own})

    def update_noise(self, batch: SACBatch) -> Tensor | None:
        """Draw the action noise of updates, `[U, 2, N, K, ...]`; None for discrete actions."""
        shape = (len(batch.return_), 2, *batch.return_.shape[1:], self.num_options)
        return self.action_noise(shape, self.minibatch_generator) if self.continuous else None

    def gradient_step(
        self, batch: SACBatch, next_noise: Tensor | None, noise: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Step the critics, then actor, master, terminations and temperatures; return errors `[N]` and metrics."""
        executed, alpha = OptionRecord.of(batch.extras), self.log_alpha.detach().exp()
        by, bound = self.optimizers_by_name, self.max_grad_norm
        critic_loss, errors, critic_outputs = self.option_critic_loss(batch, executed, next_noise, alpha)
        critic_norm = self.step(critic_loss, by["critic"], bound)
        loss, metrics = self.policy_losses(batch, executed, noise, critic_outputs, alpha)
        bounds = {by[name]: NO_CLIP if "alpha" in name else bound for name in self.policy_optimizer_names if name in by}
        norms = self.optim.step_many(loss, bounds)
        actor_norm = norms[0] if self.controller.learns_actor else torch.zeros_like(critic_norm)
        return errors, [*metrics.unbind(), critic_norm, actor_norm]

    @property
    def policy_optimizer_names(self) -> list[str]:
        """Return the names, in `optimizers_by_name`, of the optimizers besides the critics'."""
        actor = ["actor", "alpha"] if self.controller.learns_actor else []
        return [*actor, "master", "alpha_option", "termination"]

    @torch.no_grad()
    def next_state_values(
        self, batch: SACBatch, executed: OptionRecord, noise: Tensor | None, alpha: Tensor
    ) -> tuple[NextStateValues, Tensor]:
        """Return the values of arriving in s' by the target critics, and by the options' own rewards, `[N, 0 or K]`."""
        age, offers = self.controller.ages(executed), batch.next_masks.get("option_mask")
        policy = self.option_policies(batch.next_obs, batch.next_mask, age)
        value, _ = self.option_values(self.target_critic, policy, batch.next_obs, age, noise, alpha)
        task, own = value[:, : self.num_options], value[:, self.num_options :]
        return self.controller.next_state_values(batch.next_obs, offers, task, executed), own

    def option_critic_loss(
        self, batch: SACBatch, executed: OptionRecord, noise: Tensor | None, alpha: Tensor
    ) -> tuple[Tensor, Tensor, CriticOutputs]:
        """Return the critics' loss, the acting options' absolute errors `[N]`, and inputs of the policy losses."""
        arrival, own = self.next_state_values(batch, executed, noise, alpha)
        weight = self.controller.weight(batch.obs, batch.extras.get("option_mask"), executed)
        weight = weight * batch.counts.unsqueeze(-1)
        target = option_target(batch.return_, arrival.upon_arrival, batch.terminated, discount=batch.discount)
        q = q_of_taken_action(self.critic, batch.obs, batch.action, self.critic_columns)
        error = q[..., : self.num_options] - target
        loss = (weight * batch.weight.unsqueeze(-1) * error.square()).sum(-1).sum(0).mean()
        if self.option_rewards is not None:
            own = batch.extras["option_reward"] + batch.discount.unsqueeze(-1) * own
            own_error = q[..., self.num_options :] - own
            loss = loss + (weight * batch.weight.unsqueeze(-1) * own_error.square()).sum(-1).sum(0).mean()
        q = q[..., : self.num_options]
        errors = gather_option(error.detach().abs().mean(0), executed.option)
        return loss, errors, CriticOutputs(loss.detach(), weight, arrival, q.detach().amin(0))

    def policy_losses(
        self,
        batch: SACBatch,
        executed: OptionRecord,
        noise: Tensor | None,
        critic_outputs: CriticOutputs,
        alpha: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the sum of the losses of actor, master, terminations and temperatures; and the update's metrics."""
        control, offers = self.controller, batch.extras.get("option_mask")
        age = (executed.age - 1).unsqueeze(-1).expand(-1, self.num_options)
        policy = self.option_policies(batch.obs, batch.mask, age)
        value, entropy = self.option_values(self.critic, policy, batch.obs, age, noise, alpha)
        value, sought = value[:, : self.num_options], value[:, -self.num_options :]
        actor = -(critic_outputs.weight * control.uses_actor * sought).sum(-1).mean()
        entropy = entropy.detach()
        master, surplus, log_master = control.master_loss(batch.obs, offers, value)
        ending = control.termination_loss(
            batch.next_obs, executed, critic_outputs.arrival, batch.terminated, critic_outputs.weight
        )
        temperatures = control.alpha_loss(surplus)
        if self.learn_temperature:
            temperatures = temperatures + self.alpha_loss(batch, entropy, critic_outputs.weight)
        scalars = [critic_outputs.loss, actor, master, ending[0], alpha, control.alpha]
        metrics = update_metrics(scalars, critic_outputs.q, entropy, log_master, divergence(policy), *ending[1:])
        return actor + master + ending[0] + temperatures, metrics

    def alpha_loss(self, batch: SACBatch, entropy: Tensor, weight: Tensor) -> Tensor:
        """Return the loss of the actions' temperature, over the options that use the actor."""
        wanted = self.target_entropy_of(batch.mask)
        surplus = entropy - (wanted if isinstance(wanted, float) else wanted.unsqueeze(-1))
        return temperature_loss(self.log_alpha, (weight * self.controller.uses_actor * surplus).sum(-1), 0.0)

    def option_values(
        self, critic: nn.Module, policy: Policies, obs: Obs, age: Tensor, noise: Tensor | None, alpha: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return V(s, w) = E[min_i Q_i(s, w, a) - alpha log pi(a | s, w)] and the (estimated) entropies, `[N, K]`.

        With the options' own rewards V is `[N, 2 K]`: by the task's, then by their own.
        """
        if isinstance(policy, SquashedGaussian):
            action, log_prob = policy.sample_with_log_prob(cast(Tensor, noise))
            if self.controller.scripted_options is not None:
                action = (
                    self.executed_action(obs, age, self.unscale_action(action)) - self.action_center
                ) / self.action_scale
                log_prob = log_prob * self.controller.uses_actor
            q1, q2 = q_of_option_actions(critic, obs, action)
            return soft_value(q1, q2, log_prob, alpha), -log_prob
        q1, q2 = critic(obs).detach().unflatten(-1, (self.critic_columns, -1))
        log_probs = policy.log_probs if self.option_rewards is None else policy.log_probs.repeat(1, 2, 1)
        return expected_soft_value(q1, q2, log_probs, alpha), policy.entropy()

    def update_schedules(self) -> None:
        """Set also the master's target entropy."""
        super().update_schedules()
        self.controller.anneal_(self.progress)

    def learning_rates(self) -> list[float]:
        """Return SAC's rates and those of the master, its temperature and the terminations."""
        ending = [] if self.controller.termination_net is None else [self.learning_rate / 3]
        return [*super().learning_rates(), self.learning_rate, self.critic_learning_rate, *ending]

    def after_update(self, collected: OffPolicyIteration) -> None:
        """Count also the usage of options."""
        super().after_update(collected)
        self.statistics.update(collected.rollout)

    def log_values(self, values: dict[str, float], env_steps: int | None = None) -> None:
        """Add the usage of options to the training metrics, under `option/`."""
        if "train/learning_rate" in values:
            values = {tag.replace("train/option/", "option/"): value for tag, value in values.items()}
            values |= {f"option/{name}": value for name, value in self.statistics.log().items()}
        super().log_values(values, env_steps)

    @property
    def optimizers_by_name(self) -> dict[str, Optimizer]:
        """Return the optimizers of `build_optimizers` by name, while fitting."""
        names = ["actor", "critic", *["alpha"] * self.learn_temperature, *["curiosity"] * len(self.curiosity.groups)]
        names += ["master", "alpha_option", "termination"]
        return dict(zip(names, self.raw_optimizers, strict=False))

    def build_optimizers(self) -> list[Optimizer]:
        """Return SAC's optimizers and those of the master, its temperature and, if learned, the terminations."""
        control = self.controller
        own = [
            make_optimizer(self.optimizer, control.master.parameters()),
            without_decay(make_optimizer(self.optimizer, [control.log_alpha])),
        ]
        own += (
            []
            if control.termination_net is None
            else [make_optimizer(self.optimizer, control.termination_net.parameters())]
        )
        return super().build_optimizers() + own

    def on_fit_start(self) -> None:
        """Create the options' generator and statistics, on this rank's device."""
        self.option_generator = derive_generator(global_seed(), self.global_rank, "option", self.device)
        self.statistics = OptionStatistics(self.num_options, self.controller.max_duration)
        super().on_fit_start()

    def rank_state_dict(self) -> dict[str, Any]:
        """Add the options' generator and statistics."""
        generator = cast(torch.Generator, self.option_generator)
        own = {"generator": generator.get_state(), "statistics": self.statistics.export_state()}
        return super().rank_state_dict() | {"option": own}

    def load_rank_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state saved by `rank_state_dict`."""
        super().load_rank_state_dict(state)
        restore_generator(cast(torch.Generator, self.option_generator), state["option"]["generator"])
        self.statistics.import_state(state["option"]["statistics"])
