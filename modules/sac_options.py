"""Soft actor-critic over options."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from datamodules.joint import Joint
from datamodules.seeds import restore_generator, run_seed, stream_generator
from datamodules.types import Decision, Experience, Scalars, Spaces, State, Transitions, UsageError
from modules.algorithm import Algorithm, Collected
from modules.checks import check_values
from modules.functional.options import option_target
from modules.functional.soft import follow_
from modules.hparams import keep_hyperparameters
from modules.networks.mlp import MLP
from modules.networks.option_heads import Torso
from modules.networks.twin import TwinMLP
from modules.options.actor import OptionActor
from modules.options.continuous import MakeCritic
from modules.options.controller import Arrival, Controller, UpdateMode
from modules.options.executed import Executed
from modules.options.measures import measures, names
from modules.options.scripted import OptionPolicy
from modules.options.statistics import OptionStatistics

TORSO = partial(MLP, hidden=(256, 256), activation="relu")
OPTION_TORSO = partial(MLP, hidden=(128, 128), activation="relu")


class SACOptions(Algorithm):
    """Soft actor-critic with call-and-return options, learned off-policy in one objective.

    maximise E sum gamma^t [r_t + alpha_action H(pi(. | s_t, w_t)) + b_t alpha_option H(mu(. | s_t))], where b_t says
    that an option begins at t. With one option this is soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905), to
    the last bit of every weight.

    1. The actor has a head an option, critics Q(s, w, a) a column an option: minimum of two, Polyak targets.
    2. Arriving in s' with w is worth U = V + beta (V_master - V); see `modules.functional.options`.
    3. Q is conditioned on the action, so every option learns from every step, without ratios (`update_mode` all); or
       only the one that acted (executed); or in proportion to how likely each was (multi: Klissarov and Precup 2021,
       arXiv:2112.03097, with `multi_weight`).
    4. The master improves softly on V; while an option starves, the KL of usage over all states is added.
    5. Terminations descend beta (A / std(A) + deliberation_margin): no entropy in A, else ending would pay.
    6. Two temperatures, each with a target entropy; every network has an optimizer and a clip of its own.
    7. Only `terminated` stops a bootstrap. Masks of s and s' hold in acting, targets and losses.
    8. Before `data.learning_starts` actions are uniform; options are chosen and ended all the same.

    Args:
        spaces: what the environment shows and takes; on the command line it comes from the data.
        network: makes the actor's torso.   critic: makes the twin critics.
        option_network: makes the torsos of master and terminations, which run at every step: keep them small.
        options: K.   scripted: hand-written options instead, of which only the controller is learned (and the actor
            where they use it).
        update_mode, multi_weight: see 3.
        optimizer: makes each of the optimizers.
        learning_rate: of actor, master and their temperatures.   critic_learning_rate: of the critics; null for the
            same.   termination_learning_rate: null for a third of `learning_rate`.
        gamma: discount per environment step, in [0, 1].   tau: share of the weights that targets take over an update.
        alpha_action, alpha_option: temperatures at the start, in units of the return per nat.
        action_entropy: target entropy: of a continuous action per part in nats, below 0; of a discrete one as a part of
            an even choice. Null for -1 and 0.3.
        option_entropy, option_entropy_end: target of the master's, as a part of an even choice, at the start and the
            end of the run.
        usage_weight: see 4, in deviations of the value.   deliberation_margin: see 5, in deviations.
        switch_cost: paid for changing the option, in units of the return.
        min_duration, max_duration: of learned options, in steps; a max_duration of 0 is none.
        max_grad_norm: bound on the norm of each network's gradient.

    Raises: UsageError for values that cannot be.
    """

    statistics: OptionStatistics

    def __init__(
        self,
        spaces: Spaces,
        network: Torso = TORSO,
        critic: MakeCritic = TwinMLP,
        option_network: Torso = OPTION_TORSO,
        options: int = 4,
        scripted: list[OptionPolicy] | None = None,
        update_mode: UpdateMode = "all",
        multi_weight: float = 0.3,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = lambda params: Adam(params, fused=True),
        learning_rate: float = 3e-4,
        critic_learning_rate: float | None = None,
        termination_learning_rate: float | None = None,
        gamma: float = 0.99,
        tau: float = 0.005,
        alpha_action: float = 1.0,
        alpha_option: float = 0.05,
        action_entropy: float | None = None,
        option_entropy: float = 0.2,
        option_entropy_end: float = 0.02,
        usage_weight: float = 0.02,
        deliberation_margin: float = 0.1,
        switch_cost: float = 0.0,
        min_duration: int = 1,
        max_duration: int = 0,
        max_grad_norm: float = 10.0,
    ):
        super().__init__(spaces)
        keep_hyperparameters(self)
        check_values(gamma=gamma, tau=tau, alpha_action=alpha_action, learning_rate=learning_rate)
        check_values(max_grad_norm=max_grad_norm)
        if spaces["action_kind"] not in ("continuous", "discrete"):
            raise UsageError(f"SACOptions takes continuous or discrete actions, not {spaces['action_kind']}.")
        self.optimizer, self.max_grad_norm, self.gamma, self.tau = optimizer, max_grad_norm, gamma, tau
        self.learning_rate, self.critic_learning_rate = learning_rate, critic_learning_rate or learning_rate
        self.termination_learning_rate = termination_learning_rate or learning_rate / 3
        self.min_duration = min_duration
        self.option_entropy, self.option_entropy_end = option_entropy, option_entropy_end
        controller = Controller(
            spaces["obs_shape"],
            options,
            option_network,
            scripted,
            min_duration=min_duration,
            max_duration=max_duration,
            alpha=alpha_option,
            usage_weight=usage_weight,
            margin=deliberation_margin,
            switch_cost=switch_cost,
            update_mode=update_mode,
            multi_weight=multi_weight,
        )
        self.actor = OptionActor(spaces, controller, network, critic, scripted, action_entropy)
        self.soft, self.controller, self.options = self.actor.soft, controller, controller.options
        self.log_alpha = nn.Parameter(torch.tensor(math.log(alpha_action)))
        self.learns_actor = bool(self.soft.learned.any())
        self.optimized: dict[str, Optimizer] = {}

    def setup(self, stage: str) -> None:
        """Refuse windows of several steps: their later actions may be another option's."""
        super().setup(stage)
        if getattr(self.data, "n_step", 1) != 1:
            raise UsageError(f"data.n_step is {self.data.n_step}; options learn from single steps: set it to 1.")

    def initial_state(self, batch: int) -> State:
        """No option runs; the environment's `option_mask` is put beside it at every step."""
        return self.controller.initial_state(batch)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """For actions and options (see `OptionActor.noise`)."""
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
        """One forward of each network for all rows."""
        return self.actor(obs, state, reset, mask, None if greedy else noise)

    def prepare(self, collected: Collected) -> Transitions:
        """The iteration's minibatches `[U, N, ...]`, as the replay drew them."""
        return cast(Experience, collected).transitions

    def update(self, batch: Transitions) -> Scalars:
        """An optimizer step of every network on each minibatch."""
        updates, rows = batch.weight.shape
        noise = self.soft.noise((updates, 2, rows, self.options), self.minibatch_generator)
        measured = self.joints["update"](batch, noise)
        self.updates += updates
        return Scalars(names(self.options), measured)

    def learn_all(self, batch: Transitions, noise: Tensor) -> Tensor:
        """The updates one after the other; means of `measures`."""
        minibatches = (_at(batch, update) for update in range(len(noise)))
        return torch.stack([self.learn_once(each, draw) for each, draw in zip(minibatches, noise, strict=True)]).mean(0)

    def learn_once(self, batch: Transitions, noise: Tensor) -> Tensor:
        """One step of every network: critics, actor, temperature, master, temperature, terminations; then targets."""
        executed = Executed.of(batch.extras)
        weight = self.controller.weight(batch.obs, batch.extras.get("option_mask"), executed)
        weight = weight * batch.weight.unsqueeze(-1)
        arrival = self.arrival(batch, executed, noise[0])
        critic_loss, q, critic_norm = self.critic_step(batch, arrival, weight)
        value, log_prob, actor_norm = self.actor_step(batch, executed, weight, noise[1])
        master_loss, log_master = self.master_step(batch, value)
        ending_loss, beta, advantage = self.termination_step(batch, executed, arrival, weight)
        follow_(list(self.soft.targets.parameters()), list(self.soft.critics.parameters()), self.tau)
        losses = [critic_loss, -(weight * value).sum(-1).mean(), master_loss, ending_loss]
        others = [self.log_alpha.exp(), self.controller.alpha, critic_norm, actor_norm]
        divergence = self.soft.divergence(batch.obs[:64])
        return measures(losses, q, log_prob, others, advantage, log_master, divergence, beta)

    @torch.no_grad()
    def arrival(self, batch: Transitions, executed: Executed, noise: Tensor) -> Arrival:
        """What arriving in s' is worth, by the target critics."""
        age, mask = self.controller.ages(executed), batch.next_masks.get("action_mask")
        alpha = self.log_alpha.exp()
        value, _ = self.soft.value(self.soft.targets, batch.next_obs, age, noise, alpha, mask)
        return self.controller.arrival(batch.next_obs, batch.next_masks.get("option_mask"), value, executed)

    def critic_step(self, batch: Transitions, arrival: Arrival, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Regress both critics of every option on its target; the loss, the smaller critic and the gradient's norm."""
        target = option_target(batch.reward[..., 0], arrival.upon_arrival, batch.terminated, gamma=self.gamma)
        q = self.soft.q(batch.obs, batch.action)
        loss = ((q - target).square() * weight).sum(-1).mean(-1).sum()
        return loss, q.amin(0), self.step(loss, self.optimized["critic"], self.max_grad_norm)

    def actor_step(
        self, batch: Transitions, executed: Executed, weight: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Ascend V(s, w) of the online critics, then move the temperature; V, log pi and the gradient's norm."""
        age, mask = (executed.age - 1).unsqueeze(-1).expand(-1, self.options), batch.extras.get("action_mask")
        alpha, learned = self.log_alpha.exp().detach(), weight * self.soft.learned
        value, log_prob = self.soft.value(self.soft.critics, batch.obs, age, noise, alpha, mask)
        norm = torch.zeros_like(alpha)
        if self.learns_actor:
            norm = self.step(-(learned * value).sum(-1).mean(), self.optimized["actor"], self.max_grad_norm)
            surplus = (learned * (log_prob.detach() + self.soft.target_entropy)).sum(-1).mean()
            self.step(-self.log_alpha.exp() * surplus, self.optimized["alpha_action"], self.max_grad_norm)
        return value.detach(), log_prob.detach(), norm

    def master_step(self, batch: Transitions, value: Tensor) -> tuple[Tensor, Tensor]:
        """Improve the master on V, then move its temperature; its loss and log-probabilities."""
        loss, surplus, log_master = self.controller.master_loss(batch.obs, batch.extras.get("option_mask"), value)
        self.step(loss, self.optimized["master"], self.max_grad_norm)
        self.step(self.controller.alpha_loss(surplus), self.optimized["alpha_option"], self.max_grad_norm)
        return loss, log_master

    def termination_step(
        self, batch: Transitions, executed: Executed, arrival: Arrival, weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Let options end where another is worth more by the margin; loss, beta and advantages `[N, K]`."""
        facts = (batch.next_obs, executed, arrival, batch.terminated, weight)
        loss, beta, advantage = self.controller.termination_loss(*facts)
        if "ending" in self.optimized:
            self.step(loss, self.optimized["ending"], self.max_grad_norm)
        return loss, beta, advantage

    def schedule_(self) -> None:
        """The master's target entropy, and whether actions are still drawn at random."""
        share = self.option_entropy + (self.option_entropy_end - self.option_entropy) * self.progress
        self.controller.entropy_share.fill_(share)
        self.actor.exploring.fill_(self.env_steps < self.data.learning_starts)

    def absorb_(self, collected: Collected) -> None:
        """Count what options did."""
        rollout = cast(Experience, collected).rollout
        executed = Executed.of(rollout.extras)
        self.statistics.update(executed, rollout.reset, rollout.valid)
        self.statistics.keep(executed, rollout.reset, rollout.reward, rollout.obs[:-1])

    def log_values(self, values: dict[str, float], env_steps: int | None = None) -> None:
        """Adds what options did to what training measured; all of it has tags `option/`."""
        if "train/learning_rate" in values:
            values = {tag.replace("train/option/", "option/"): value for tag, value in values.items()}
            values |= {f"option/{name}": value for name, value in self.statistics.log().items()}
        super().log_values(values, env_steps)

    @property
    def recent_options(self) -> dict[str, Tensor]:
        """What the first environment's options did lately, for a figure (see `OptionStatistics.recent`)."""
        return self.statistics.recent if self.joints else {}

    def make_optimizers(self) -> list[Optimizer]:
        """One a network and temperature, in the order in which they step."""
        soft, controller, rate = self.soft, self.controller, self.learning_rate
        learners: dict[str, tuple[Iterable[nn.Parameter], float]] = {
            "critic": (soft.critics.parameters(), self.critic_learning_rate),
            "actor": (soft.actor.parameters(), rate),
            "alpha_action": ([self.log_alpha], self.critic_learning_rate),
            "master": (controller.master.parameters(), rate),
            "alpha_option": ([controller.log_alpha], self.critic_learning_rate),
        }
        if controller.ending is not None:
            learners["ending"] = (controller.ending.parameters(), self.termination_learning_rate)
        self.optimized = {name: self.optimizer(parameters) for name, (parameters, _) in learners.items()}
        for optimizer, (_, learning_rate) in zip(self.optimized.values(), learners.values(), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate
        return list(self.optimized.values())

    def make_joints(self) -> dict[str, Joint[Any]]:
        """Prepare, and all updates of an iteration."""
        update = Joint(self.learn_all, self.device, name="update", owned=self.owned_tensors)
        return {"prepare": Joint(self.prepare, self.device, name="prepare"), "update": update}

    def owned_tensors(self) -> list[Tensor]:
        """Adds the running means of the controller."""
        return [*super().owned_tensors(), *self.controller.buffers()]

    def on_fit_start(self) -> None:
        """Makes the options' own randomness and statistics, on this rank's device."""
        self.actor.generator = stream_generator(run_seed(), self.global_rank, "option", self.device)
        self.statistics = OptionStatistics(self.options, self.controller.max_duration)
        super().on_fit_start()

    def rank_state(self) -> dict[str, Any]:
        """Adds the options' generator and statistics."""
        assert self.actor.generator is not None
        own = {"generator": self.actor.generator.get_state(), "statistics": self.statistics.remembered()}
        return super().rank_state() | {"option": own}

    def load_rank_state(self, state: dict[str, Any]) -> None:
        """Continue from `rank_state`."""
        super().load_rank_state(state)
        assert self.actor.generator is not None
        restore_generator(self.actor.generator, state["option"]["generator"])
        self.statistics.remember(state["option"]["statistics"])


def _at(batch: Transitions, update: int) -> Transitions:
    """One minibatch `[N, ...]`."""
    pick = [
        {name: leaf[update] for name, leaf in column.items()} if isinstance(column, dict) else column[update]
        for column in batch
    ]
    return Transitions._make(pick)
