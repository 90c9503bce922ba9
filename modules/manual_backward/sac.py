"""Soft actor-critic's update with its gradients written out, for plain networks on a CPU.

At 256 rows autograd costs a fifth of an update: the graph, and tensors that are read once. The same products in the
same order need neither, so weights are those of `SAC.descend` to the last bit, and tests hold them to that.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from modules.functional.returns import td_target
from modules.functional.soft_actor_critic import reparametrised_log_prob, soft_value
from modules.manual_backward.relu_mlp import Layers, as_features, as_rows, learns, plain, steps_plainly
from modules.networks.base import has_hooks
from modules.networks.heads.squashed_gaussian import LOG_STD_HIGH, LOG_STD_LOW, SquashedGaussianHead
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.sac.batch import SACBatch

if TYPE_CHECKING:
    from modules.sac.sac import SAC

aten = torch.ops.aten


class Sample(NamedTuple):
    """Actions of a policy `[N, dims]`, their log-probabilities `[N]`, and what their gradients need."""

    action: Tensor
    log_prob: Tensor
    pre_tanh: Tensor
    std: Tensor
    spread: Tensor
    noise: Tensor

    @classmethod
    def of(cls, output: Tensor, noise: Tensor) -> "Sample":
        """As `SquashedGaussianHead` and `SquashedGaussian.sample_with_log_prob` make it."""
        mean, spread = output.chunk(2, -1)
        spread = spread.tanh()
        log_std = spread * (0.5 * (LOG_STD_HIGH - LOG_STD_LOW)) + 0.5 * (LOG_STD_HIGH + LOG_STD_LOW)
        std = log_std.exp()
        pre_tanh = torch.addcmul(mean, std, noise)
        return cls(pre_tanh.tanh(), reparametrised_log_prob(pre_tanh, noise, log_std), pre_tanh, std, spread, noise)

    def by_output(self, by_action: Tensor, by_log_prob: Tensor) -> Tensor:
        """The gradient of the head's output `[N, 2 dims]`."""
        by_log_prob = by_log_prob.unsqueeze(-1).expand_as(self.action).contiguous()  # as vectorised kernels want it
        slope = aten.softplus_backward(2.0 * by_log_prob, -2.0 * self.pre_tanh, 1, 20)
        by_mean = aten.tanh_backward(by_action, self.action) + (2.0 * by_log_prob - 2.0 * slope)
        by_log_std = by_mean * self.noise * self.std - by_log_prob
        by_spread = aten.tanh_backward(by_log_std * (0.5 * (LOG_STD_HIGH - LOG_STD_LOW)), self.spread)
        return torch.cat([by_mean, by_spread], -1)


class WrittenOut:
    """`SAC.descend` without autograd."""

    def __init__(self, model: "SAC"):
        self.model, self.optimization = model, model.optimization
        actor, critic = (self.optimization.flat[each] for each in model.raw_optimizers[:2])
        values, gradients = ([each.detach() for each in part] for part in (actor.parameters, actor.views))
        self.actor = Layers(*([as_rows(each) for each in part] for part in (values, gradients)))
        self.critic = Layers([each.detach() for each in critic.parameters], critic.views)
        self.target = Layers([each.detach() for each in model.target_critic.parameters()])

    @torch.no_grad()
    def descend(self, batch: SACBatch, next_noise: Tensor, noise: Tensor) -> tuple[Tensor, list[Tensor]]:
        """One step of critics, actor and temperature: the critics' absolute errors `[N]`, and the metrics."""
        actor, critic, *temperature = self.model.raw_optimizers[: self.model.curious_at]
        bound, alpha = self.model.max_grad_norm, self.model.log_alpha.exp()
        critic_loss, errors, q_mean = self.critic_gradient_(batch, next_noise, alpha)
        critic_norm = self.optimization.step_written(critic, bound)
        actor_loss, entropy = self.actor_gradient_(batch, noise, alpha)
        actor_norm = self.optimization.step_written(actor, bound)
        if temperature:
            surplus = (entropy - self.model.entropy_wanted(None)).mean()
            torch.mul(surplus, alpha, out=self.optimization.flat[temperature[0]].views[0])
            self.optimization.step_written(temperature[0], math.inf)
        return errors, [critic_loss, actor_loss, alpha, entropy.mean(), q_mean, critic_norm, actor_norm]

    def critic_gradient_(self, batch: SACBatch, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """That of `SAC.critic_loss`, and what it returns."""
        after = Sample.of(self.actor(as_features(batch.next_obs))[0], noise)
        q1, q2 = self.q(self.target, batch.next_obs, after.action)[0]
        target = td_target(batch.return_, soft_value(q1, q2, after.log_prob, alpha), batch.discount)
        q, seen = self.q(self.critic, batch.obs, batch.action)
        error = q - target
        by_q = batch.weight * (1 / len(target)) * (2.0 * error)
        self.critic.learn_(seen, by_q.unsqueeze(-1))
        return (batch.weight * error.square()).sum(0).mean(), error.abs().mean(0), q.mean()

    def actor_gradient_(self, batch: SACBatch, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """That of `SAC.actor_loss`, and what it returns."""
        output, seen = self.actor(as_features(batch.obs))
        sample = Sample.of(output, noise)
        (q1, q2), seen_by_critic = self.q(self.critic, batch.obs, sample.action)
        counts = batch.weight.sign()
        by_value = counts * (-1 / len(counts))
        first = torch.heaviside(q2 - q1, q1.new_full((), 0.5))  # the share of the lower one; of equal ones half
        by_q = torch.stack([by_value * first, by_value * (1 - first)]).unsqueeze(-1)
        by_action = self.critic.by_input(seen_by_critic, by_q).sum(0)[:, -sample.action.shape[-1] :]
        self.actor.learn_(seen, sample.by_output(by_action, -by_value * alpha))
        return -(counts * soft_value(q1, q2, sample.log_prob, alpha)).mean(), -sample.log_prob

    def q(self, critic: Layers, obs: Tensor, action: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Estimates `[2, N]` of actions in [-1, 1], and what every layer saw."""
        q, seen = critic(torch.cat([as_features(obs), action], -1).expand(2, -1, -1))
        return q.squeeze(-1), seen


def can_be_written_out(model: "SAC") -> bool:
    """Whether all of it is what `WrittenOut` knows: boxes, plain ReLU networks, and steps that are plain."""
    parts = (model.network, model.head, model.critic, model.target_critic)
    known = type(model.network) is MLP and type(model.critic) is TwinMLP
    known = known and all(network.scale == 1 for network in (model.network, model.critic))
    known = known and type(model.head) is SquashedGaussianHead and all(map(plain, parts))
    known = known and all(map(learns, parts[:3])) and not has_hooks(model)
    return model.continuous and known and steps_plainly(model.optimization, model)
