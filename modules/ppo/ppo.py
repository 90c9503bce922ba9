"""Proximal policy optimization (`PPO`)."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from datamodules.core.phase import Phase
from datamodules.core.pytree import tree_map
from datamodules.core.types import MetricVector, Rollout, SpaceSpec
from modules.base.checks import check_values
from modules.base.hparams import save_plain_hyperparameters
from modules.functional.policy_gradient import clipped_value_loss, explained_variance, masked_mean, ppo_loss
from modules.functional.priorities import draw_with_replacement, importance_weights, segment_probabilities
from modules.functional.returns import gae, vtrace
from modules.functional.schedules import Schedule, schedule_value
from modules.networks.mlp import MLP
from modules.networks.multi_input import make_obs_normalizer
from modules.networks.normalization import RewardCenterer, RewardScaler
from modules.optim.distributed import all_reduce_mean
from modules.optim.optimizer_group import make_optimizer
from modules.ppo.actor_critic import ActorCritic
from modules.ppo.auxiliary.base import AuxiliaryLoss, AuxiliaryLosses, ForwardPass
from modules.ppo.batch import NormalizedAdvantage, PPOBatch, PPOLoss, VTraceInputs
from modules.ppo.large_batch import LargeBatch, check_argument_names
from modules.ppo.microbatches import accumulated_losses, memory_advice, microbatches
from modules.ppo.policy_lag import reevaluate, rollout_log_prob
from modules.ppo.segments import check_segments, cut_into_segments, with_vtrace_advantage

LOSS_METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")
METRICS = (*LOSS_METRICS, "grad_norm", "explained_variance")


class PPO(ActorCritic):
    """Proximal policy optimization with a clipped objective (Schulman et al. 2017, arXiv:1707.06347, eq. 7 and 9).

    Implementation details (Huang et al. 2022, "The 37 implementation details of PPO", and additions):

    1. Vectorised environments; segments of fixed length that bootstrap across resets.
    2. Orthogonal initialisation: sqrt 2, the policy head 0.01, the value head 1; biases 0.
    3. Adam with eps 1e-5.
    4. `learning_rate_schedule`, stepped once an iteration.
    5. GAE; a truncated step bootstraps from the value of the true last observation.
    6. Minibatches: a new permutation every epoch.
    7. Advantages normalised per minibatch, over all ranks.
    8. Clipped ratio (`clip_range`, `clip_range_schedule`).
    9. Optional value clipping (`value_clip_range`), off by default: its benefit is small and it has a unit.
    10. Loss = policy + value_loss_coef x value - entropy_coef x entropy; the value loss includes its 1/2.
    11. Gradients clipped by their global norm (`max_grad_norm`).
    12. `METRICS` logged; approx_kl is k3.
    13. Separate networks for policy and value; `share_torso` shares one, as for images.
    14. Continuous actions: state-independent log-std, initially 0; the unclipped action is stored.
    15. `normalize_obs` and `normalize_reward` (by the running standard deviation of the discounted return), both
        clipped at 10; statistics are saved in the checkpoint and constant within an iteration and in evaluation.
    16. Multi-discrete, binary and hybrid parts are independent: log-probabilities and entropies add up.
    17. `target_kl` ends an iteration's epochs early, on all ranks together, at 1.5 times the target.
    18. A recurrent network is shared; minibatches are whole sequences, unrolled again with the resets inside.
    19. Masked actions have logits of -1e8.
    20. Losses and log-probabilities are float32 under any precision.
    21. A rollout of the previous policy (`data.policy_lag` 1) is corrected by V-trace; see `modules.ppo.policy_lag`.
    22. Options for large rollouts, off by default (`modules.ppo.large_batch`): shorter segments, V-trace advantages
        of every minibatch, priorities, scaled learning rates, microbatches, an entropy schedule, reward centring.

    The paper's Atari wrappers and frame stacks belong to the environment.

    Args:
        spaces: observation and action space; on the command line it comes from the data.
        network: makes a torso from `obs_shape` (a class_path on the command line).
        share_torso: one torso for policy and value.
        optimizer: makes the optimizer from the parameters; its learning rate is `learning_rate`.
        learning_rate: initial learning rate of the optimizer.
        learning_rate_schedule: constant rate, or a decay to 0 over the run: linear or cosine.
        gamma: discount per environment step, in [0, 1].
        gae_lambda: lambda of the generalised advantage estimate, in [0, 1]; 0 is one-step TD, 1 is Monte Carlo.
        update_epochs: epochs over each rollout.
        num_minibatches: minibatches per epoch; must divide the rollout's transitions (its rows, if the network is
            recurrent, or its segments).
        minibatch_order: shuffled in every epoch, or strided: every n-th row, without a copy.
        clip_range: half-width of the interval around 1 outside which the ratio has no gradient.
        clip_range_schedule: constant clip range, or a decay to 0 over the run: linear or cosine.
        value_clip_range: half-width of the value's clip interval, in units of the (scaled) return; null for none.
        value_loss_coef: coefficient of the value loss, which includes a factor 1/2.
        entropy_coef: coefficient of the entropy bonus, in units of the normalised advantage per nat.
        max_grad_norm: maximum global norm of the gradient; larger ones are scaled down.
        target_kl: an iteration's epochs end when the KL divergence exceeds 1.5 times this, in nats; null: never.
        normalize_obs: scale observations by their running mean and standard deviation.
        normalize_reward: scale rewards by the running standard deviation of the discounted return.
        auxiliary_losses: terms added to the loss, such as `modules.KickstartLoss`; null for none.
        large_batch: arguments of `modules.ppo.large_batch.LargeBatch`.

    Raises: ConfigurationError for values out of range and unknown arguments.
    """

    supports_policy_lag = True
    action_types = ("discrete", "multidiscrete", "binary", "continuous", "hybrid")

    def __init__(
        self,
        spaces: SpaceSpec,
        network: Callable[[tuple[int, ...]], nn.Module] = MLP,
        share_torso: bool = False,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = lambda params: Adam(params, eps=1e-5, fused=True),
        learning_rate: float = 3e-4,
        learning_rate_schedule: Schedule = "constant",
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        update_epochs: int = 4,
        num_minibatches: int = 4,
        minibatch_order: Literal["shuffled", "strided"] = "shuffled",
        clip_range: float = 0.2,
        clip_range_schedule: Schedule = "constant",
        value_clip_range: float | None = None,
        value_loss_coef: float = 1.0,
        entropy_coef: float = 0.0,
        max_grad_norm: float = 0.5,
        target_kl: float | None = None,
        normalize_obs: bool = False,
        normalize_reward: bool = False,
        auxiliary_losses: list[AuxiliaryLoss] | None = None,
        **large_batch: Any,
    ):
        super().__init__(spaces)
        save_plain_hyperparameters(self, ignore=("auxiliary_losses",))  # only training needs them
        check_values(gamma=gamma, gae_lambda=gae_lambda, update_epochs=update_epochs, num_minibatches=num_minibatches)
        check_values(clip_range=clip_range, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        self.optimizer, self.max_grad_norm = optimizer, max_grad_norm
        self.learning_rate, self.learning_rate_schedule = learning_rate, learning_rate_schedule
        self.gamma, self.gae_lambda, self.target_kl = gamma, gae_lambda, target_kl
        self.update_epochs, self.num_minibatches, self.minibatch_order = update_epochs, num_minibatches, minibatch_order
        self.clip_range, self.clip_range_schedule = clip_range, clip_range_schedule
        self.value_clip_range, self.value_loss_coef, self.entropy_coef = value_clip_range, value_loss_coef, entropy_coef
        check_argument_names(type(self).__name__, large_batch)
        self.large_batch, self.entropy_weight = LargeBatch(**large_batch), cast(float | Tensor, entropy_coef)
        self.obs_normalizer = make_obs_normalizer(spaces) if normalize_obs else None
        self.reward_scaler = RewardScaler(gamma) if normalize_reward else None
        self.reward_centerer = RewardCenterer(beta) if (beta := self.large_batch.reward_centering) else None
        self.auxiliary_losses = AuxiliaryLosses(auxiliary_losses or ())
        self.make_networks(network, share_torso)
        self.learns_segments = self.recurrent or self.large_batch.in_segments
        check_segments(self)

    def prepare(self, rollout: Rollout) -> PPOBatch:
        """Compute advantages and value targets of a rollout; return its segments, or its T x B transitions."""
        behavior_log_prob = None  # that of the current policy, without policy lag
        if self.has_policy_lag:
            behavior_log_prob = rollout_log_prob(self, rollout)
            rollout = reevaluate(self, rollout)
        log_prob = rollout_log_prob(self, rollout)
        values, states = self.values(rollout)
        value, next_value = values[:-1], self.next_value(rollout, values, states)
        reward = self.centered(rollout.reward)
        if self.reward_scaler is not None:
            reward = self.reward_scaler.scale(reward)
        steps = (reward, value, next_value, rollout.terminated, rollout.truncated)
        if behavior_log_prob is None:
            advantage, target = gae(*steps, gamma=self.gamma, lam=self.gae_lambda)
        else:
            advantage, target = vtrace(
                log_prob - behavior_log_prob,
                *steps,
                gamma=self.gamma,
                lam=self.gae_lambda,
                rho_max=self.large_batch.rho_clip,
                c_max=self.large_batch.c_clip,
            )
        batch = PPOBatch(
            obs=tree_map(lambda part: part[:-1], rollout.obs),
            action=rollout.action,
            log_prob=log_prob,
            value=value,
            advantage=advantage,
            target=target,
            valid=rollout.valid if rollout.has_invalid_steps else None,
            mask=rollout.extras.get("action_mask"),
            episode_start=rollout.episode_start if self.recurrent else None,
            state=rollout.state,
            extras=self.auxiliary_losses.prepare(self, rollout),
        )
        if not self.learns_segments:
            return batch.map(lambda column: column.flatten(0, 1))
        if self.large_batch.advantage == "vtrace":
            trace = VTraceInputs(reward, next_value, rollout.terminated, rollout.truncated, behavior_log_prob)
            batch = batch._replace(trace=trace)
        return cut_into_segments(batch, states, self.large_batch.bptt_length or len(reward))

    def centered(self, reward: Tensor) -> Tensor:
        """Return rewards less their running mean, if `reward_centering` is on."""
        return reward if self.reward_centerer is None else self.reward_centerer(reward)

    def on_fit_start(self) -> None:
        """Create what a schedule changes as tensors, which a captured update reads."""
        self.clip_range_tensor = torch.tensor(self.clip_range, device=self.device)
        if self.large_batch.entropy_coef_schedule != "constant":
            self.entropy_weight = torch.tensor(self.entropy_coef, device=self.device)
        self.auxiliary_losses.on_fit_start(self)
        super().on_fit_start()

    def update_schedules(self) -> None:
        """Set learning rate, clip range and entropy coefficient of the iteration."""
        if self.clip_range_schedule != "constant":
            self.clip_range_tensor.fill_(schedule_value(self.clip_range_schedule, self.clip_range, self.progress))
        self.auxiliary_losses.update_schedule(self.data.env_steps_taken)
        if isinstance(self.entropy_weight, Tensor):
            schedule = self.large_batch.entropy_coef_schedule
            self.entropy_weight.fill_(schedule_value(schedule, self.entropy_coef, self.progress))
        minibatch = self.data.transitions_per_rollout // self.num_minibatches * self.data.world_size
        iteration_end = self.progress + 1 / self.data.iterations
        factor = self.large_batch.learning_rate_factor(self.learning_rate, minibatch, iteration_end)
        self.schedule_learning_rates_(factor)

    def after_update(self, rollout: Rollout) -> None:
        """Merge the rollout into the running statistics."""
        if self.obs_normalizer is not None:
            self.obs_normalizer.update_(tree_map(lambda part: part[:-1], rollout.obs), rollout.valid)
        if self.reward_scaler is not None:
            ended = rollout.terminated | rollout.truncated | ~rollout.valid
            reward = self.centered(rollout.reward)
            self.reward_scaler.update_(reward, ended, rollout.valid, rollout.episode_start[0])
        if self.reward_centerer is not None:
            self.reward_centerer.update_(rollout.reward, rollout.valid)

    def configure_phases(self) -> dict[str, Phase[Any]]:
        """Return the phases `prepare` and `update`, the latter one epoch; values are compiled on a GPU only."""
        prepare = Phase(
            self.prepare,
            self.device,
            name="prepare",
            compile_targets=[(self, "values_of_sequences")] if self.device.type == "cuda" else [],
            mutated_tensors=self.auxiliary_losses.mutated_tensors,
        )
        update = Phase(
            self.train_epoch,
            self.device,
            name="update",
            compile_targets=[(self, "loss")],
            mutated_tensors=self.mutated_tensors,
        )
        return {"prepare": prepare, "update": update}

    def update(self, batch: PPOBatch) -> MetricVector:
        """Train `update_epochs` epochs on the batch; return the means of the metrics over them."""
        names = (*LOSS_METRICS, *self.auxiliary_losses.metrics, "grad_norm", "explained_variance")
        total, epochs, probability = torch.zeros(len(names), device=self.device), 0, None
        if self.large_batch.priority_alpha > 0:
            probability = segment_probabilities(batch.advantage, self.large_batch.priority_alpha, batch.valid)
            weight = importance_weights(probability, self.large_batch.priority_exponent(self.progress))
            batch = batch._replace(weight=weight.unsqueeze(0))
        for _ in range(self.update_epochs):
            if self.auxiliary_losses:
                batch = self.auxiliary_losses.draw(self, batch)
            with memory_advice(self, batch):
                metrics, values = self.phases["update"](batch, self.draw_order(batch.size, probability))
            if values is not None:
                batch = batch._replace(value=values)
            total += metrics
            epochs += 1
            self.updates += self.num_minibatches
            if self.target_kl is not None:
                approx_kl = all_reduce_mean(metrics[LOSS_METRICS.index("approx_kl")])
                if approx_kl > 1.5 * self.target_kl:
                    break
        return MetricVector(names, total / epochs)

    def draw_order(self, size: int, probability: Tensor | None = None) -> Tensor | None:
        """Draw the order `[size]` of an epoch: a permutation, or draws by `probability`; None keeps that of the batch.

        Args:
            size: transitions, or segments, of the batch.
            probability: of drawing each segment, with replacement.
        """
        if probability is not None:
            noise = torch.rand(size, generator=self.minibatch_generator, device=self.device)
            return draw_with_replacement(probability, noise)
        if self.num_minibatches == 1 or self.minibatch_order == "strided":
            return None
        return torch.randperm(size, generator=self.minibatch_generator, device=self.device)

    def train_epoch(self, batch: PPOBatch, order: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Take one optimizer step on each minibatch.

        Returns: means of the metrics in the order of `METRICS`, and the refreshed values of the rollout, if any.
        """
        explained = explained_variance(batch.value, batch.target, batch.valid)
        values, metrics = batch.value.clone() if self.large_batch.refresh_values else None, []
        indices = batch.minibatch_indices(self.num_minibatches, order)
        for index, minibatch in zip(indices, batch.minibatches(self.num_minibatches, order), strict=True):
            if values is None:
                metrics.append(self.train_minibatch(minibatch)[0])
            else:
                each, values[..., index] = self.train_minibatch(minibatch._replace(value=values[..., index]))
                metrics.append(each)
        return torch.cat([torch.stack(metrics).mean(0), explained.unsqueeze(0)]), values

    def train_minibatch(self, batch: PPOBatch) -> tuple[Tensor, Tensor]:
        """Take one optimizer step on one minibatch; return its metrics, `METRICS` without the last, and its values."""
        if self.large_batch.num_microbatches > 1:
            return self.train_in_microbatches(batch)
        loss, metrics, value = self.loss(batch)
        norm = self.step(loss, self.raw_optimizers[0], self.max_grad_norm)
        return torch.cat([metrics, norm.unsqueeze(0)]), value

    def train_in_microbatches(self, batch: PPOBatch) -> tuple[Tensor, Tensor]:
        """Take the step of `train_minibatch` with the sum of the gradients of `num_microbatches` pieces."""
        number = self.large_batch.num_microbatches
        with torch.no_grad():
            log_prob = batch.log_prob
            if self.large_batch.advantage == "vtrace":
                log_prob = torch.cat([self.log_prob(piece) for piece in batch.pieces(number)], -1)
            pieces = microbatches(batch, self.normalized_advantage(batch, log_prob), number)
        results: list[PPOLoss] = []
        losses = accumulated_losses(self.loss, pieces, results)
        norm = self.optim.step_accumulated(losses, self.raw_optimizers[0], self.max_grad_norm)
        metrics = torch.stack([each.metrics for each in results]).sum(0)
        return torch.cat([metrics, norm.unsqueeze(0)]), torch.cat([each.value for each in results], -1)

    def log_prob(self, batch: PPOBatch) -> Tensor:
        """Return the log-probabilities of the batch's actions under the current policy."""
        return self.actor(self.torso_features(batch)[0], batch.mask).log_prob(batch.action)

    def normalized_advantage(self, batch: PPOBatch, log_prob: Tensor) -> NormalizedAdvantage:
        """Return the minibatch's normalised advantages and its targets, those of V-trace by the current `log_prob`."""
        if self.large_batch.advantage == "vtrace":
            bounds = {"rho_clip": self.large_batch.rho_clip, "c_clip": self.large_batch.c_clip}
            batch = with_vtrace_advantage(batch, log_prob, gamma=self.gamma, lam=self.gae_lambda, **bounds)
        advantage, loss_scale = batch.normalized_advantage()
        return NormalizedAdvantage(advantage, batch.target, loss_scale)

    def loss(self, batch: PPOBatch, normalized: NormalizedAdvantage | None = None) -> PPOLoss:
        """Return the loss of a minibatch, or of a microbatch with its part of `normalized`."""
        features, value_features = self.torso_features(batch)
        policy = self.actor(features, batch.mask)
        log_prob, value = policy.log_prob(batch.action), self.critic(value_features)
        advantage, target, loss_scale = normalized or self.normalized_advantage(batch, log_prob.detach())
        policy_loss, approx_kl, clip_fraction = ppo_loss(
            log_prob, batch.log_prob, advantage, clip=self.clip_range_tensor, valid=batch.valid
        )
        value_loss = clipped_value_loss(value, batch.value, target, clip=self.value_clip_range, valid=batch.valid)
        entropy = masked_mean(policy.entropy(), batch.valid)
        loss = policy_loss + self.value_loss_coef * value_loss - self.entropy_weight * entropy
        metrics = torch.stack([policy_loss, value_loss, entropy, approx_kl, clip_fraction]).detach()
        if self.auxiliary_losses:
            auxiliary_loss, auxiliary_metrics = self.auxiliary_losses.loss(
                self, batch, ForwardPass(features, policy, value)
            )
            loss, metrics = loss + auxiliary_loss, torch.cat([metrics, auxiliary_metrics])
        return PPOLoss(loss if loss_scale is None else loss * loss_scale, metrics, value.detach())

    def build_optimizers(self) -> list[Optimizer]:
        """Return one optimizer over all trainable parameters."""
        return [make_optimizer(self.optimizer, self.parameters())]

    def rank_state_dict(self) -> dict[str, object]:
        """Add the running returns of the reward scaler, and the states of auxiliary losses."""
        state = super().rank_state_dict() | {"auxiliary_losses": self.auxiliary_losses.rank_state_dict()}
        return state | {"running_return": self.reward_scaler and self.reward_scaler.running}

    def load_rank_state_dict(self, state: dict) -> None:
        """Restore the state saved by `rank_state_dict`."""
        super().load_rank_state_dict(state)
        if self.reward_scaler is not None and state["running_return"] is not None:
            self.reward_scaler.running = state["running_return"].to(self.device)
        self.auxiliary_losses.load_rank_state_dict(state.get("auxiliary_losses", {}), self.device)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the states of auxiliary losses."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["auxiliary_losses"] = self.auxiliary_losses.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the states of auxiliary losses."""
        super().on_load_checkpoint(checkpoint)
        self.auxiliary_losses.load_state_dict(checkpoint.get("auxiliary_losses", {}))
