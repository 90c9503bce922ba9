"""BehaviorCloningLoss: imitate the actions of stored episodes, less and less."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.episode_files import fitted_episodes
from modules.networks.base import no_episode_start
from modules.ppo.auxiliary.annealed import AnnealedLoss
from modules.ppo.auxiliary.base import Columns, ForwardPass
from modules.ppo.batch import PPOBatch

if TYPE_CHECKING:
    from modules.ppo.ppo import PPO


class BehaviorCloningLoss(AnnealedLoss):
    """Behaviour cloning of stored play: the negative log-likelihood of its actions, beside the loss of PPO.

    L = share coef mean(-log pi(a|s)),   (s, a) ~ dataset

    Every minibatch is joined by as many stored transitions, drawn uniformly anew in each epoch. `share` is 1 at first,
    and falls linearly to 0 with the environment steps. The dataset is kept on the device.

    Args:
        dataset: episodes to imitate, needed only while training: a file `trajectories.npz` written by `predict`, or
            `minari:ID`, a Minari dataset on this machine.
        coef: coefficient of the loss, above 0.
        constant_env_steps: environment steps of this run before `share` begins to fall.
        anneal_env_steps: environment steps in which `share` falls from 1 to 0; null: the rest of the run.

    Raises: ConfigurationError for values out of range, for a dataset that cannot be read or was recorded in other
        spaces, and for a recurrent network, whose states episodes do not hold.

    Source: Pomerleau 1991, "Efficient training of artificial neural networks for autonomous navigation"; beside a
    policy gradient as in Rajeswaran et al. 2018, arXiv:1709.10087, eq. 6.
    """

    name = "behavior_cloning"
    metrics = ("loss", "share")

    def __init__(
        self, dataset: str, coef: float = 1.0, constant_env_steps: int = 0, anneal_env_steps: int | None = None
    ):
        super().__init__(constant_env_steps, anneal_env_steps)
        if not coef > 0:
            raise ConfigurationError(f"BehaviorCloningLoss has coef {coef}; it must be above 0.")
        self.dataset, self.coef = dataset, coef

    def on_fit_start(self, model: "PPO") -> None:
        """Read the episodes, and keep their transitions on the model's device."""
        super().on_fit_start(model)
        if model.recurrent:
            raise ConfigurationError(
                "BehaviorCloningLoss needs a feed-forward network: stored episodes hold no states of a recurrent one."
            )
        episodes = fitted_episodes(self.dataset, model.spaces)
        step = torch.arange(len(episodes.action))
        before = step + torch.bucketize(step, episodes.episode_start[1:], right=True)  # of the observation of each step
        obs, action = episodes.obs[before], episodes.action  # Minari's are often of double precision
        self.obs = obs.to(model.device, torch.float32 if obs.is_floating_point() else obs.dtype)
        self.action = action.to(model.device, torch.float32 if action.is_floating_point() else torch.int64)

    def draw(self, model: "PPO", batch: PPOBatch) -> Columns:
        """Return the numbers of stored transitions, as many as the batch has."""
        shape, device = batch.advantage.shape, batch.advantage.device
        return {"index": torch.randint(len(self.action), shape, generator=model.minibatch_generator, device=device)}

    def loss(self, model: "PPO", batch: PPOBatch, forward: ForwardPass) -> tuple[Tensor, list[Tensor]]:
        """Return the loss, its mean before the coefficients, and the share."""
        index = batch.extras[self.name]["index"].flatten()
        obs = model.normalized(self.obs.index_select(0, index))
        policy = model.actor(model.network(obs, {}, no_episode_start(obs))[0], None)
        loss = -policy.log_prob(self.action.index_select(0, index)).mean()
        return self.share * self.coef * loss, [loss, self.share]
