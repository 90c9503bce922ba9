"""Soft values and losses over options (temporally extended actions that run until they terminate), and their choice.

Shapes: `[*N]` is any batch, K the number of options. `termination` is the probability beta of terminating on arrival
in a state; `log_master` the log-probabilities of the policy over options mu (the master), which chooses the next
option after a termination.

Every term that options add is multiplied by an exact zero, or cancels exactly, when there is one option; so one option
equals soft actor-critic to the last bit.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from modules.functional.sampling import MASKED_LOGIT, gumbel

PerOption = Float[Tensor, "*N K"]

Entries = Float[Tensor, "*N"]

Offered = Bool[Tensor, "*N K"]

Scalar = Float[Tensor, ""]


def offered_options(mask: Offered) -> Offered:
    """Return which options may be chosen: `mask`, or all of them in a state where the mask allows none."""
    return mask | ~mask.any(-1, keepdim=True)


def log_master(logits: PerOption, mask: Offered | None = None) -> PerOption:
    """Return the log-probabilities of the policy over options: a masked softmax; None allows all options."""
    return F.log_softmax(logits if mask is None else logits.masked_fill(~offered_options(mask), MASKED_LOGIT), -1)


def master_entropy(log_master: PerOption) -> Entries:
    """Compute the entropy of the policy over options: -sum_w mu log mu, in nats."""
    return -(log_master.exp() * log_master).sum(-1)


def controller_value(value: PerOption, log_master: PerOption, alpha: float | Tensor) -> Entries:
    """Compute the soft value of choosing an option: sum_w mu(w) (V(w) - alpha log mu(w)).

    Args:
        alpha: temperature of the master, in units of the return per nat.
    """
    return (log_master.exp() * (value - alpha * log_master)).sum(-1)


def option_value_upon_arrival(value: PerOption, controller: Entries, termination: PerOption) -> PerOption:
    """Compute the value of arriving in a state with option w: V(w) + beta(w) (controller - V(w)).

    Written as a correction to V: with one option the bracket is exactly 0.0, which (1 - beta) V + beta V is not.

    Args:
        value: V(w), of continuing with w.
        controller: value of choosing a new option (`controller_value`).
        termination: beta(w), see `bounded_termination`.

    Source: Bacon, Harb and Precup 2017, arXiv:1609.05140, eq. 3, with the soft controller value in place of V.
    """
    return value + termination * (controller.unsqueeze(-1) - value)


def option_target(
    reward: Entries, upon_arrival: PerOption, terminated: Bool[Tensor, "*N"], *, discount: float | Entries
) -> PerOption:
    """Compute the one-step target of every option: r + discount (1 - terminated) U(w).

    Valid for every w, whichever option chose the action, since Q(s, w, a) is conditioned on it; not over several steps,
    because the later actions are those of one option.
    """
    following = (discount * (~terminated).to(reward.dtype)).unsqueeze(-1)
    return torch.addcmul(reward.unsqueeze(-1), following, upon_arrival)


def bounded_termination(
    termination: PerOption,
    option: Int[Tensor, "*N"],
    age: Int[Tensor, "*N"],
    min_duration: Int[Tensor, "K"],
    max_duration: Int[Tensor, "K"],
) -> PerOption:
    """Return the effective termination probability: 0 below the running option's minimum duration, 1 at its maximum.

    Args:
        option, age: the option that ran, and for how many steps, the current one included.
        min_duration, max_duration: of every option, in steps; 0 for no maximum.
    """
    ran = F.one_hot(option, termination.shape[-1]).bool()
    since = age.unsqueeze(-1)
    young, old = since < min_duration, (since >= max_duration) & (max_duration > 0)
    bounded = torch.where(young, 0.0, torch.where(old, 1.0, termination))
    return torch.where(ran, bounded, termination)


def arrival_probability(
    log_master: PerOption,
    termination: PerOption,
    previous: Int[Tensor, "*N"],
    first: Bool[Tensor, "*N"],
) -> PerOption:
    """Compute the probability of running w given the previous option.

    (1 - beta(w_prev)) 1[w = w_prev] + beta(w_prev) mu(w)

    Args:
        termination: effective on arrival (`bounded_termination` of the previous option).
        previous: the previous option; ignored where `first`, where beta is 1.

    Source: Zhang and Whiteson 2019, arXiv:1904.12691, section 3.
    """
    ended = torch.where(first, 1.0, termination.gather(-1, previous.unsqueeze(-1)).squeeze(-1)).unsqueeze(-1)
    return (1 - ended) * F.one_hot(previous, termination.shape[-1]) + ended * log_master.exp()


def master_loss(log_master: PerOption, value: PerOption, alpha: float | Tensor) -> Scalar:
    """Compute the loss of soft policy improvement over options: mean of sum_w mu(w) (alpha log mu(w) - V(w)).

    `value` takes no gradient.
    """
    return (log_master.exp() * (alpha * log_master - value.detach())).sum(-1).mean()


def usage_divergence(usage: Float[Tensor, "K"], even: Float[Tensor, "K"]) -> Scalar:
    """Compute KL(usage || even) in nats, where usage is how often options are chosen over all states.

    It is the divergence of the marginal, not of mu(. | s): every option should be used in some state, while the choice
    in one state may be deterministic. `even` is the usage of a uniform choice. An option that is never allowed has
    usage and even share 0, and adds nothing.
    """
    floor = torch.finfo(usage.dtype).tiny
    return (usage * (usage.clamp(min=floor).log() - even.clamp(min=floor).log())).sum()


def uniform_usage(mask: Offered | None, like: PerOption) -> Float[Tensor, "K"]:
    """Return the usage of every option under a uniform choice among the allowed ones, averaged over `like`'s states."""
    if mask is None:
        return torch.full_like(like.flatten(0, -2)[0], 1 / like.shape[-1])
    choice = offered_options(mask).to(like.dtype)
    return (choice / choice.sum(-1, keepdim=True)).flatten(0, -2).mean(0)


def option_advantage(value: PerOption, log_master: PerOption) -> PerOption:
    """Compute V(w) - sum_w' mu(w') V(w').

    It has no entropy term: a bonus for every choice would reward options for terminating.
    """
    return value - (log_master.exp() * value).sum(-1, keepdim=True)


def termination_loss(
    termination: PerOption,
    advantage: PerOption,
    margin: float | Tensor,
    weight: PerOption,
    going_on: Bool[Tensor, "*N"],
    *,
    prior: float = 0.12,
    prior_weight: float = 0.0,
) -> Scalar:
    """Compute the loss of the terminations.

    L = mean of sum_w c(w) [beta(w) (A(w) + margin) + prior_weight KL(beta(w) || prior)] while the episode continues

    In the optimum logit beta = logit prior - (A + margin) / prior_weight: an option departs from the prior in
    proportion to its advantage. Without the prior the sign of A alone decides, however small A is.

    Args:
        termination: beta(s', w) with gradient.
        advantage: A(s', w), in the units of `margin`; detached.
        margin: deliberation cost: what continuing is worth beyond its advantage.
        weight: c(w), 0 where the option cannot terminate.
        going_on: whether the episode continues.
        prior: prior probability of termination, in (0, 1).
        prior_weight: coefficient of the KL term, in the units of the advantage; 0 leaves it out.

    Source: Bacon, Harb and Precup 2017, arXiv:1609.05140, theorem 2, and Harb et al. 2018, arXiv:1709.04571, eq.
    10, whose cost has the unit of the return. The prior is an addition of this project.
    """
    worth = termination * (advantage + margin).detach()
    if prior_weight:
        ends = termination.clamp(1e-6, 1 - 1e-6)
        ratio, rest = (ends / prior).log(), ((1 - ends) / (1 - prior)).log()
        worth = worth + prior_weight * (ends * ratio + (1 - ends) * rest)
    return (weight * going_on.to(worth.dtype).unsqueeze(-1) * worth).sum(-1).mean()


def gaussian_divergence(mean: Float[Tensor, "*N K A"], log_std: Float[Tensor, "*N K A"]) -> Scalar:
    """Compute the mean KL(pi_w || pi_v) over states and ordered pairs of options, in nats; tanh does not change it."""
    options = mean.shape[-2]
    if options == 1:
        return mean.new_zeros(())
    first, second = (mean.unsqueeze(-2), log_std.unsqueeze(-2)), (mean.unsqueeze(-3), log_std.unsqueeze(-3))
    ratio = (first[1] - second[1]).exp().square()
    offset = ((first[0] - second[0]) * (-second[1]).exp()).square()
    divergence = 0.5 * (ratio + offset - 1) - (first[1] - second[1])
    return divergence.sum(-1).sum((-1, -2)).mean() / (options * (options - 1))


def categorical_divergence(log_probs: Float[Tensor, "*N K A"]) -> Scalar:
    """Compute the mean KL(pi_w || pi_v) over states and ordered pairs of options, in nats."""
    options = log_probs.shape[-2]
    if options == 1:
        return log_probs.new_zeros(())
    difference = log_probs.unsqueeze(-2) - log_probs.unsqueeze(-3)
    return (log_probs.exp().unsqueeze(-2) * difference).sum(-1).sum((-1, -2)).mean() / (options * (options - 1))


Rows = Int[Tensor, "B"]


class Choice(NamedTuple):
    """The current option `[B]`, the steps it has run including the current one `[B]`, and whether it starts `[B]`."""

    option: Rows
    age: Rows
    started: Bool[Tensor, "B"]


def next_option(
    option: Rows,
    age: Rows,
    episode_start: Bool[Tensor, "B"],
    logits: Float[Tensor, "B K"],
    termination: Float[Tensor, "B K"],
    noise: Float[Tensor, "B L"] | None,
    *,
    min_duration: Int[Tensor, "K"] | None = None,
    max_duration: Int[Tensor, "K"] | None = None,
) -> Choice:
    """Choose the option of the current step (call and return): one runs until it terminates, then the master chooses.

    started = episode_start or (age >= min and u < beta(option)) or age >= max

    Args:
        option, age: the option that ran before this step, and for how many steps.
        episode_start: rows where an episode begins, which ends the previous option.
        logits: of the policy over options, masked where an option is not allowed. The running option may continue where
            it could not start.
        termination: beta, probability of terminating in the current state.
        noise: K standard Gumbel draws and one uniform a row (`choice_noise`); None takes the most likely option, and
            terminates those with beta above 1/2.
        min_duration, max_duration: of every option, in steps; 0 for no maximum, None if none is set.

    Source: Sutton, Precup and Singh 1999, doi:10.1016/S0004-3702(99)00052-1, section 2.
    """
    running = option.unsqueeze(-1)
    beta = termination.gather(-1, running).squeeze(-1)
    ends = beta > 0.5 if noise is None else noise[..., -1] < beta
    if min_duration is not None:
        ends = ends & (age >= min_duration[option])
    if max_duration is not None:
        longest = max_duration[option]
        ends = ends | ((age >= longest) & (longest > 0))
    started = ends | episode_start
    chosen = (logits if noise is None else logits + noise[..., :-1]).argmax(-1)
    return Choice(torch.where(started, chosen, option), age.masked_fill(started, 0) + 1, started)


def choice_noise(shape: tuple[int, ...], options: int, generator: torch.Generator) -> Tensor:
    """Draw the randomness of one `next_option` per index of `shape`: `[*shape, K + 1]`, on the generator's device."""
    uniform = torch.rand((*shape, 1), generator=generator, device=generator.device)
    return torch.cat([gumbel((*shape, options), generator), uniform], -1)
