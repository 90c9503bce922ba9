"""What algorithms refuse, in one sentence each."""

import importlib
import math
import pkgutil
from typing import Any

import torch

import modules
from datamodules.core.errors import UsageError
from datamodules.core.types import ActionKind, Spaces

SHARES = ("gamma", "lam", "epsilon_start", "epsilon")
"""Values that lie in [0, 1]; the others that are checked are positive."""

SPACE_NAMES: dict[ActionKind, str] = {
    "discrete": "Discrete",
    "multidiscrete": "MultiDiscrete",
    "binary": "MultiBinary",
    "continuous": "Box",
}
"""Gymnasium's name of the space that each kind of action comes from."""


def divisors(number: int) -> list[int]:
    """All divisors of a positive number."""
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def check_values(**values: float | None) -> None:
    """Raises: UsageError for one of `SHARES` outside [0, 1] or another value that is not positive.

    None passes: `require_values` has refused it where it may not be.
    """
    for name, value in values.items():
        if value is None:
            continue
        if name in SHARES and not 0 <= value <= 1:
            raise UsageError(f"model.{name} is {value}; it must lie in [0, 1].")
        if name not in SHARES and not value > 0:
            raise UsageError(f"model.{name} is {value}; it must be positive.")


def check_divides(minibatches: int, parts: int, what: str = "transitions (num_envs x horizon)") -> None:
    """Raises: UsageError unless the minibatches divide the rollout, with the nearest numbers that would."""
    if parts % minibatches:
        near = sorted(divisors(parts), key=lambda divisor: abs(divisor - minibatches))[:4]
        raise UsageError(
            f"model.minibatches is {minibatches}, which does not divide the rollout's {parts} {what}:"
            f" the nearest that do are {sorted(near)}."
        )


def check_minibatches(model: Any, data: Any) -> None:
    """Raises: UsageError unless the minibatches divide a rollout's transitions, or rows where the network remembers."""
    minibatches, transitions = getattr(model, "minibatches", 1), getattr(data, "rows_per_rollout", None)
    if transitions is not None and getattr(model, "recurrent", False):
        check_divides(minibatches, transitions // data.horizon, "rows (environments)")
    elif transitions is not None:
        check_divides(minibatches, transitions)


def check_memoryless(network: object, who: str) -> None:
    """Raises: UsageError for a network that remembers, where `who` cannot use one."""
    if hasattr(network, "unroll"):
        raise UsageError(f"model.network is {type(network).__name__}, which remembers: give {who} a memoryless one.")


def check_single_steps(data: Any, who: str) -> None:
    """Raises: UsageError for windows of several steps, where `who` learns from single ones."""
    if getattr(data, "n_step", 1) != 1:
        raise UsageError(f"data.n_step is {data.n_step}; {who} learns from single steps: set it to 1.")


def algorithms() -> dict[str, Any]:
    """The algorithms that come with the package, by dotted path."""
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(modules.__path__):
        if not module.ispkg:
            members = vars(importlib.import_module(f"modules.{module.name}")).values()
            found |= {f"{each.__module__}.{each.__name__}": each for each in members if hasattr(each, "action_kinds")}
    return {path: found[path] for path in sorted(found) if path != "modules.base.algorithm.Algorithm"}


def check_action_space(algorithm: Any, spaces: Spaces) -> None:
    """Raises: UsageError for actions that the algorithm cannot choose, with those that can, and for constant parts."""
    kind = spaces["action_kind"]
    if kind not in algorithm.action_kinds:
        others = [path for path, other in algorithms().items() if kind in other.action_kinds]
        raise UsageError(
            f"{algorithm.__name__} cannot act in this environment, whose action space is a {SPACE_NAMES[kind]}: use"
            f" {' or '.join(others)}."
        )
    bounds = zip(spaces["action_low"], spaces["action_high"], strict=True)
    if constant := [part for part, (low, high) in enumerate(bounds) if not low < high]:
        raise UsageError(f"Part {constant[0]} of the action cannot vary: leave it out of action_low and action_high.")


def check_recurrent(network: object, shared: bool) -> None:
    """Raises: UsageError unless policy and value share a recurrent network."""
    if hasattr(network, "unroll") and not shared:
        raise UsageError(
            f"model.network is {type(network).__name__}, whose memory policy and value share: set model.shared to true."
        )


def check_data(model: Any, data: Any) -> None:
    """Raises: UsageError unless the data has the model's spaces and yields what it learns from, as new as needed."""
    spaces = getattr(data, "spaces", model.spaces)
    if spaces != model.spaces:
        raise UsageError(f"The model was made for spaces {model.spaces}, but the data has {spaces}.")
    if model.off_policy != data.off_policy:
        source = "a replay (off-policy data, such as" if model.off_policy else "rollouts (on-policy data, such as"
        kind = "datamodules.replay.ReplayData" if model.off_policy else "datamodules.rollout.RolloutData"
        raise UsageError(f"{type(model).__name__} learns from {source} {kind}), not from {type(data).__name__}.")
    if getattr(data, "staleness", 0) and not model.corrects_staleness:
        raise UsageError(
            f"data.staleness is {data.staleness}, but {type(model).__name__} learns only from what its policy of now"
            " collected: set it to 0 (or, if it is yours and its `prepare` copes with it, corrects_staleness to True)."
        )


def check_own_optimizers(model: Any) -> None:
    """Raises: UsageError unless the Trainer steps the model's own optimizers, the counting one last."""
    own = vars(model).get("optimization")
    if own is None or model.trainer.optimizers[:-1] != own.each:
        raise UsageError(
            f"{type(model).__name__} overrides configure_optimizers, which also makes the optimizer that counts"
            " iterations: override make_optimizers instead, which returns a list of the optimizers that update steps."
        )


def check_precision(precision: str) -> None:
    """Raises: UsageError for a precision in which weights or losses would not be float32."""
    if precision in ("16-true", "bf16-true", "64-true"):
        raise UsageError(f"trainer.precision {precision} does not work here; use bf16-mixed or 32-true.")


@torch.no_grad()
def check_sizes(model: Any, spaces: Spaces) -> None:
    """Raises: UsageError for a model of dynamics that was made for other observations or actions than these."""
    device, shown = next(model.parameters()).device, math.prod(spaces["obs_shape"])
    made = model.decode(torch.zeros(int(model.dynamics.dimensions), device=device)).shape[-1]
    if made != shown:
        where = "model.model.dynamics that many dimensions" if model.observed else "its encoder and decoder that size"
        raise UsageError(f"The model is of {made} numbers, but an observation here has {shown}: give {where}.")
    parts = len(spaces["action_low"])
    try:
        model.action_encoder(torch.zeros(parts, device=device))
    except RuntimeError as error:
        where = "model.model.axes one entry for each" if model.observed else "its action_encoder that size"
        raise UsageError(
            f"The model does not take actions of {parts} parts, as they are here: give {where}."
        ) from error


def check_dynamics(model: Any, data: Any) -> None:
    """Raises: UsageError for other sizes, inexact regression, or an agent that would act on what is yet to come."""
    check_sizes(model, data.spaces)
    if not model.causal and data.acts:
        raise UsageError(
            "The encoder looks at observations to come, which an agent does not have: set its bidirectional to false,"
            " or learn from stored rollouts (datamodules.offline.StoredData)."
        )
    learned = {name for name, part in model.dynamics.named_parameters() if part.requires_grad}
    if data.updates == 0 and not (model.observed and learned == {"weight"}):
        raise UsageError(
            f"data.updates is 0, but {type(model.dynamics).__name__} behind {type(model).__name__} has more to learn"
            " than the last layer: set data.updates to 1 or more."
        )
