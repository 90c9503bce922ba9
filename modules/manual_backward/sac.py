"""SAC's update with hand-written gradients, for ReLU MLPs on a CPU.

At 256 rows autograd's graph and temporary tensors cost a fifth of an update. The same products in the same order need
neither: weights equal those of `SAC.gradient_step` to the last bit, which tests check.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from datamodules.core.types import Obs
from modules.functional.returns import td_target
from modules.functional.soft_actor_critic import reparametrised_log_prob, soft_value
from modules.manual_backward.relu_mlp import (
    Layers,
    as_features,
    as_rows,
    is_fully_trainable,
    is_relu_mlp,
    uses_flat_fp32_cpu,
)
from modules.networks.base import has_hooks
from modules.networks.heads.squashed_gaussian import LOG_STD_HIGH, LOG_STD_LOW, SquashedGaussianHead
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.sac.batch import SACBatch
from modules.sac.sac import SAC

aten = torch.ops.aten


class SquashedSample(NamedTuple):
    """Sampled actions `[N, dims]`, their log-probabilities `[N]`, and the intermediate results of their gradients."""

    action: Tensor
    log_prob: Tensor
    pre_tanh: Tensor
    std: Tensor
    spread: Tensor
    noise: Tensor

    @classmethod
    def of(cls, output: Tensor, noise: Tensor) -> "SquashedSample":
        """Return a sample as `SquashedGaussianHead` and `SquashedGaussian.sample_with_log_prob` compute it."""
        mean, spread = output.chunk(2, -1)
        spread = spread.tanh()
        log_std = spread * (0.5 * (LOG_STD_HIGH - LOG_STD_LOW)) + 0.5 * (LOG_STD_HIGH + LOG_STD_LOW)
        std = log_std.exp()
        pre_tanh = torch.addcmul(mean, std, noise)
        return cls(pre_tanh.tanh(), reparametrised_log_prob(pre_tanh, noise, log_std), pre_tanh, std, spread, noise)

    def grad_output(self, grad_action: Tensor, grad_log_prob: Tensor) -> Tensor:
        """Return the gradient by the head's output `[N, 2 dims]`."""
        grad_log_prob = grad_log_prob.unsqueeze(-1).expand_as(self.action).contiguous()  # for vectorised kernels
        slope = aten.softplus_backward(2.0 * grad_log_prob, -2.0 * self.pre_tanh, 1, 20)
        grad_mean = aten.tanh_backward(grad_action, self.action) + (2.0 * grad_log_prob - 2.0 * slope)
        grad_log_std = grad_mean * self.noise * self.std - grad_log_prob
        grad_spread = aten.tanh_backward(grad_log_std * (0.5 * (LOG_STD_HIGH - LOG_STD_LOW)), self.spread)
        return torch.cat([grad_mean, grad_spread], -1)


class ManualSAC:
    """`SAC.gradient_step` without autograd."""

    def __init__(self, model: SAC):
        self.model, self.optim = model, model.optim
        actor, critic = (self.optim.flat[each] for each in model.raw_optimizers[:2])
        values, gradients = ([each.detach() for each in part] for part in (actor.parameters, actor.grad_views))
        self.actor = Layers(*([as_rows(each) for each in part] for part in (values, gradients)))
        self.critic = Layers([each.detach() for each in critic.parameters], critic.grad_views)
        self.target = Layers([each.detach() for each in model.target_critic.parameters()])

    @torch.no_grad()
    def gradient_step(self, batch: SACBatch, next_noise: Tensor, noise: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Step critics, actor and temperature once; return the critics' absolute errors `[N]`, and the metrics."""
        actor, critic, *temperature = self.model.raw_optimizers[: self.model.curiosity_index]
        max_grad_norm, alpha = self.model.max_grad_norm, self.model.log_alpha.exp()
        critic_loss, errors, q_mean = self.critic_gradient_(batch, next_noise, alpha)
        critic_norm = self.optim.step_from_flat_grad(critic, max_grad_norm)
        actor_loss, entropy = self.actor_gradient_(batch, noise, alpha)
        actor_norm = self.optim.step_from_flat_grad(actor, max_grad_norm)
        if temperature:
            surplus = batch.counts * (entropy - self.model.target_entropy_of(None))
            torch.mul(surplus.mean(), alpha, out=self.optim.flat[temperature[0]].grad_views[0])
            self.optim.step_from_flat_grad(temperature[0], math.inf)
        return errors, [critic_loss, actor_loss, alpha, entropy.mean(), q_mean, critic_norm, actor_norm]

    def critic_gradient_(self, batch: SACBatch, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Write the gradient of `SAC.critic_loss`; return its results."""
        next_sample = SquashedSample.of(self.actor(as_features(batch.next_obs))[0], noise)
        q1, q2 = self.q(self.target, batch.next_obs, next_sample.action)[0]
        target = td_target(batch.return_, soft_value(q1, q2, next_sample.log_prob, alpha), batch.discount)
        q, inputs = self.q(self.critic, batch.obs, batch.action)
        error = q - target
        grad_q = batch.weight * (1 / len(target)) * (2.0 * error)
        self.critic.backward_(inputs, grad_q.unsqueeze(-1))
        return (batch.weight * error.square()).sum(0).mean(), error.abs().mean(0), q.mean()

    def actor_gradient_(self, batch: SACBatch, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Write the gradient of `SAC.actor_loss`; return its results."""
        output, inputs = self.actor(as_features(batch.obs))
        sample = SquashedSample.of(output, noise)
        (q1, q2), critic_inputs = self.q(self.critic, batch.obs, sample.action)
        counts = batch.counts
        grad_value = counts * (-1 / len(counts))
        q1_is_lower = torch.heaviside(q2 - q1, q1.new_full((), 0.5))  # 1/2 if equal, as in the gradient of the minimum
        grad_q = torch.stack([grad_value * q1_is_lower, grad_value * (1 - q1_is_lower)]).unsqueeze(-1)
        grad_action = self.critic.grad_input(critic_inputs, grad_q).sum(0)[:, -sample.action.shape[-1] :]
        self.actor.backward_(inputs, sample.grad_output(grad_action, -grad_value * alpha))
        return -(counts * soft_value(q1, q2, sample.log_prob, alpha)).mean(), -sample.log_prob

    def q(self, critic: Layers, obs: Obs, action: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return estimates `[2, N]` of actions in [-1, 1], and every layer's input."""
        q, inputs = critic(torch.cat([as_features(obs), action], -1).expand(2, -1, -1))
        return q.squeeze(-1), inputs


def methods(model: SAC) -> dict[str, Callable[..., Any]]:
    """Return the method to replace, by name."""
    return {"gradient_step": ManualSAC(model).gradient_step}


def supports(model: SAC) -> bool:
    """Return whether `ManualSAC` covers the model: Box actions, ReLU networks, flat float32 optimizers on a CPU."""
    parts = (model.network, model.head, model.critic, model.target_critic)
    supported = type(model.network) is MLP and type(model.critic) is TwinMLP
    supported = supported and all(network.scale == 1 for network in (model.network, model.critic))
    supported = supported and type(model.head) is SquashedGaussianHead and all(map(is_relu_mlp, parts))
    supported = supported and all(map(is_fully_trainable, parts[:3])) and not has_hooks(model)
    return model.continuous and supported and uses_flat_fp32_cpu(model.optim, model)
