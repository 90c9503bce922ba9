"""InfoNCELoss: features of a step resemble those of a later step of the same episode."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from datamodules.core.arguments import check_ranges
from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import tree_map
from datamodules.core.types import Rollout
from modules.functional.contrastive import info_nce, steps_before_boundary, truncated_geometric
from modules.functional.policy_gradient import masked_mean
from modules.networks.base import no_episode_start
from modules.ppo.auxiliary.base import AuxiliaryLoss, Columns, ForwardPass
from modules.ppo.batch import PPOBatch

if TYPE_CHECKING:
    from modules.ppo.ppo import PPO


class InfoNCELoss(AuxiliaryLoss):
    """Contrastive predictive coding of the policy's features, those of a recurrent network included.

    L = coef mean(InfoNCE(f_t, f_{t+d}, negatives) + logsumexp_coef logsumexp(negatives)),   d ~ Geometric(1 - gamma)

    The positive of a step is a later step of the same row, never across the end of the episode or of the sequence: d is
    conditioned on being before it. Steps without a later one do not count. Negatives are drawn uniformly: of a
    recurrent network half of them from the other times of the row, the others from the minibatch; else all from the
    minibatch. Those that are the step itself or its positive do not count.

    Needs memory for `num_negatives` features per step of a minibatch. Without recurrence the features of the positives
    are computed in addition.

    Args:
        coef: coefficient of the loss, above 0.
        gamma: the mean offset of positives is 1 / (1 - gamma) steps, if nothing ends before; between 0 and 1.
        temperature: divides the cosine similarities, above 0.
        num_negatives: negatives of every step, at least 2.
        logsumexp_coef: weight of the negatives' log-sum-exp, which keeps similarities small; at least 0.

    Raises: ConfigurationError for values out of range, microbatches, segments of a feed-forward network, and segments
        drawn by priority, of which copies of a step would be negatives of it.

    Source: van den Oord et al. 2018, arXiv:1807.03748, section 2.3; geometric offsets as in Eysenbach et al. 2022,
    arXiv:2206.07568, section 4.1.
    """

    name = "contrastive"
    metrics = ("loss", "accuracy")
    supports_microbatches = False

    def __init__(
        self,
        coef: float = 0.1,
        gamma: float = 0.9,
        temperature: float = 0.1,
        num_negatives: int = 16,
        logsumexp_coef: float = 0.01,
    ):
        check_ranges(
            "InfoNCELoss",
            ("coef", coef, coef > 0, "a positive number"),
            ("gamma", gamma, 0 < gamma < 1, "a number between 0 and 1"),
            ("temperature", temperature, temperature > 0, "a positive number"),
            ("num_negatives", num_negatives, num_negatives >= 2, "at least 2"),
            ("logsumexp_coef", logsumexp_coef, logsumexp_coef >= 0, "at least 0"),
        )
        self.coef, self.gamma, self.temperature = coef, gamma, temperature
        self.num_negatives, self.logsumexp_coef = num_negatives, logsumexp_coef

    def on_fit_start(self, model: "PPO") -> None:
        """Check the minibatches.

        Raises: ConfigurationError for segments of a feed-forward network, and for segments drawn by priority.
        """
        if model.learns_segments and not model.recurrent:
            raise ConfigurationError(
                "InfoNCELoss of a feed-forward network needs minibatches of single transitions: set model.advantage to"
                " gae and model.priority_alpha to 0, or use a recurrent network."
            )
        if model.large_batch.priority_alpha > 0:
            raise ConfigurationError(
                f"model.priority_alpha is {model.large_batch.priority_alpha}, which draws a segment several times, but"
                " InfoNCELoss would take the copies of a step for negatives of it: set model.priority_alpha to 0."
            )

    def prepare(self, model: "PPO", rollout: Rollout) -> Columns:
        """Return which steps do not continue the step before; of a recurrent network the batch says it."""
        return {} if model.recurrent else {"boundary": rollout.episode_start | ~rollout.valid}

    def draw(self, model: "PPO", batch: PPOBatch) -> Columns:
        """Return uniforms; without recurrence also the positives' observations, and both indices into the batch."""
        shape, generator = (*batch.advantage.shape, 1 + self.num_negatives), model.minibatch_generator
        noise = torch.rand(shape, generator=generator, device=batch.advantage.device)
        if batch.episode_start is not None:
            return {"noise": noise}
        boundary = batch.extras[self.name]["boundary"]
        series = boundary if boundary.dim() == 2 else boundary.view(model.data.rollout_length, -1)
        later = steps_before_boundary(series).flatten()
        step = torch.arange(len(later), device=later.device)
        positive = step + series.shape[1] * truncated_geometric(noise[..., 0].flatten(), later, gamma=self.gamma)
        index, last = torch.where(later > 0, positive, step), boundary.dim() - 1
        obs = tree_map(lambda part: part.flatten(0, last)[index].unflatten(0, boundary.shape), batch.obs)
        indices = {name: index.view_as(boundary) for name, index in (("step", step), ("positive", positive))}
        return {"boundary": boundary, "later": later.view_as(boundary), **indices, "positive_obs": obs, "noise": noise}

    def loss(self, model: "PPO", batch: PPOBatch, forward: ForwardPass) -> tuple[Tensor, list[Tensor]]:
        """Return the loss, and its mean before the coefficients and the share of anchors nearest to their positive."""
        columns, features = batch.extras[self.name], forward.features.float().flatten(0, -2)
        noise = columns["noise"].flatten(0, -2)
        if batch.episode_start is not None:
            later, step, positive, negative = self._indices(batch, noise)
            positive_features = features[torch.where(later > 0, positive, step)]
        else:
            later, step, positive = (columns[name].flatten() for name in ("later", "step", "positive"))
            negative, last = (noise[:, 1:] * len(step)).long(), columns["later"].dim() - 1
            obs = model.normalized(tree_map(lambda part: part.flatten(0, last), columns["positive_obs"]))
            positive_features = model.network(obs, {}, no_episode_start(obs))[0].float()
        excluded = (step[negative] == step.unsqueeze(1)) | (step[negative] == positive.unsqueeze(1))
        valid = later > 0
        if batch.valid is not None:
            steps_valid = batch.valid.flatten()
            excluded, valid = excluded | ~steps_valid[negative], valid & steps_valid
        valid = valid & ~excluded.all(1)
        excluded = excluded & valid.unsqueeze(1)  # an anchor that does not count has finite gradients
        info = info_nce(features, positive_features, features[negative], excluded, temperature=self.temperature)
        nce, spread = masked_mean(info.loss, valid), masked_mean(info.logsumexp, valid)
        accuracy = masked_mean(info.correct.to(nce.dtype), valid)
        return self.coef * (nce + self.logsumexp_coef * spread), [nce, accuracy]

    def _indices(self, batch: PPOBatch, noise: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return, for sequences flattened time first, later steps, steps and positives `[N]`, and negatives `[N, K]`.

        Steps, positives and negatives are indices into the flattened minibatch.
        """
        assert batch.episode_start is not None
        (length, rows), half = batch.episode_start.shape, self.num_negatives // 2
        boundary = batch.episode_start if batch.valid is None else batch.episode_start | ~batch.valid
        later = steps_before_boundary(boundary).flatten()
        step = torch.arange(length * rows, device=noise.device)
        positive = step + rows * truncated_geometric(noise[:, 0], later, gamma=self.gamma)
        same_row = (noise[:, 1 : 1 + half] * length).long() * rows + (step % rows).unsqueeze(1)
        return later, step, positive, torch.cat([same_row, (noise[:, 1 + half :] * len(step)).long()], 1)
