"""Returns, advantages and bootstrapped targets: GAE, V-trace, n-step, TD and double Q-learning.

Time is the first dimension. `terminated` and `truncated` are separate in every function: after a terminated step the
value is zero, also if it was truncated as well; after a truncated step `next_value` is bootstrapped, the value of the
true last observation, but the next episode's rewards never count.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Series = Float[Tensor, "T B"]
Flags = Bool[Tensor, "T B"]


class Advantages(NamedTuple):
    """Advantages and value targets; both `[T, B]`."""

    advantage: Series
    target: Series


class NStep(NamedTuple):
    """Discounted rewards of `n` steps and where to bootstrap; all `[starts, B]`.

    The target is `return_ + discount * next_value.gather(0, last)`.

    return_: sum of discounted rewards, cut where the episode ended.
    discount: factor of the bootstrapped value: gamma**(number of steps summed), 0 where the episode terminated.
    last: time index of the last step summed; the bootstrapped value is that of the observation after it.
    """

    return_: Float[Tensor, "starts B"]
    discount: Float[Tensor, "starts B"]
    last: Int[Tensor, "starts B"]


@torch.no_grad()
def gae(
    reward: Series,
    value: Series,
    next_value: Series,
    terminated: Flags,
    truncated: Flags,
    *,
    gamma: float,
    lam: float,
) -> Advantages:
    """Compute generalised advantage estimates over a rollout that may contain several episodes.

    A_t = d_t + gamma lam (1 - end_t) A_{t+1},   d_t = r_t + gamma (1 - terminated_t) v(s_{t+1}) - v(s_t)

    Args:
        reward: r_t, as the environment gave it.
        value: v(s_t).
        next_value: v(s_{t+1}) before any reset; for a truncated step the value of the true last observation.
        terminated: the value after the step is zero.
        truncated: the sum stops here, the value does not.
        gamma: discount per env step, in [0, 1].
        lam: 0 is one-step TD, 1 is Monte Carlo.

    Returns:
        The advantage, and the lambda-return (advantage + value). No gradient flows through either.

    Raises:
        ValueError: If gamma or lam is outside [0, 1].

    Source: Schulman et al. 2016, arXiv:1506.02438, eq. 16. The paper has no truncation; ours follows Pardo et al.
    2018, arXiv:1712.00378.
    """
    _check_unit_interval("gae", gamma=gamma, lam=lam)
    error = _td_error(reward, value, next_value, terminated, gamma)
    advantage = _discounted_sum(error, (gamma * lam) * _goes_on(terminated, truncated, value.dtype))
    return Advantages(advantage, advantage + value)


@torch.no_grad()
def vtrace(
    log_ratio: Series,
    reward: Series,
    value: Series,
    next_value: Series,
    terminated: Flags,
    truncated: Flags,
    *,
    gamma: float,
    lam: float = 1.0,
    rho_max: float = 1.0,
    c_max: float = 1.0,
) -> Advantages:
    """Compute V-trace advantages and value targets from data of a slightly different behaviour policy.

    v_t = v(s_t) + x_t,   x_t = rho_t d_t + gamma lam c_t (1 - end_t) x_{t+1}
    A_t = rho_t (d_t + gamma lam (1 - end_t) x_{t+1}),   d_t as in `gae`

    with rho_t = min(rho_max, ratio_t) and c_t = min(c_max, ratio_t). Where every ratio is 1 this is `gae`.

    Args:
        log_ratio: log pi(a_t|s_t) - log mu(a_t|s_t): current policy pi, behaviour policy mu.
        reward: r_t.
        value: v(s_t) of the current policy.
        next_value: v(s_{t+1}) before any reset; for a truncated step the value of the true last observation.
        terminated: the value after the step is zero.
        truncated: the sum stops after the step, but the value is bootstrapped.
        gamma: discount per env step, in [0, 1].
        lam: additional decay of the trace, in [0, 1].
        rho_max: bound that sets which policy is evaluated; infinity gives the value of the current policy.
        c_max: bound that sets the speed of convergence, not its limit.

    Returns:
        The policy-gradient advantage and the target v_t. No gradient flows through either.

    Raises:
        ValueError: If gamma or lam is outside [0, 1], or a bound is not positive.

    Source: Espeholt et al. 2018, arXiv:1802.01561, eq. 1 and section 4.2; lam is remark 2. For lam < 1 the paper
    leaves the advantage open; this one mixes v(s_{t+1}) and v_{t+1} by lam, so that on-policy it equals `gae`.
    """
    _check_bounds("vtrace", gamma, lam, rho_max, c_max)
    ratio = log_ratio.exp()
    rho = ratio.clamp(max=rho_max)
    error = _td_error(reward, value, next_value, terminated, gamma)
    decay = (gamma * lam) * _goes_on(terminated, truncated, value.dtype)
    correction = _discounted_sum(rho * error, decay * ratio.clamp(max=c_max))
    next_correction = torch.cat([correction[1:], torch.zeros_like(correction[:1])])
    return Advantages(rho * torch.addcmul(error, decay, next_correction), value + correction)


@torch.no_grad()
def vtrace_correction(
    log_ratio: Series,
    reward: Series,
    value: Series,
    next_value: Series,
    terminated: Flags,
    truncated: Flags,
    next_advantage: Float[Tensor, "1 B"],
    *,
    gamma: float,
    lam: float = 1.0,
    rho_max: float = 1.0,
    c_max: float = 1.0,
) -> Advantages:
    """Compute the correction of V-trace over a segment of a rollout as its advantage, and the value targets.

    A_t = rho_t d_t + gamma lam c_t (1 - end_t) A_{t+1},   v_t = v(s_t) + A_t,   d_t as in `gae`

    with rho_t = min(rho_max, ratio_t) and c_t = min(c_max, ratio_t). Where every ratio is 1, and `next_advantage` is
    that of `gae`, this is `gae`. Unlike the advantage of `vtrace`, rho does not multiply the later terms again.

    Args:
        log_ratio: log pi(a_t|s_t) - log mu(a_t|s_t): current policy pi, behaviour policy mu.
        reward: r_t.
        value: v(s_t).
        next_value: v(s_{t+1}) before any reset; for a truncated step the value of the true last observation.
        terminated: the value after the step is zero.
        truncated: the sum stops after the step, but the value is bootstrapped.
        next_advantage: A of the step after the segment; 0 where the rollout ends.
        gamma: discount per env step, in [0, 1].
        lam: additional decay of the trace, in [0, 1].
        rho_max: bound of the ratio in a step's own error.
        c_max: bound of the ratio in the decay of later errors.

    Returns:
        The advantage and the target v_t. No gradient flows through either.

    Raises:
        ValueError: If gamma or lam is outside [0, 1], or a bound is not positive.

    Source: Espeholt et al. 2018, arXiv:1802.01561, eq. 1, where A_t is v_t - v(s_t). PufferLib 3 (2025) uses it as the
    advantage of PPO, recomputed with current ratios.
    """
    _check_bounds("vtrace_correction", gamma, lam, rho_max, c_max)
    ratio = log_ratio.exp()
    decay = (gamma * lam) * _goes_on(terminated, truncated, value.dtype) * ratio.clamp(max=c_max)
    term = ratio.clamp(max=rho_max) * _td_error(reward, value, next_value, terminated, gamma)
    last = torch.addcmul(term[-1:], decay[-1:], next_advantage)
    advantage = _discounted_sum(torch.cat([term[:-1], last]), decay)
    return Advantages(advantage, value + advantage)


@torch.no_grad()
def n_step_return(reward: Series, terminated: Flags, truncated: Flags, *, gamma: float, steps: int) -> NStep:
    """Sum the discounted rewards of `steps` consecutive steps, for every start with that many steps after it.

    R_t = sum_{i<k} gamma^i r_{t+i},   k = min(steps, steps until the episode ends)

    Args:
        reward: r_t.
        terminated: the sum stops after the step and nothing is bootstrapped.
        truncated: the sum stops after the step; the value of the true last observation is bootstrapped with gamma**k.
        gamma: discount per env step, in [0, 1].
        steps: n, in [1, T]. A window of exactly `steps` steps gives one start.

    Returns:
        Returns, discounts and bootstrap steps of the `T - steps + 1` starts.

    Raises:
        ValueError: If gamma is outside [0, 1] or steps outside [1, T].

    Source: Sutton and Barto 2018, eq. 7.1; truncation as in Pardo et al. 2018, arXiv:1712.00378.
    """
    _check_unit_interval("n_step_return", gamma=gamma)
    if not 1 <= steps <= reward.shape[0]:
        raise ValueError(
            f"n_step_return: steps is {steps}; the series has {reward.shape[0]} steps, so use 1 to that many."
        )
    starts = reward.shape[0] - steps + 1
    return_ = torch.zeros_like(reward[:starts])
    discount = torch.ones_like(return_)
    last = torch.arange(-1, starts - 1, device=reward.device)[:, None].repeat(1, reward.shape[1])
    running = torch.ones_like(terminated[:starts])
    for step in range(steps):
        window = slice(step, step + starts)
        return_ = return_ + torch.where(running, discount * reward[window], 0.0)
        discount = torch.where(running, (gamma * discount).masked_fill(terminated[window], 0.0), discount)
        last = last + running
        running = running & ~(terminated[window] | truncated[window])
    return NStep(return_, discount, last)


@torch.no_grad()
def truncated_n_step_return(
    reward: Float[Tensor, "*N steps"], length: Int[Tensor, "*N"], terminated: Bool[Tensor, "*N"], *, gamma: float
) -> tuple[Float[Tensor, "*N"], Float[Tensor, "*N"]]:
    """Return n-step returns and discounts, both `[*N]`, of windows cut at the end of their episode.

    R = sum_{i<k} gamma^i r_i,   discount = gamma^k (1 - terminated)

    Args:
        reward: r_i, zero after the window's end.
        length: k, steps in the window; where it is 0, the return is 0 and the discount undefined.
        terminated: whether the window's last step terminated: nothing is bootstrapped.
        gamma: discount per env step, in [0, 1].

    Raises:
        ValueError: If gamma is outside [0, 1].

    Source: Sutton and Barto 2018, eq. 7.1.
    """
    _check_unit_interval("truncated_n_step_return", gamma=gamma)
    if reward.shape[-1] == 1:
        return reward.squeeze(-1), gamma * (~terminated).to(reward.dtype)
    factor = gamma ** torch.arange(reward.shape[-1] + 1, device=reward.device, dtype=reward.dtype)
    return (reward * factor[:-1]).sum(-1), factor[length].masked_fill(terminated, 0.0)


def td_target(reward: Float[Tensor, "*N"], next_value: Float[Tensor, "*N"], discount: Float[Tensor, "*N"]) -> Tensor:
    """Compute the bootstrapped target `[*N]`: y = r + discount v(s').

    Args:
        reward: one reward, or the `return_` of `n_step_return`.
        next_value: value of the next observation; of the true last one where the episode was truncated.
        discount: `NStep.discount`, or gamma times (not terminated).

    Source: Sutton and Barto 2018, eq. 6.2.
    """
    return torch.addcmul(reward, discount, next_value)


def double_q_target(
    reward: Float[Tensor, "*N"],
    next_q_online: Float[Tensor, "*N actions"],
    next_q_target: Float[Tensor, "*N actions"],
    discount: Float[Tensor, "*N"],
) -> Tensor:
    """Compute the double Q-learning target `[*N]`: y = r + discount Q_target(s', argmax_a Q_online(s', a)).

    Args:
        reward: one reward, or the `return_` of `n_step_return`.
        next_q_online: action values of the next observation by the online network.
        next_q_target: the same by the target network.
        discount: `NStep.discount`, or gamma times (not terminated).

    Source: van Hasselt et al. 2016, arXiv:1509.06461, eq. 4, the second weights being the target network's.
    """
    best = next_q_online.argmax(-1, keepdim=True)
    return td_target(reward, next_q_target.gather(-1, best).squeeze(-1), discount)


def _check_bounds(function: str, gamma: float, lam: float, rho_max: float, c_max: float) -> None:
    _check_unit_interval(function, gamma=gamma, lam=lam)
    if min(rho_max, c_max) <= 0:
        raise ValueError(f"{function}: rho_max is {rho_max} and c_max is {c_max}; both must be positive.")


def _td_error(reward: Series, value: Series, next_value: Series, terminated: Flags, gamma: float) -> Tensor:
    """Return the one-step TD errors d_t; the value after a terminated step counts as zero."""
    return torch.add(reward - value, next_value.masked_fill(terminated, 0.0), alpha=gamma)


def _goes_on(terminated: Flags, truncated: Flags, dtype: torch.dtype) -> Tensor:
    """Return 1 where the episode continues after the step, 0 where it ended."""
    return (~(terminated | truncated)).to(dtype)


def _discounted_sum(term: Series, decay: Series) -> Tensor:
    """Compute x_t = term_t + decay_t x_{t+1} from the last step to the first, with x_T = 0; one fused operation a step.

    Rows are stacked at the end, not written into a preallocated tensor: equally fast in eager mode, but a compiler
    turns every write into a copy of the whole (nine times slower, compilation quadratic in T).
    """
    terms, decays = term.unbind(), decay.unbind()
    rows = [terms[-1]]
    for t in range(len(terms) - 2, -1, -1):
        rows.append(torch.addcmul(terms[t], decays[t], rows[-1]))
    return torch.stack(rows[::-1])


def _check_unit_interval(function: str, **factors: float) -> None:
    for name, factor in factors.items():
        if not 0.0 <= factor <= 1.0:
            raise ValueError(f"{function}: {name} is {factor}; it must lie in [0, 1].")
