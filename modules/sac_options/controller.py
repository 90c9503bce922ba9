"""The controller: which option runs, when it ends, and what its two networks learn from."""

import math
from functools import partial
from typing import Literal, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.core.errors import UsageError
from datamodules.core.types import State
from modules.functional.options import (
    Choice,
    arrival_probability,
    bounded_termination,
    controller_value,
    even_usage,
    log_master,
    master_entropy,
    master_loss,
    next_option,
    offered,
    option_advantage,
    option_value_upon_arrival,
    termination_loss,
    usage_divergence,
)
from modules.functional.sampling import MASKED
from modules.networks.heads.option import OnTorso, OptionHead, Torso
from modules.networks.mlp import MLP
from modules.optim.distributed import averaged
from modules.sac_options.option_record import Executed
from modules.sac_options.scripted import OptionPolicy, ScriptedOptions, check_durations

FIRST_ENDING = 0.12
"""Terminations begin here: options of about 8 steps."""

LEAST = 0.05
"""Advantages are not magnified beyond this part of the value's deviation: what is smaller is the critics' noise."""

STARVED = 0.6
"""The regulariser of usage acts while some option has less than this part of an even share (0.15 of 4 options)."""


Mask = TypeVar("Mask", Tensor, Tensor | None)


class Arrival(NamedTuple):
    """What is known of arriving in s', without gradient, `[N, K]` each.

    value: V(s', w) of going on.   log_master: of choosing anew.   upon_arrival: U(s', w).   free: 1 where the option
    may choose whether to end, 0 where its duration decides.
    """

    value: Tensor
    log_master: Tensor
    upon_arrival: Tensor
    free: Tensor


class Judged(NamedTuple):
    """What a step of the critics leaves to those that act, without gradient, `[N, K]` each but for the loss.

    loss: of the critics, 0-d.   weight: how much every option learns from each step.   arrival: in s'.
    q: the lower estimate of what was done.
    """

    loss: Tensor
    weight: Tensor
    arrival: Arrival
    q: Tensor


class Controller(nn.Module):
    """Chooses among K options and ends them, by a master mu(w | s) and terminations beta(s, w).

    Args:
        obs_shape: shape of one observation.   options: K.
        scripted: hand-written options, which say themselves where they begin and how they end; None learns that too.
        network: makes the torsos of master and terminations, which run at every step: keep them small.
        min_duration: fewest steps of a learned option.
        max_duration: most steps of a learned option; 0 for no maximum.
        update_mode: which options learn from a step: `all` alike, the one that acted (`executed`), or `multi`: each by
            the probability that it was the one (Klissarov and Precup 2021, arXiv:2112.03097).
        multi_weight: share of `multi`'s weight that these probabilities have; the option that acted has the rest.
        alpha: the master's temperature at the start, in units of the return per nat.
        entropy: the master's target entropy at the start of a run, as a part of that of an even choice.
        entropy_end: the same at the end of a run.
        usage_weight: of the regulariser of usage, in standard deviations of the value.
        deliberation_margin: what going on is worth, in standard deviations of the advantage.
        prior_weight: of KL(beta || its first value, 0.12), in deviations of the advantage: options run about 8 steps
            unless it matters whether they end.
        switch_cost: paid for changing the option, in units of the return.

    Attributes:
        learned: bool `[K]`, which options use the actor.

    Raises: UsageError for values that cannot be.
    """

    learned: Tensor
    min_duration: Tensor
    max_duration: Tensor
    usage: Tensor
    advantage_std: Tensor
    value_std: Tensor
    entropy_share: Tensor

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        options: int,
        scripted: list[OptionPolicy] | None = None,
        network: Torso = lambda obs_shape: MLP(obs_shape, activation="relu"),
        min_duration: int = 1,
        max_duration: int = 0,
        update_mode: Literal["all", "executed", "multi"] = "all",
        multi_weight: float = 0.3,
        alpha: float = 0.05,
        entropy: float = 0.2,
        entropy_end: float = 0.02,
        usage_weight: float = 0.02,
        deliberation_margin: float = 0.1,
        prior_weight: float = 0.5,
        switch_cost: float = 0.0,
    ):
        super().__init__()
        check_durations(min_duration, max_duration, "The controller")
        if options < 1 or alpha <= 0:
            raise UsageError(f"Options are {options} and the controller's alpha is {alpha}; both must be positive.")
        self.options, self.scripted = options, None if scripted is None else ScriptedOptions(scripted)
        self.update_mode, self.multi_weight = update_mode, multi_weight
        self.entropy, self.entropy_end, self.usage_weight = entropy, entropy_end, usage_weight
        self.deliberation_margin, self.prior_weight = deliberation_margin, prior_weight
        self.switch_cost = switch_cost
        head = partial(OptionHead, options=options)
        self.master = OnTorso(network, obs_shape, head)
        self.ending = (
            OnTorso(network, obs_shape, partial(head, bias=math.log(FIRST_ENDING / (1 - FIRST_ENDING))))
            if scripted is None
            else None
        )
        self.log_alpha = nn.Parameter(torch.tensor(math.log(alpha)))
        self._keep_durations(min_duration, max_duration)
        self._keep_means(entropy)

    def _keep_means(self, entropy: float) -> None:
        learned = (
            [True] * self.options if self.scripted is None else [each.uses_actor for each in self.scripted.policies]
        )
        self.learns_actor = any(learned)
        self.register_buffer("learned", torch.tensor(learned), persistent=False)
        self.register_buffer("usage", torch.full((self.options,), 1 / self.options))
        self.register_buffer("entropy_share", torch.tensor(entropy))
        for name in ("advantage_std", "value_std"):
            self.register_buffer(name, torch.zeros(()))

    def _keep_durations(self, shortest: int, longest: int) -> None:
        bounds = [(shortest, longest)] * self.options
        if self.scripted is not None:
            bounds = [(policy.min_duration, policy.max_duration) for policy in self.scripted.policies]
        columns = torch.tensor(bounds).unbind(1)
        self.bounded_below, self.bounded_above = bool((columns[0] > 1).any()), bool(columns[1].any())
        self.register_buffer("min_duration", columns[0], persistent=False)
        self.register_buffer("max_duration", columns[1], persistent=False)

    @property
    def alpha(self) -> Tensor:
        """The master's temperature, without gradient."""
        return self.log_alpha.detach().exp()

    def anneal_(self, progress: float) -> None:
        """Set the target entropy for a share of the run that is done."""
        self.entropy_share.fill_(self.entropy + (self.entropy_end - self.entropy) * progress)

    def initial_state(self, batch: int) -> State:
        """No option has run; everything is offered until the environment says otherwise."""
        never = torch.zeros(batch, dtype=torch.int64, device=self.log_alpha.device)
        offers = torch.ones(batch, self.options, dtype=torch.bool, device=never.device)
        return {"option": never, "option_age": never.clone(), "option_mask": offers}

    def choose(self, obs: Tensor, state: State, reset: Tensor, noise: Tensor | None) -> Choice:
        """Go on or begin anew in every row; one forward of each network for all rows. None for noise is greedy."""
        offers, age = state["option_mask"], state["option_age"]
        if offers.shape[-1] != self.options:
            raise UsageError(
                f"The environment's option_mask has {offers.shape[-1]} entries and the model {self.options} options:"
                " set model.options (or model.scripted) to match."
            )
        logits = self.master(obs).masked_fill(~offered(self.mask(obs, offers)), MASKED)
        beta = self.termination(obs, age.unsqueeze(-1).expand(-1, self.options))
        bounds = {
            "min_duration": self.min_duration if self.bounded_below else None,
            "max_duration": self.max_duration if self.bounded_above else None,
        }
        return next_option(state["option"], age, reset, logits, beta, noise, **bounds)

    def mask(self, obs: Tensor, mask: Mask) -> Mask:
        """Options that may begin, `[N, K]`: where both the environment and a script allow it; None for all."""
        if self.scripted is None:
            return mask
        begins = self.scripted.initiation(obs)
        return begins if mask is None else begins & mask

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Probability `[N, K]` of ending, of options that have run `age` `[N, K]` steps, whatever their durations."""
        if self.ending is None:
            return cast(ScriptedOptions, self.scripted).termination(obs, age)
        return torch.sigmoid(self.ending(obs))

    def ages(self, executed: Executed) -> Tensor:
        """Steps run `[N, K]` on arrival in the next state; options that did not act count as if they had begun."""
        ran = F.one_hot(executed.option, self.options).bool()
        return torch.where(ran, executed.age.unsqueeze(-1), 1)

    @torch.no_grad()
    def arrival(self, next_obs: Tensor, mask: Tensor | None, value: Tensor, executed: Executed) -> Arrival:
        """U(s', w) and what goes into it, from V(s', w) `[N, K]`; `mask` belongs to s'."""
        master = log_master(self.master(next_obs), self.mask(next_obs, mask))
        beta = self.termination(next_obs, self.ages(executed))
        bounded = bounded_termination(beta, executed.option, executed.age, self.min_duration, self.max_duration)
        upon = option_value_upon_arrival(value, controller_value(value, master, self.alpha), bounded)
        if self.switch_cost:
            upon = upon - bounded * self.switch_cost * (1 - master.exp())
        return Arrival(value, master, upon, (bounded == beta).to(value.dtype))

    @torch.no_grad()
    def weight(self, obs: Tensor, mask: Tensor | None, executed: Executed) -> Tensor:
        """c(w) `[N, K]`: how much every option learns from each step, by `update_mode`."""
        acted = F.one_hot(executed.option, self.options).float()
        if self.update_mode == "all":
            return torch.full_like(acted, 1 / self.options)
        if self.update_mode == "executed":
            return acted
        return self.multi_weight * self.running(obs, mask, executed) + (1 - self.multi_weight) * acted

    @torch.no_grad()
    def running(self, obs: Tensor, mask: Tensor | None, executed: Executed) -> Tensor:
        """Probability `[N, K]` of running each option in s, given what ran before."""
        master = log_master(self.master(obs), self.mask(obs, mask))
        age = executed.ran.unsqueeze(-1).expand(-1, self.options)
        bounds = (executed.previous, executed.ran, self.min_duration, self.max_duration)
        beta = bounded_termination(self.termination(obs, age), *bounds)
        return arrival_probability(master, beta, executed.previous, executed.first)

    def master_loss(self, obs: Tensor, mask: Tensor | None, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Loss of the master from V(s, w) of the online critics; how far its entropy is above the target; its log mu.

        The regulariser pulls usage over all states toward even while some option starves; its value is that of a
        running mean, its gradient that of the batch.
        """
        mask = self.mask(obs, mask)
        master, value = log_master(self.master(obs), mask), value.detach()
        even, batch_usage = even_usage(mask, master), master.exp().mean(0)
        with torch.no_grad():
            _follow(self.usage, batch_usage, 0.1)
            _follow(self.value_std, value.std(unbiased=False), 0.01)
            starved = (self.usage < STARVED * even).any().to(value.dtype)
        usage = batch_usage + (self.usage - batch_usage).detach()
        even_out = self.usage_weight * self.value_std * starved * usage_divergence(usage, even)
        surplus = (master_entropy(master) - self.entropy_share * self._most(mask, master)).mean().detach()
        return master_loss(master, value, self.alpha) + even_out, surplus, master.detach()

    def _most(self, mask: Tensor | None, master: Tensor) -> Tensor | float:
        """Entropy of an even choice among what is offered."""
        return math.log(self.options) if mask is None else offered(mask).sum(-1).to(master.dtype).log()

    def alpha_loss(self, surplus: Tensor) -> Tensor:
        """Moves the temperature so that the master's entropy meets its target; zero gradient at one option."""
        return self.log_alpha.exp() * surplus

    def termination_loss(
        self, next_obs: Tensor, executed: Executed, arrival: Arrival, terminated: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Loss of the terminations on arrival in s'; beta and the advantage in its own deviations, for the log."""
        advantage = option_advantage(arrival.value, arrival.log_master)
        with torch.no_grad():
            _follow(self.advantage_std, advantage.std(unbiased=False), 0.01)
        scaled = advantage / (torch.maximum(self.advantage_std, LEAST * self.value_std) + 1e-6)
        beta = self.termination(next_obs, self.ages(executed))
        prior = {"prior": FIRST_ENDING, "prior_weight": self.prior_weight}
        loss = termination_loss(beta, scaled, self.deliberation_margin, weight * arrival.free, ~terminated, **prior)
        return loss, beta.detach(), scaled


def _follow(mean: Tensor, value: Tensor, rate: float) -> None:
    """Move a running mean in place, by what all ranks saw; the first value is taken whole."""
    value = averaged(value)
    mean.copy_(torch.where(mean == 0, value, torch.lerp(mean, value.to(mean.dtype), rate)))
