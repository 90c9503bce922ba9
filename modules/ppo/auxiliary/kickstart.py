"""KickstartLoss: imitate the policies and values of teachers, less and less."""

from typing import Any, cast

import torch
from torch import Tensor

from datamodules.core.arguments import check_ranges
from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import tree_map
from datamodules.core.types import PolicyInput, Rollout, State
from modules.base.checks import check_same_spaces
from modules.base.hparams import load_algorithm
from modules.functional.policy_gradient import masked_mean
from modules.networks.base import RecurrentNetwork
from modules.networks.distributions import cross_entropy
from modules.ppo.auxiliary.annealed import AnnealedLoss
from modules.ppo.auxiliary.base import Columns, ForwardPass
from modules.ppo.batch import PPOBatch
from modules.ppo.ppo import PPO


class KickstartLoss(AnnealedLoss):
    """Kickstarting: imitation of one or several trained agents in the states that the learning agent visits.

    L = share mean_teachers(action_coef mean(H(pi_T(.|s), pi(.|s))) + value_coef mean(1/2 (v_T(s) - v(s))^2))

    H is the cross-entropy. Several teachers are averaged, so that the coefficients mean the same for any number of
    them. `share` is 1 at first, and falls linearly to 0 with the environment steps. Teachers are checkpoints of PPO,
    with any network. They are evaluated once per rollout with their own normalisation, and the state of a recurrent
    teacher goes on from one rollout to the next. Values are converted to the units of the agent's scaled rewards.

    Args:
        teachers: paths of the teachers' checkpoints, or of their runs' folders, for the best checkpoints; needed only
            while training.
        action_coef: coefficient of the cross-entropy, at least 0.
        value_coef: coefficient of the value error, at least 0.
        constant_env_steps: environment steps of this run before `share` begins to fall.
        anneal_env_steps: environment steps in which `share` falls from 1 to 0; null: the rest of the run.

    Raises: ConfigurationError for values out of range, no teacher, a file that is no checkpoint of PPO, a teacher with
        other spaces, and a value error where the agent or a teacher was given centred rewards (`reward_centering`).

    Source: Schmitt et al. 2018, arXiv:1803.03835, section 3.2, with the value error in addition.
    """

    name = "kickstart"
    metrics = ("action_loss", "value_loss", "share")

    def __init__(
        self,
        teachers: list[str],
        action_coef: float = 1.0,
        value_coef: float = 1.0,
        constant_env_steps: int = 0,
        anneal_env_steps: int | None = None,
    ):
        if not teachers:
            raise ConfigurationError("KickstartLoss has no teachers: give the path of a checkpoint.")
        check_ranges(
            "KickstartLoss",
            ("action_coef", action_coef, action_coef >= 0, "at least 0"),
            ("value_coef", value_coef, value_coef >= 0, "at least 0"),
        )
        super().__init__(constant_env_steps, anneal_env_steps)
        self.paths, self.action_coef, self.value_coef = list(teachers), action_coef, value_coef
        self.teachers: list[Teacher] = []

    def on_fit_start(self, model: PPO) -> None:
        """Load the teachers."""
        super().on_fit_start(model)
        self.teachers = [Teacher(path, model) for path in self.paths]
        centered = ["the agent"] * (model.reward_centerer is not None)
        centered += [each.checkpoint for each in self.teachers if each.model.reward_centerer is not None]
        if self.value_coef > 0 and centered:
            raise ConfigurationError(
                f"KickstartLoss cannot compare values of centred rewards, which {centered[0]} has: set its value_coef"
                " to 0, or model.reward_centering of the agent and of its teachers to 0."
            )
        self.rows = model.data.transitions_per_rollout // model.data.rollout_length

    def prepare(self, model: PPO, rollout: Rollout) -> Columns:
        """Return the distribution parameters `[T, B, P]` and values `[T, B]` of every teacher."""
        return {str(number): teacher.evaluate(model, rollout) for number, teacher in enumerate(self.teachers)}

    def loss(self, model: PPO, batch: PPOBatch, forward: ForwardPass) -> tuple[Tensor, list[Tensor]]:
        """Return the loss, its two means over the teachers before the coefficients, and the share."""
        action_losses, value_losses = [], []
        for number, teacher in enumerate(self.teachers):
            column = batch.extras[self.name][str(number)]
            taught = teacher.model.actor.distribution(column["policy"])
            action_losses.append(masked_mean(cross_entropy(taught, forward.policy), batch.valid))
            value_losses.append(0.5 * masked_mean((column["value"] - forward.value).square(), batch.valid))
        action_loss, value_loss = torch.stack(action_losses).mean(), torch.stack(value_losses).mean()
        loss = self.share * (self.action_coef * action_loss + self.value_coef * value_loss)
        return loss, [action_loss, value_loss, self.share]

    def mutated_tensors(self) -> list[Tensor]:
        """Return the states of recurrent teachers."""
        return [leaf for teacher in self.teachers for leaf in teacher.state.values()]

    def rank_state_dict(self) -> dict[str, Any]:
        """Return the states of recurrent teachers."""
        return {"states": [teacher.state for teacher in self.teachers]}

    def load_rank_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Restore the states of recurrent teachers; those of other names or shapes begin anew."""
        for teacher, leaves in zip(self.teachers, state["states"], strict=False):
            initial = teacher.model.initial_state(self.rows)
            if _shapes(leaves) == _shapes(initial):
                teacher.state = {name: leaf.to(device) for name, leaf in leaves.items()}


def _shapes(state: State) -> dict[str, torch.Size]:
    return {name: leaf.shape for name, leaf in state.items()}


class Teacher:
    """Agent of a checkpoint, which does not learn.

    Args:
        checkpoint: path of the file.
        student: model that learns from it.

    state: of a recurrent network before the next rollout, every leaf `[B, ...]`; empty before the first one, and
        without recurrence.

    Raises: ConfigurationError for a file that is no checkpoint of PPO, and for other spaces.
    """

    def __init__(self, checkpoint: str, student: PPO):
        self.checkpoint = checkpoint
        self.model: PPO = load_algorithm(checkpoint)
        if not isinstance(self.model, PPO):
            raise ConfigurationError(
                f"The teacher {checkpoint} is a {type(self.model).__name__}: give KickstartLoss checkpoints of PPO."
            )
        check_same_spaces(checkpoint, self.model.spaces, student.spaces)
        self.model.requires_grad_(False).to(student.device)
        self.state: State = {}

    def evaluate(self, student: PPO, rollout: Rollout) -> dict[str, Tensor]:
        """Return its distribution parameters `[T, B, P]`, and its values `[T, B]` in the student's units."""
        obs, mask = tree_map(lambda part: part[:-1], rollout.obs), rollout.extras.get("action_mask")
        if self.model.recurrent:
            policy, value = self._unroll(obs, mask, rollout)
        else:
            rows = tree_map(lambda part: part.flatten(0, 1), obs)
            mask = None if mask is None else mask.flatten(0, 1)
            inputs = PolicyInput(rows, {}, rollout.episode_start.flatten(), mask)
            distribution, shared_value, _ = self.model.policy_and_value(inputs)
            policy = distribution.parameters.unflatten(0, rollout.reward.shape)
            value = (self.model.value(rows) if shared_value is None else shared_value).view_as(rollout.reward)
        if self.model.reward_scaler is not None:
            value = value / self.model.reward_scaler.returns.scale
        if student.reward_scaler is not None:
            value = value * student.reward_scaler.returns.scale
        return {"policy": policy, "value": value}

    def _unroll(self, obs: Any, mask: Tensor | None, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Return parameters and values of a recurrent network, and advance its state in place."""
        self.state = self.state or self.model.initial_state(rollout.reward.shape[1])
        network = cast(RecurrentNetwork, self.model.network)
        features, states = network.unroll_with_states(self.model.normalized(obs), self.state, rollout.episode_start)
        policy, value = self.model.actor(features, mask).parameters, self.model.critic(features)
        for name, leaf in self.state.items():
            leaf.copy_(states[name][-1])
        return policy, value
