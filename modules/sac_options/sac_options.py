"""Soft actor-critic over options."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from datamodules.core.errors import UsageError
from datamodules.core.seeding import restore_generator, run_seed, stream_generator
from datamodules.core.types import Decision, Experience, Spaces, State
from modules.base.checks import check_single_steps
from modules.functional.options import choice_noise, option_target
from modules.functional.sampling import gumbel
from modules.functional.soft_actor_critic import expected_soft_value, soft_value, temperature_loss
from modules.networks.base import Network, features_of
from modules.networks.heads.option import Torso
from modules.networks.heads.policy import CategoricalHead
from modules.networks.heads.squashed_gaussian import SquashedGaussian, SquashedGaussianHead
from modules.optim.optimizer_group import make_optimizer, without_decay
from modules.sac.batch import SACBatch
from modules.sac.sac import SAC, UNBOUNDED
from modules.sac_options.controller import Arrival, Controller, Judged
from modules.sac_options.intra_option_policy import Policies, divergence, of_option, own_q, policies, shared_q
from modules.sac_options.option_record import Executed
from modules.sac_options.scripted import OptionPolicy, check_scripts
from modules.sac_options.update_metrics import measures, names
from modules.sac_options.usage_metrics import OptionStatistics


class SACOptions(SAC):
    """Soft actor-critic with call-and-return options, all learned off-policy in one objective.

    maximise E sum gamma^t [r_t + alpha H(pi(. | s_t, w_t)) + b_t alpha_option H(mu(. | s_t))], where b_t says that an
    option begins at t. One option is soft actor-critic, to the last bit of every weight.

    1. The actor has a head and the critics Q(s, w, a) a column an option.
    2. Arriving in s' with w is worth U = V + beta (V_master - V); see `modules.functional.options`.
    3. Q is conditioned on the action, so every option learns from every step, without ratios; see the controller's
       `update_mode` for less.
    4. The master improves softly on V; while an option starves, the KL of usage over all states is added.
    5. Terminations descend beta (A / std(A) + margin): no entropy in A, else ending would pay.
    6. Two temperatures, each with a target entropy; every network has an optimizer and a clip of its own. The master
        learns at the actor's rate, the terminations at a third of it.
    7. Only `terminated` stops a bootstrap. Masks of s and s' hold in acting, targets and losses.
    8. Before the first update actions are uniform; options are chosen and ended all the same.

    Args:
        spaces: what the environment shows and takes; on the command line it comes from the data.
        options: K, number of learned options.
        scripted: hand-written options instead, of which only the controller is learned (and the actor where they use
            it); they see observations as they are.
        controller: makes what chooses and ends options, from `obs_shape`, K and `scripted`.
        sac: as of `modules.sac.sac.SAC`.

    Raises: UsageError for values that cannot be.

    Source: Bacon, Harb and Precup 2017, arXiv:1609.05140; Li et al. 2020, arXiv:2006.14363, for options with entropy.
    """

    compiled = ("critics_loss", "policies_loss")
    statistics: OptionStatistics

    def __init__(
        self,
        spaces: Spaces,
        options: int = 4,
        scripted: list[OptionPolicy] | None = None,
        controller: Callable[[tuple[int, ...], int, list[OptionPolicy] | None], Controller] = Controller,
        **sac: Any,
    ):
        self.options = options if scripted is None else len(scripted)  # `make_networks` reads it
        check_scripts(scripted, sac.get("normalize_obs", False), spaces["action_kind"])
        super().__init__(spaces, **sac)
        self.controller = self.with_obs_scale(controller(spaces["obs_shape"], self.options, scripted))
        self.metrics = names(self.options)
        self.min_duration = int(self.controller.min_duration.min())
        self.option_generator: torch.Generator | None = None
        if self.noise_hold != 1:
            raise UsageError("Options last by themselves: leave model.noise_hold at 1.")

    def setup(self, stage: str) -> None:
        """Refuse windows of several steps: their later actions may be another option's."""
        super().setup(stage)
        check_single_steps(self.data, "an option")

    def make_networks(self, network: Torso, critic: Callable[[tuple[int, ...], int, int], nn.Module]) -> None:
        """As of soft actor-critic with K heads and K columns; made in the same order, so that one option is the same.

        Several heads start apart, with gain 1: options that begin alike and learn from the same steps stay alike.
        """
        super().make_networks(network, lambda shape, dims, outputs: critic(shape, dims, self.options * outputs))
        features, dims, sizes = cast(Network, self.network).features, len(self.scale), self.spaces["action_sizes"]
        if self.options > 1:
            wide = partial(CategoricalHead, features, self.options * sum(sizes))
            self.head = SquashedGaussianHead(features, dims, self.options) if self.continuous else wide()
            nn.init.orthogonal_(self.head.linear.weight)

    def initial_state(self, batch: int) -> State:
        """No option runs; the environment's `option_mask` is put beside it at every step."""
        return self.controller.initial_state(batch)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """For the action, from `generator`, as soft actor-critic draws it; for the option, from a stream of its own."""
        own = self.option_generator if self.training and self.option_generator is not None else generator
        return torch.cat([self.action_noise(shape, generator), choice_noise(shape, self.options, own)], -1)

    def action_noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Normal noise for a box, Gumbel for choices: of one option at each index of `shape`."""
        if self.continuous:
            return torch.randn((*shape, len(self.scale)), generator=generator, device=generator.device)
        return gumbel((*shape, *self.spaces["action_sizes"]), generator)

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
        """Go on with each row's option or begin another, then do what it says: all rows in one forward."""
        obs, age = self.normalized(obs), state["option_age"]
        draw, option_draw = (None, None) if greedy or noise is None else self._split(noise)
        choice = self.controller.choose(obs, state, reset, option_draw)
        since = (choice.age - 1).unsqueeze(-1).expand(-1, self.options)
        policy = self.option_policies(obs, mask, since)
        action = policy.mode
        if draw is not None:
            action = torch.where(self.exploring, policy.uniform(draw), policy.sample(draw))
        action = of_option(self.played(obs, since, self.in_units(action)), choice.option)
        executed = Executed(choice.option, state["option"], choice.begun, age.masked_fill(reset, 0))
        state = {**state, "option": choice.option, "option_age": choice.age}
        return Decision(action, {} if greedy else executed.extras()), state

    def _split(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        own = noise.shape[-1] - self.options - 1
        return noise[..., :own].unsqueeze(1), noise[..., own:]

    def played(self, obs: Tensor, age: Tensor, action: Tensor) -> Tensor:
        """What every option does, `[N, K, ...]` in the environment's units: a script has the last word."""
        scripted = self.controller.scripted
        return action if scripted is None else scripted.action(obs, age, action)

    def option_policies(self, obs: Tensor, mask: Tensor | None, age: Tensor) -> Policies:
        """Every option's distribution over actions, `[N, K, ...]`; a scripted choice is certain.

        Args:
            mask: `[N, A]`.   age: steps that options have run, `[N, K]`, for scripts.
        """
        features = features_of(self.network, obs)
        certain = None
        if self.controller.scripted is not None and not self.continuous:
            certain = self.controller.scripted.action(obs, age, torch.zeros_like(age))
        return policies(self.head(features), self.options, mask, certain)

    def update_noise(self, batch: SACBatch) -> Tensor | None:
        """What updates sample every option's actions with, `[U, 2, N, K, ...]`; choices need none."""
        shape = (len(batch.return_), 2, *batch.return_.shape[1:], self.options)
        return self.action_noise(shape, self.minibatch_generator) if self.continuous else None

    def descend(self, batch: SACBatch, next_noise: Tensor | None, noise: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """One step of the critics, then one of all that act and choose: errors `[N]` and metrics."""
        executed, alpha = Executed.of(batch.extras), self.log_alpha.detach().exp()
        by, bound = self.by_name, self.max_grad_norm
        critic_loss, errors, judged = self.critics_loss(batch, executed, next_noise, alpha)
        critic_norm = self.step(critic_loss, by["critic"], bound)
        loss, measured = self.policies_loss(batch, executed, noise, judged, alpha)
        bounds = {by[name]: UNBOUNDED if "alpha" in name else bound for name in self.acting if name in by}
        norms = self.optimization.step_each(loss, bounds)
        actor_norm = norms[0] if self.controller.learns_actor else torch.zeros_like(critic_norm)
        return errors, [*measured.unbind(), critic_norm, actor_norm]

    @property
    def acting(self) -> list[str]:
        """What learns beside the critics, by the names of `by_name`."""
        actor = ["actor", "alpha"] if self.controller.learns_actor else []
        return [*actor, "master", "alpha_option", "ending"]

    @torch.no_grad()
    def arrival(self, batch: SACBatch, executed: Executed, noise: Tensor | None, alpha: Tensor) -> Arrival:
        """What arriving in s' is worth, by the target critics."""
        age, offers = self.controller.ages(executed), batch.next_masks.get("option_mask")
        policy = self.option_policies(batch.next_obs, batch.next_mask, age)
        value, _ = self.option_values(self.target_critic, policy, batch.next_obs, age, noise, alpha)
        return self.controller.arrival(batch.next_obs, offers, value, executed)

    def critics_loss(
        self, batch: SACBatch, executed: Executed, noise: Tensor | None, alpha: Tensor
    ) -> tuple[Tensor, Tensor, Judged]:
        """Squared errors of both critics of all options; absolute errors of those that acted `[N]`; what they know."""
        arrival = self.arrival(batch, executed, noise, alpha)
        weight = self.controller.weight(batch.obs, batch.extras.get("option_mask"), executed)
        weight = weight * batch.weight.sign().unsqueeze(-1)
        target = option_target(batch.return_, arrival.upon_arrival, batch.terminated, discount=batch.discount)
        q = shared_q(self.critic, batch.obs, batch.action, self.options)
        loss = (weight * batch.weight.unsqueeze(-1) * (q - target).square()).sum(-1).sum(0).mean()
        errors = of_option((q - target).detach().abs().mean(0), executed.option)
        return loss, errors, Judged(loss.detach(), weight, arrival, q.detach().amin(0))

    def policies_loss(
        self, batch: SACBatch, executed: Executed, noise: Tensor | None, judged: Judged, alpha: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The sum of what actor, master, terminations and temperatures descend, a network each; and `measures`."""
        control, offers = self.controller, batch.extras.get("option_mask")
        age = (executed.age - 1).unsqueeze(-1).expand(-1, self.options)
        policy = self.option_policies(batch.obs, batch.mask, age)
        value, entropy = self.option_values(self.critic, policy, batch.obs, age, noise, alpha)
        actor = -(judged.weight * control.learned * value).sum(-1).mean()
        entropy = entropy.detach()
        master, surplus, log_master = control.master_loss(batch.obs, offers, value)
        ending = control.termination_loss(batch.next_obs, executed, judged.arrival, batch.terminated, judged.weight)
        temperatures = control.alpha_loss(surplus)
        if self.tune_alpha:
            temperatures = temperatures + self.alpha_loss(batch, entropy, judged.weight)
        scalars = [judged.loss, actor, master, ending[0], alpha, control.alpha]
        measured = measures(scalars, judged.q, entropy, log_master, divergence(policy), *ending[1:])
        return actor + master + ending[0] + temperatures, measured

    def alpha_loss(self, batch: SACBatch, entropy: Tensor, weight: Tensor) -> Tensor:
        """Of the actions' temperature, over the options that learn."""
        wanted = self.entropy_wanted(batch.mask)
        surplus = entropy - (wanted if isinstance(wanted, float) else wanted.unsqueeze(-1))
        return temperature_loss(self.log_alpha, (weight * self.controller.learned * surplus).sum(-1), 0.0)

    def option_values(
        self, critic: nn.Module, policy: Policies, obs: Tensor, age: Tensor, noise: Tensor | None, alpha: Tensor
    ) -> tuple[Tensor, Tensor]:
        """V(s, w) = E[min_i Q_i(s, w, a) - alpha log pi(a | s, w)] and the entropies or estimates of them, `[N, K]`."""
        if isinstance(policy, SquashedGaussian):
            action, log_prob = policy.sample_with_log_prob(cast(Tensor, noise))
            if self.controller.scripted is not None:
                action = (self.played(obs, age, self.in_units(action)) - self.centre) / self.scale
                log_prob = log_prob * self.controller.learned
            q1, q2 = own_q(critic, obs, action)
            return soft_value(q1, q2, log_prob, alpha), -log_prob
        q1, q2 = critic(obs).detach().unflatten(-1, (self.options, -1))
        return expected_soft_value(q1, q2, policy.log_probs, alpha), policy.entropy()

    def schedule_(self) -> None:
        """Adds the master's target entropy."""
        super().schedule_()
        self.controller.anneal_(self.progress)

    def learning_rates(self) -> list[float]:
        """Adds those of the master, its temperature and the terminations."""
        ending = [] if self.controller.ending is None else [self.learning_rate / 3]
        return [*super().learning_rates(), self.learning_rate, self.critic_learning_rate, *ending]

    def absorb_(self, experience: Experience) -> None:
        """Counts what options did."""
        super().absorb_(experience)
        self.statistics.update(experience.rollout)

    def log_values(self, values: dict[str, float], env_steps: int | None = None) -> None:
        """Adds what options did to what training measured; all of it has tags `option/`."""
        if "train/learning_rate" in values:
            values = {tag.replace("train/option/", "option/"): value for tag, value in values.items()}
            values |= {f"option/{name}": value for name, value in self.statistics.log().items()}
        super().log_values(values, env_steps)

    @property
    def by_name(self) -> dict[str, Optimizer]:
        """What `make_optimizers` made, while fitting."""
        names = ["actor", "critic", *["alpha"] * self.tune_alpha, *["curiosity"] * len(self.curiosity.groups)]
        names += ["master", "alpha_option", "ending"]
        return dict(zip(names, self.raw_optimizers, strict=False))

    def make_optimizers(self) -> list[Optimizer]:
        """Adds those of the master, its temperature and, unless options are scripted, the terminations."""
        control = self.controller
        own = [
            make_optimizer(self.optimizer, control.master.parameters()),
            without_decay(make_optimizer(self.optimizer, [control.log_alpha])),
        ]
        own += [] if control.ending is None else [make_optimizer(self.optimizer, control.ending.parameters())]
        return super().make_optimizers() + own

    def on_fit_start(self) -> None:
        """Makes the options' own randomness and statistics, on this rank's device."""
        self.option_generator = stream_generator(run_seed(), self.global_rank, "option", self.device)
        self.statistics = OptionStatistics(self.options, self.controller.max_duration)
        super().on_fit_start()

    def rank_state(self) -> dict[str, Any]:
        """Adds the options' generator and statistics."""
        generator = cast(torch.Generator, self.option_generator)
        own = {"generator": generator.get_state(), "statistics": self.statistics.remembered()}
        return super().rank_state() | {"option": own}

    def load_rank_state(self, state: dict[str, Any]) -> None:
        """Continue from `rank_state`."""
        super().load_rank_state(state)
        restore_generator(cast(torch.Generator, self.option_generator), state["option"]["generator"])
        self.statistics.remember(state["option"]["statistics"])
