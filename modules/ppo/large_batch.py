"""Settings of PPO for rollouts of many transitions (`LargeBatch`)."""

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from datamodules.core.errors import ConfigurationError
from modules.base.checks import check_values
from modules.functional.schedules import Schedule, scaled_learning_rate, schedule_value, warmup_factor

Advantage = Literal["gae", "vtrace"]

CHOICES = {"advantage": get_args(Advantage), "entropy_coef_schedule": get_args(Schedule)}
"""Values that are allowed, by setting."""


@dataclass(frozen=True)
class LargeBatch:
    """Settings of PPO for rollouts of many transitions, arguments of `PPO`; without effect at their defaults.

    Args:
        bptt_length: steps of the segments that a recurrent network is unrolled over, and that minibatches consist of
            with V-trace or priorities; must divide `data.rollout_length`. Null for the whole rollout.
        advantage: gae, computed once for each rollout, or vtrace, computed for each minibatch with current ratios.
        rho_clip: bound of the ratio of a step's own error, with `advantage` vtrace.
        c_clip: bound of the ratios in the decay of later errors, with `advantage` vtrace.
        priority_alpha: segments are drawn with probability proportional to their summed absolute advantage to this
            power, in [0, 1]; 0 takes each of them once in an epoch.
        priority_beta: initial exponent of the importance weights of drawn segments, in [0, 1]; 1 at the end of the run.
        refresh_values: each minibatch overwrites the rollout's values, which `value_clip_range` and vtrace use.
        num_microbatches: pieces of a minibatch whose gradients are computed one after the other, to save memory.
        reference_minibatch: transitions of the minibatch that `learning_rate` suits; the rate is multiplied by the
            square root of minibatch / reference, the minibatch being that of all ranks. Null for no scaling.
        max_learning_rate: largest initial learning rate; null for no limit.
        learning_rate_warmup: fraction of the run in which the learning rate rises linearly, in [0, 1].
        entropy_coef_schedule: constant entropy coefficient, or a decay to 0 over the run: linear or cosine.
        reward_centering: step size of a running mean of the rewards, which is subtracted, in [0, 1]; 0 for none. For
            tasks without end: within an episode it also changes what a longer one is worth.

    Raises: ConfigurationError for values out of range.
    """

    bptt_length: int | None = None
    advantage: Advantage = "gae"
    rho_clip: float = 1.0
    c_clip: float = 1.0
    priority_alpha: float = 0.0
    priority_beta: float = 0.4
    refresh_values: bool = False
    num_microbatches: int = 1
    reference_minibatch: int | None = None
    max_learning_rate: float | None = None
    learning_rate_warmup: float = 0.0
    entropy_coef_schedule: Schedule = "constant"
    reward_centering: float = 0.0

    def __post_init__(self) -> None:
        numbers = {name: value for name, value in vars(self).items() if isinstance(value, int | float)}
        check_values(**{name: value for name, value in numbers.items() if not isinstance(value, bool)})
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ConfigurationError(f"model.{name} is {value!r}; it must be one of {str(choices)[1:-1]}.")

    @property
    def in_segments(self) -> bool:
        """Return whether minibatches consist of segments also if the network is feed-forward."""
        return self.advantage == "vtrace" or self.priority_alpha > 0

    @property
    def changes_updates(self) -> bool:
        """Return whether the steps on minibatches differ from those of plain PPO."""
        changed = self.in_segments or self.num_microbatches > 1 or self.refresh_values
        return changed or self.entropy_coef_schedule != "constant"

    def priority_exponent(self, progress: float) -> float:
        """Return beta, the exponent of the importance weights, at `progress` of the run."""
        return schedule_value("linear", self.priority_beta, progress, end=1.0)

    def learning_rate_factor(self, rate: float, minibatch: int, progress: float) -> float:
        """Return the factor of a learning rate by the size of minibatches and by the warm-up.

        Args:
            minibatch: transitions, of all ranks together.
            progress: fraction of the run at the end of the iteration.
        """
        scaled = scaled_learning_rate(rate, minibatch, self.reference_minibatch, self.max_learning_rate)
        return scaled / rate * warmup_factor(progress, self.learning_rate_warmup)


def check_argument_names(algorithm: str, arguments: dict[str, Any]) -> None:
    """Check that the remaining arguments of an algorithm are those of `LargeBatch`.

    Raises: ConfigurationError otherwise.
    """
    known = {field.name for field in fields(LargeBatch)}
    if unknown := [name for name in arguments if name not in known]:
        raise ConfigurationError(
            f"{algorithm} has no argument {', '.join(unknown)}: remove it, or correct its name. Its last arguments are"
            " those of modules.ppo.large_batch.LargeBatch."
        )
