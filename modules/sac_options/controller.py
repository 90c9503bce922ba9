"""Option controller: the policy over options (master), the terminations, and their losses."""

import math
from functools import partial
from typing import Literal, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.core.arguments import check_ranges
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import Obs, State
from modules.functional.options import (
    Choice,
    arrival_probability,
    bounded_termination,
    controller_value,
    log_master,
    master_entropy,
    master_loss,
    next_option,
    offered_options,
    option_advantage,
    option_value_upon_arrival,
    termination_loss,
    uniform_usage,
    usage_divergence,
)
from modules.functional.sampling import MASKED_LOGIT
from modules.networks.heads.option import OptionHead, Torso, TorsoWithHead
from modules.networks.mlp import MLP
from modules.networks.multi_input import ObsShape
from modules.optim.distributed import all_reduce_mean
from modules.sac_options.option_record import OptionRecord
from modules.sac_options.scripted import OptionPolicy, ScriptedOptions, check_durations

INITIAL_TERMINATION_PROB = 0.12
"""Initial termination probability: options of about 8 steps."""

MIN_ADVANTAGE_STD = 0.05
"""Lower bound of the advantage's normaliser, in standard deviations of the value: smaller advantages are noise."""

MIN_USAGE_SHARE = 0.6
"""The usage regulariser acts while an option has less than this fraction of a uniform share (0.15 of 4 options)."""

Mask = TypeVar("Mask", Tensor, Tensor | None)


class NextStateValues(NamedTuple):
    """Values of the options on arrival in s', without gradient, `[N, K]` each.

    value: V(s', w) of continuing.
    log_master: log-probabilities of choosing a new option.
    upon_arrival: U(s', w).
    can_terminate: 1 where the termination is free, 0 where the option's duration decides.
    """

    value: Tensor
    log_master: Tensor
    upon_arrival: Tensor
    can_terminate: Tensor


class CriticOutputs(NamedTuple):
    """Results of a critic update for the policy update, without gradient, `[N, K]` each except the loss.

    loss: of the critics, 0-d.
    weight: of every option in the loss of each step.
    arrival: values in s'.
    q: minimum of both critics for the taken action.
    """

    loss: Tensor
    weight: Tensor
    arrival: NextStateValues
    q: Tensor


class OptionController(nn.Module):
    """Choose and terminate K options by a master mu(w | s) and terminations beta(s, w).

    Args:
        obs_shape: shape of one observation, or its parts by name.
        num_options: K.
        scripted_options: hand-written options with their own initiation and termination; None learns terminations.
        network: makes the torsos of master and terminations, which run at every step: keep them small.
        min_duration: minimum number of steps of a learned option.
        max_duration: maximum number of steps of a learned option; 0 for none.
        update_mode: which options learn from a step: `all` equally, the one that acted (`executed`), or `multi`: each
            in proportion to its probability of running (Klissarov and Precup 2021, arXiv:2112.03097).
        off_option_weight: with `multi`, the weight of these probabilities; the option that acted has the rest.
        init_temperature: initial temperature of the master, in units of the return per nat.
        entropy: target entropy of the master at the start of a run, as a fraction of a uniform choice's.
        entropy_end: target entropy at the end of a run, as the same fraction.
        usage_weight: coefficient of the usage regulariser, in standard deviations of the value.
        deliberation_margin: reward for continuing, in standard deviations of the advantage.
        prior_weight: coefficient of KL(beta || 0.12), in standard deviations of the advantage: options then run about 8
            steps unless their termination matters.
        switch_cost: cost of changing the option, in units of the return.

    Attributes:
        uses_actor: bool `[K]`, which options use the actor.

    Raises: ConfigurationError for values out of range.
    """

    uses_actor: Tensor
    min_duration: Tensor
    max_duration: Tensor
    usage: Tensor
    advantage_std: Tensor
    value_std: Tensor
    entropy_share: Tensor

    def __init__(
        self,
        obs_shape: ObsShape,
        num_options: int,
        scripted_options: list[OptionPolicy] | None = None,
        network: Torso = lambda obs_shape: MLP(obs_shape, activation="relu"),
        min_duration: int = 1,
        max_duration: int = 0,
        update_mode: Literal["all", "executed", "multi"] = "all",
        off_option_weight: float = 0.3,
        init_temperature: float = 0.05,
        entropy: float = 0.2,
        entropy_end: float = 0.02,
        usage_weight: float = 0.02,
        deliberation_margin: float = 0.1,
        prior_weight: float = 0.5,
        switch_cost: float = 0.0,
    ):
        super().__init__()
        check_durations(min_duration, max_duration, "The controller")
        check_ranges(
            "The controller",
            ("num_options", num_options, num_options >= 1, "at least 1"),
            ("init_temperature", init_temperature, init_temperature > 0, "a positive number"),
        )
        self.num_options = num_options
        self.scripted_options = None if scripted_options is None else ScriptedOptions(scripted_options)
        self.update_mode, self.off_option_weight = update_mode, off_option_weight
        self.entropy, self.entropy_end, self.usage_weight = entropy, entropy_end, usage_weight
        self.deliberation_margin, self.prior_weight = deliberation_margin, prior_weight
        self.switch_cost = switch_cost
        head = partial(OptionHead, options=num_options)
        self.master = TorsoWithHead(network, obs_shape, head)
        self.termination_net = (
            TorsoWithHead(
                network,
                obs_shape,
                partial(head, bias=math.log(INITIAL_TERMINATION_PROB / (1 - INITIAL_TERMINATION_PROB))),
            )
            if scripted_options is None
            else None
        )
        self.log_alpha = nn.Parameter(torch.tensor(math.log(init_temperature)))
        self._register_durations(min_duration, max_duration)
        self._keep_means(entropy)

    def _keep_means(self, entropy: float) -> None:
        uses_actor = (
            [True] * self.num_options
            if self.scripted_options is None
            else [each.uses_actor for each in self.scripted_options.policies]
        )
        self.learns_actor = any(uses_actor)
        self.register_buffer("uses_actor", torch.tensor(uses_actor), persistent=False)
        self.register_buffer("usage", torch.full((self.num_options,), 1 / self.num_options))
        self.register_buffer("entropy_share", torch.tensor(entropy))
        for name in ("advantage_std", "value_std"):
            self.register_buffer(name, torch.zeros(()))

    def _register_durations(self, shortest: int, longest: int) -> None:
        bounds = [(shortest, longest)] * self.num_options
        if self.scripted_options is not None:
            bounds = [(policy.min_duration, policy.max_duration) for policy in self.scripted_options.policies]
        columns = torch.tensor(bounds).unbind(1)
        self.bounded_below, self.bounded_above = bool((columns[0] > 1).any()), bool(columns[1].any())
        self.register_buffer("min_duration", columns[0], persistent=False)
        self.register_buffer("max_duration", columns[1], persistent=False)

    @property
    def alpha(self) -> Tensor:
        """Return the master's temperature, without gradient."""
        return self.log_alpha.detach().exp()

    def anneal_(self, progress: float) -> None:
        """Set the target entropy for the progress of the run."""
        self.entropy_share.fill_(self.entropy + (self.entropy_end - self.entropy) * progress)

    def initial_state(self, batch: int) -> State:
        """Return the state before any option has run, with all options allowed."""
        never = torch.zeros(batch, dtype=torch.int64, device=self.log_alpha.device)
        offers = torch.ones(batch, self.num_options, dtype=torch.bool, device=never.device)
        return {"option": never, "option_age": never.clone(), "option_mask": offers}

    def choose(
        self, obs: Obs, state: State, episode_start: Tensor, noise: Tensor | None, uniform: Tensor | None = None
    ) -> Choice:
        """Continue or choose a new option in every row, in one forward pass per network; greedy without noise.

        Args:
            uniform: whether to choose uniformly among the options that may start, bool 0-d; None never does.
        """
        offers, age = state["option_mask"], state["option_age"]
        if offers.shape[-1] != self.num_options:
            raise ConfigurationError(
                f"The environment's option_mask has {offers.shape[-1]} entries and the model {self.num_options}"
                " options: set model.num_options (or model.scripted_options) to match."
            )
        logits = self.master(obs)
        logits = logits if uniform is None else logits.masked_fill(uniform, 0.0)
        logits = logits.masked_fill(~offered_options(self.mask(obs, offers)), MASKED_LOGIT)
        beta = self.termination(obs, age.unsqueeze(-1).expand(-1, self.num_options))
        bounds = {
            "min_duration": self.min_duration if self.bounded_below else None,
            "max_duration": self.max_duration if self.bounded_above else None,
        }
        return next_option(state["option"], age, episode_start, logits, beta, noise, **bounds)

    def mask(self, obs: Obs, mask: Mask) -> Mask:
        """Return the options that may start, `[N, K]`, in both the environment and the scripts; None for all."""
        if self.scripted_options is None:
            return mask
        begins = self.scripted_options.initiation(obs)
        return begins if mask is None else begins & mask

    def termination(self, obs: Obs, age: Tensor) -> Tensor:
        """Return the termination probability `[N, K]` of options that have run `age` `[N, K]` steps, without bounds."""
        if self.termination_net is None:
            return cast(ScriptedOptions, self.scripted_options).termination(obs, age)
        return torch.sigmoid(self.termination_net(obs))

    def ages(self, executed: OptionRecord) -> Tensor:
        """Return the steps run `[N, K]` on arrival in the next state; for options that did not act, 1."""
        ran = F.one_hot(executed.option, self.num_options).bool()
        return torch.where(ran, executed.age.unsqueeze(-1), 1)

    @torch.no_grad()
    def next_state_values(
        self, next_obs: Obs, mask: Tensor | None, value: Tensor, executed: OptionRecord
    ) -> NextStateValues:
        """Compute U(s', w) and its terms from V(s', w) `[N, K]`; `mask` is that of s'."""
        master = log_master(self.master(next_obs), self.mask(next_obs, mask))
        beta = self.termination(next_obs, self.ages(executed))
        bounded = bounded_termination(beta, executed.option, executed.age, self.min_duration, self.max_duration)
        upon = option_value_upon_arrival(value, controller_value(value, master, self.alpha), bounded)
        if self.switch_cost:
            upon = upon - bounded * self.switch_cost * (1 - master.exp())
        return NextStateValues(value, master, upon, (bounded == beta).to(value.dtype))

    @torch.no_grad()
    def weight(self, obs: Obs, mask: Tensor | None, executed: OptionRecord) -> Tensor:
        """Return c(w) `[N, K]`: the weight of every option in the loss of each step, by `update_mode`."""
        acted = F.one_hot(executed.option, self.num_options).float()
        if self.update_mode == "all":
            return torch.full_like(acted, 1 / self.num_options)
        if self.update_mode == "executed":
            return acted
        return (
            self.off_option_weight * self.option_probability(obs, mask, executed) + (1 - self.off_option_weight) * acted
        )

    @torch.no_grad()
    def option_probability(self, obs: Obs, mask: Tensor | None, executed: OptionRecord) -> Tensor:
        """Return the probability `[N, K]` of running each option in s, given the previous one."""
        master = log_master(self.master(obs), self.mask(obs, mask))
        age = executed.previous_age.unsqueeze(-1).expand(-1, self.num_options)
        bounds = (executed.previous, executed.previous_age, self.min_duration, self.max_duration)
        beta = bounded_termination(self.termination(obs, age), *bounds)
        return arrival_probability(master, beta, executed.previous, executed.episode_start)

    def master_loss(self, obs: Obs, mask: Tensor | None, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the master's loss from V(s, w) of the online critics, its entropy minus the target, and its log mu.

        The regulariser pulls the usage over all states towards uniform while an option is used too little; its value is
        that of a running mean, its gradient that of the batch.
        """
        mask = self.mask(obs, mask)
        master, value = log_master(self.master(obs), mask), value.detach()
        even, batch_usage = uniform_usage(mask, master), master.exp().mean(0)
        with torch.no_grad():
            ema_update_(self.usage, batch_usage, 0.1)
            ema_update_(self.value_std, value.std(unbiased=False), 0.01)
            starved = (self.usage < MIN_USAGE_SHARE * even).any().to(value.dtype)
        usage = batch_usage + (self.usage - batch_usage).detach()
        even_out = self.usage_weight * self.value_std * starved * usage_divergence(usage, even)
        surplus = (master_entropy(master) - self.entropy_share * self._max_entropy(mask, master)).mean().detach()
        return master_loss(master, value, self.alpha) + even_out, surplus, master.detach()

    def _max_entropy(self, mask: Tensor | None, master: Tensor) -> Tensor | float:
        """Return the entropy of a uniform choice among the allowed options."""
        return math.log(self.num_options) if mask is None else offered_options(mask).sum(-1).to(master.dtype).log()

    def alpha_loss(self, surplus: Tensor) -> Tensor:
        """Return the temperature's loss, which moves the master's entropy to its target; no gradient at one option."""
        return self.log_alpha.exp() * surplus

    def termination_loss(
        self, next_obs: Obs, executed: OptionRecord, arrival: NextStateValues, terminated: Tensor, weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the terminations' loss on arrival in s', and beta and the normalised advantage for the log."""
        advantage = option_advantage(arrival.value, arrival.log_master)
        with torch.no_grad():
            ema_update_(self.advantage_std, advantage.std(unbiased=False), 0.01)
        scaled = advantage / (torch.maximum(self.advantage_std, MIN_ADVANTAGE_STD * self.value_std) + 1e-6)
        beta = self.termination(next_obs, self.ages(executed))
        prior = {"prior": INITIAL_TERMINATION_PROB, "prior_weight": self.prior_weight}
        loss = termination_loss(
            beta, scaled, self.deliberation_margin, weight * arrival.can_terminate, ~terminated, **prior
        )
        return loss, beta.detach(), scaled


def ema_update_(mean: Tensor, value: Tensor, rate: float) -> None:
    """Update a running mean in place with the mean over all ranks; the first value is copied."""
    value = all_reduce_mean(value)
    mean.copy_(torch.where(mean == 0, value, torch.lerp(mean, value.to(mean.dtype), rate)))
