"""The controller: which option runs, when it ends, and what its two networks learn from."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.types import State, UsageError
from modules.functional.option_choice import Choice, next_option
from modules.functional.options import (
    MASKED,
    arrival_probability,
    bounded_termination,
    controller_value,
    even_usage,
    log_master,
    master_entropy,
    master_loss,
    offered,
    option_advantage,
    option_value_upon_arrival,
    termination_loss,
    usage_divergence,
)
from modules.networks.option_heads import OnTorso, OptionHead, Torso
from modules.options.executed import Executed
from modules.options.scripted import OptionPolicy, ScriptedOptions, check_durations

UpdateMode = Literal["all", "executed", "multi"]
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


class Controller(nn.Module):
    """Chooses among K options and ends them, by a master mu(w | s) and terminations beta(s, w).

    Args:
        obs_shape: shape of one observation.
        options: K, at least 1; ignored where options are scripted.
        network: makes the torso of each of the two networks.
        scripted: hand-written options, which say themselves where they begin and how they end; None learns that too.
        min_duration, max_duration: of learned options in steps; a max_duration of 0 is none.
        alpha: the master's temperature at the start, in units of the return per nat.
        usage_weight: of the regulariser of usage, in standard deviations of the value.
        margin: worth of going on, in standard deviations of the advantage: deliberation cost.
        switch_cost: paid for changing the option, in units of the return.
        update_mode, multi_weight: which options learn from a step (see `weight`): all alike, the one that acted, or all
            as likely as they were, with this weight, and the one that acted with the rest.

    Raises: UsageError for values that cannot be.
    """

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
        network: Torso,
        scripted: Sequence[OptionPolicy] | None = None,
        min_duration: int = 1,
        max_duration: int = 0,
        alpha: float = 0.05,
        usage_weight: float = 0.02,
        margin: float = 0.1,
        switch_cost: float = 0.0,
        update_mode: UpdateMode = "all",
        multi_weight: float = 0.3,
    ):
        super().__init__()
        if update_mode not in ("all", "executed", "multi"):
            raise UsageError(f"model.update_mode is {update_mode!r}; choose all, executed or multi.")
        check_durations(min_duration, max_duration, "model")
        if options < 1 or alpha <= 0:
            raise UsageError(f"model.options is {options} and model.alpha_option {alpha}; both must be positive.")
        self.scripted = None if scripted is None else ScriptedOptions(scripted)
        self.options = options if scripted is None else len(scripted)
        self.update_mode, self.multi_weight = update_mode, multi_weight
        self.usage_weight, self.margin, self.switch_cost = usage_weight, margin, switch_cost
        head = partial(OptionHead, options=self.options)
        self.master = OnTorso(network, obs_shape, head)
        self.ending = OnTorso(network, obs_shape, partial(head, bias=-2.0)) if scripted is None else None
        self.log_alpha = nn.Parameter(torch.tensor(math.log(alpha)))
        self._keep_durations(min_duration, max_duration)
        self.register_buffer("usage", torch.full((self.options,), 1 / self.options))
        for name in ("advantage_std", "value_std", "entropy_share"):
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
        scaled = advantage / (self.advantage_std + 1e-6)
        beta = self.termination(next_obs, self.ages(executed))
        loss = termination_loss(beta, scaled, self.margin, weight * arrival.free, ~terminated)
        return loss, beta.detach(), scaled


def _follow(mean: Tensor, value: Tensor, rate: float) -> None:
    """Move a running mean in place; the first value is taken whole."""
    mean.copy_(torch.where(mean == 0, value, torch.lerp(mean, value.to(mean.dtype), rate)))
