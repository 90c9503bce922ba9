"""Checks of an algorithm's settings, spaces and data, each with a one-sentence error."""

import importlib
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from lightning.pytorch import LightningModule

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import ActionType, SpaceSpec

UNIT_INTERVAL = (
    *("gamma", "gae_lambda", "q_lambda", "epsilon_start", "epsilon_end"),
    *("learning_rate_warmup", "priority_alpha", "priority_beta", "reward_centering"),
)
"""Settings that lie in [0, 1]; the others that are checked are positive."""

SPACE_NAMES: dict[ActionType, str] = {
    "discrete": "Discrete",
    "multidiscrete": "MultiDiscrete",
    "binary": "MultiBinary",
    "continuous": "Box",
    "hybrid": "Dict or Tuple of Box and Discrete parts",
}
"""Gymnasium's space of each kind of action."""


def divisors(number: int) -> list[int]:
    """Return all divisors of a positive number."""
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def nearest_divisors(number: int, wanted: int) -> str:
    """Return the end of a sentence that names the divisors of `number` that are nearest to `wanted`."""
    near = sorted(divisors(number), key=lambda divisor: abs(divisor - wanted))[:4]
    return f"the nearest that do are {sorted(near)}"


def check_values(**values: float | None) -> None:
    """Check that settings in `UNIT_INTERVAL` are in [0, 1] and all others positive.

    None is accepted: `require_values` refuses it where it is not allowed.

    Raises: ConfigurationError otherwise.
    """
    for name, value in values.items():
        if value is None:
            continue
        if name in UNIT_INTERVAL and not 0 <= value <= 1:
            raise ConfigurationError(f"model.{name} is {value}; it must lie in [0, 1].")
        if name not in UNIT_INTERVAL and not value > 0:
            raise ConfigurationError(f"model.{name} is {value}; it must be positive.")


def check_divides(num_minibatches: int, parts: int, what: str = "transitions (num_envs x rollout_length)") -> None:
    """Check that the minibatches divide the rollout; name the nearest numbers that do.

    Raises: ConfigurationError otherwise.
    """
    if parts % num_minibatches:
        raise ConfigurationError(
            f"model.num_minibatches is {num_minibatches}, which does not divide the rollout's {parts} {what}:"
            f" {nearest_divisors(parts, num_minibatches)}."
        )


def check_minibatches(model: Any, data: Any) -> None:
    """Check that minibatches divide the rollout's transitions, or its rows or segments if the model learns these.

    Raises: ConfigurationError otherwise, and if segments do not divide the rollout, or microbatches a minibatch.
    """
    num_minibatches, transitions = getattr(model, "num_minibatches", 1), getattr(data, "transitions_per_rollout", None)
    if transitions is None:
        return
    options = getattr(model, "large_batch", None)
    parts, what = transitions, "transitions (num_envs x rollout_length)"
    if getattr(model, "learns_segments", getattr(model, "recurrent", False)):
        length = getattr(options, "bptt_length", None) or data.rollout_length
        if data.rollout_length % length:
            raise ConfigurationError(
                f"model.bptt_length is {length}, which does not divide data.rollout_length {data.rollout_length}:"
                f" {nearest_divisors(data.rollout_length, length)}."
            )
        parts = transitions // length
        what = "rows (environments)" if length == data.rollout_length else f"segments of {length} steps"
    check_divides(num_minibatches, parts, what)
    pieces, size = getattr(options, "num_microbatches", 1), parts // num_minibatches
    if size % pieces:
        raise ConfigurationError(
            f"model.num_microbatches is {pieces}, which does not divide a minibatch's {size} {what.split(' (')[0]}:"
            f" {nearest_divisors(size, pieces)}."
        )


def check_feed_forward(network: object, who: str) -> None:
    """Check that a network is not recurrent; `who` names the part that needs it.

    Raises: ConfigurationError for a recurrent network.
    """
    if hasattr(network, "unroll"):
        raise ConfigurationError(
            f"model.network is {type(network).__name__}, which is recurrent: give {who} a feed-forward one."
        )


def check_one_step(data: Any, who: str) -> None:
    """Check that the data has one-step windows; `who` names the part that needs them.

    Raises: ConfigurationError for windows of several steps.
    """
    if getattr(data, "n_step", 1) != 1:
        raise ConfigurationError(f"data.n_step is {data.n_step}; {who} learns from single steps: set it to 1.")


def algorithms() -> dict[str, Any]:
    """Return the package's algorithms by dotted path."""
    package: Any = importlib.import_module("modules")
    exported = {f"modules.{name}": getattr(package, name) for name in sorted(package.EXPORTS)}
    return {path: kind for path, kind in exported.items() if hasattr(kind, "action_types")}


def check_action_space(algorithm: Any, spaces: SpaceSpec) -> None:
    """Check that the algorithm supports the action space, and that no part is constant.

    Raises: ConfigurationError otherwise.
    """
    check_overrides(algorithm)
    kind = spaces["action_type"]
    if kind not in algorithm.action_types:
        others = [path for path, other in algorithms().items() if kind in other.action_types]
        raise ConfigurationError(
            f"{algorithm.__name__} cannot act in this environment, whose action space is a {SPACE_NAMES[kind]}: use"
            f" {' or '.join(others)}."
        )
    bounds = zip(spaces["action_low"], spaces["action_high"], strict=True)
    if constant := [part for part, (low, high) in enumerate(bounds) if not low < high]:
        raise ConfigurationError(
            f"Part {constant[0]} of the action cannot vary: leave it out of action_low and action_high."
        )


def check_overrides(algorithm: type) -> None:
    """Check that no method of an algorithm replaces one of Lightning's or torch's that is called with other arguments.

    Raises: ConfigurationError for such a method, `train(self, batch)` for example.
    """
    for name, base in inspect.getmembers(LightningModule, inspect.isfunction):
        method = getattr(algorithm, name)
        if name.startswith("_") or method is base or not inspect.isfunction(method):
            continue
        needed, taken = _positional(base), _positional(method)
        if math.isinf(needed.most):
            continue
        if taken.required > needed.required or taken.most < needed.most:
            arguments = ", ".join(inspect.signature(base).parameters)
            raise ConfigurationError(
                f"{algorithm.__name__} has a method `{name}`, which takes the place of one of Lightning or torch that"
                f" is called with other arguments ({arguments}): rename it, for example to `{name}_minibatch`."
            )


class _Positional(NamedTuple):
    """Numbers of positional arguments of a function: those without default, and all."""

    required: int
    most: float


def _positional(function: Callable[..., Any]) -> _Positional:
    parameters = inspect.signature(function).parameters.values()
    placed = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    unlimited = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return _Positional(sum(each.default is each.empty for each in placed), math.inf if unlimited else len(placed))


def check_recurrent(network: object, shared: bool) -> None:
    """Check that policy and value share a recurrent network.

    Raises: ConfigurationError otherwise.
    """
    if hasattr(network, "unroll") and not shared:
        raise ConfigurationError(
            f"model.network is {type(network).__name__}, which is recurrent, so policy and value must"
            " share it: set model.share_torso to true."
        )


def check_compatible(model: Any, data: Any) -> None:
    """Check that the data has the model's spaces and yields the kind of batch it learns from.

    Raises: ConfigurationError otherwise.
    """
    spaces = getattr(data, "spaces", model.spaces)
    if spaces != model.spaces:
        raise ConfigurationError(f"The model was made for spaces {model.spaces}, but the data has {spaces}.")
    if model.off_policy != data.off_policy:
        source = "a replay (off-policy data, such as" if model.off_policy else "rollouts (on-policy data, such as"
        kind = "datamodules.ReplayDataModule" if model.off_policy else "datamodules.RolloutDataModule"
        raise ConfigurationError(
            f"{type(model).__name__} learns from {source} {kind}), not from {type(data).__name__}."
        )
    check_sequences(model, data)
    if getattr(data, "policy_lag", 0) and not model.supports_policy_lag:
        raise ConfigurationError(
            f"data.policy_lag is {data.policy_lag}, but {type(model).__name__} learns only from rollouts of its current"
            " policy: set it to 0 (or, if its `prepare` corrects for an older policy, set supports_policy_lag to True)."
        )


SAME_SPACES = ("obs_shape", "obs_dtype", "obs_parts", "action_type", "action_sizes", "action_low", "action_high")
"""Entries of the spaces in which agents of one environment agree."""


def check_same_spaces(checkpoint: str, trained: SpaceSpec, spaces: SpaceSpec) -> None:
    """Check that the agent of a checkpoint was trained on the spaces of an agent of this run.

    Args:
        checkpoint: path of the checkpoint.   trained: its spaces.   spaces: those of this run.

    Raises: ConfigurationError otherwise.
    """
    mine, other = cast(dict[str, Any], spaces), cast(dict[str, Any], trained)
    if changed := [name for name in SAME_SPACES if _as_lists(mine.get(name)) != _as_lists(other.get(name))]:
        raise ConfigurationError(
            f"{checkpoint} was trained with {changed[0]} {other.get(changed[0])}, but the agent has"
            f" {mine.get(changed[0])}: give the checkpoint of an agent with the same spaces."
        )


def _as_lists(value: Any) -> Any:
    """Return the value with lists instead of tuples, as some files store them."""
    if isinstance(value, dict):
        return {name: _as_lists(child) for name, child in value.items()}
    return [_as_lists(child) for child in value] if isinstance(value, list | tuple) else value


def check_sequences(model: Any, data: Any) -> None:
    """Check that a replay samples sequences for a recurrent network, and single windows for a feed-forward one.

    Raises: ConfigurationError otherwise.
    """
    length, recurrent = getattr(data, "sequence_length", 1), getattr(model, "recurrent", False)
    if not model.off_policy or recurrent == (length > 1):
        return
    if recurrent:
        raise ConfigurationError(
            "model.network is recurrent, and learns from sequences: set data.sequence_length, for example to 16, and"
            " data.burn_in, for example to 4."
        )
    raise ConfigurationError(
        f"data.sequence_length is {length}, but the network of {type(model).__name__} is feed-forward: set it to 1 and"
        " data.burn_in to 0, or use a recurrent network, where the algorithm takes one."
    )


def check_own_optimizers(model: Any) -> None:
    """Check that the Trainer has the model's own optimizers, the counting one last.

    Raises: ConfigurationError otherwise.
    """
    optimizers = vars(model).get("optim")
    if optimizers is None or model.trainer.optimizers[:-1] != optimizers.each:
        raise ConfigurationError(
            f"{type(model).__name__} overrides configure_optimizers, which also makes the optimizer that counts"
            " iterations: override build_optimizers instead, which returns a list of the optimizers that update steps."
        )


def check_precision(precision: str) -> None:
    """Check that weights and losses are float32 in the Trainer's precision.

    Raises: ConfigurationError otherwise.
    """
    if precision in ("16-true", "bf16-true", "64-true"):
        raise ConfigurationError(f"trainer.precision {precision} is not supported; use bf16-mixed or 32-true.")


@torch.no_grad()
def check_sizes(model: Any, spaces: SpaceSpec) -> None:
    """Check that a dynamics model has the environment's observation and action sizes.

    Raises: ConfigurationError otherwise.
    """
    device, shown = next(model.parameters()).device, math.prod(spaces["obs_shape"])
    made = model.decode(torch.zeros(int(model.dynamics.dimensions), device=device)).shape[-1]
    if made != shown:
        where = "model.model.dynamics that many dimensions" if model.observed else "its encoder and decoder that size"
        raise ConfigurationError(
            f"The model observes {made} numbers, but the environment's observations have {shown}: give {where}."
        )
    parts = len(spaces["action_low"])
    try:
        model.action_encoder(torch.zeros(parts, device=device))
    except RuntimeError as error:
        where = "model.model.axes one entry for each" if model.observed else "its action_encoder that size"
        raise ConfigurationError(
            f"The model does not accept the environment's actions of {parts} parts: give {where}."
        ) from error


def check_state_vectors(spaces: SpaceSpec) -> None:
    """Check that observations are vectors of numbers.

    Raises: ConfigurationError for observations of several parts, images and bytes.
    """
    if parts := spaces.get("obs_parts"):
        raise ConfigurationError(
            f"ActiveDynamics learns the dynamics of state vectors, but the observations have the parts"
            f" {', '.join(parts)}: wrap the environment in gymnasium.wrappers.FlattenObservation."
        )
    if spaces["obs_dtype"] == "uint8" or len(spaces["obs_shape"]) > 2:
        raise ConfigurationError(
            f"ActiveDynamics learns the dynamics of state vectors, but the observations are images or bytes"
            f" ({spaces['obs_dtype']} of shape {spaces['obs_shape']}): choose an environment that shows a state."
        )


def check_exploration(model: Any, data: Any) -> None:
    """Check what warm-up, box, and regression of a latent model's dynamics need.

    Raises: ConfigurationError otherwise.
    """
    needing = [type(part).__name__ for part in model.modules() if getattr(part, "needs_box", False)]
    if needing and model.box is None:
        raise ConfigurationError(f"{needing[0]} needs model.box: set it to a modules.exploration.ObservationBox.")
    latent = {"regress_dynamics": model.regress_dynamics, "encoder_learning_rate": model.encoder_learning_rate}
    latent["generalized_least_squares"] = model.generalized_least_squares
    for name, value in latent.items():
        if model.model.observed and value not in (None, False):
            raise ConfigurationError(f"model.{name} is {value}, but the state is observed: only latent models use it.")
    if (model.warm_up is not None or model.regress_dynamics) and not data.collects_online:
        raise ConfigurationError(
            "model.warm_up and model.regress_dynamics need an agent that acts, not stored rollouts."
        )
    refits = data.num_updates > 0 or model.regress_dynamics
    if not refits and (model.warm_up is not None or (model.box is not None and model.box.grows)):
        raise ConfigurationError(
            f"{'a growing model.box' if model.warm_up is None else 'model.warm_up'} acts only with refits: set"
            " data.num_updates to 1 or more, or model.regress_dynamics to true."
        )
    if model.regress_dynamics and not isinstance(getattr(model.model.dynamics, "weight", None), torch.nn.Parameter):
        raise ConfigurationError(
            f"model.regress_dynamics is true, but {type(model.model.dynamics).__name__} has no single last layer: set"
            " it to false."
        )
    if (model.regress_dynamics or (model.warm_up and model.warm_up.linear_init)) and data.world_size > 1:
        raise ConfigurationError("model.regress_dynamics and linear_init work on one device: set trainer.devices to 1.")


def check_dynamics(algorithm: Any, data: Any) -> None:
    """Check a dynamics model: sizes, exact regression where it is used, and no future observations when acting.

    Raises: ConfigurationError otherwise.
    """
    check_exploration(algorithm, data)
    model = algorithm.model
    check_sizes(model, data.spaces)
    if not model.causal and data.collects_online:
        raise ConfigurationError(
            "The encoder uses future observations, which an acting agent does not have: set its bidirectional to false,"
            " or learn from stored rollouts (datamodules.OfflineSequenceDataModule)."
        )
    learned = {name for name, part in model.dynamics.named_parameters() if part.requires_grad}
    frozen = model.observed or (algorithm.regress_dynamics and algorithm.encoder_learning_rate == 0)
    if data.num_updates == 0 and not (frozen and learned == {"weight"}):
        raise ConfigurationError(
            f"data.num_updates is 0, but {type(model.dynamics).__name__} of {type(model).__name__} learns more than"
            " the last layer: set data.num_updates to 1 or more."
        )
