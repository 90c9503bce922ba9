"""Optimizers stepped inside `update`: gradient averaging, loss scaling, clipping, learning rates."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import (
    ASGD,
    SGD,
    Adadelta,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    Optimizer,
    RAdam,
    RMSprop,
    Rprop,
    SparseAdam,
)

from datamodules.core.errors import ConfigurationError
from modules.optim.distributed import average_gradients_
from modules.optim.flat_parameters import flatten_optimizer
from modules.optim.muon import MuonAdamW, restrict_muon_

CAPTURABLE = (ASGD, Adadelta, Adam, AdamW, Adamax, MuonAdamW, NAdam, RAdam, RMSprop, Rprop, SGD)
"""Optimizers (these exact classes) whose steps can be captured in a CUDA graph, and whose initial state is known."""

ALTERNATIVES = "choose another, for example torch.optim.Adam, AdamW, RMSprop or SGD"

DECAYS = ("weight_decay", "lambd")
"""Options that decay parameters towards zero; `lambd` is ASGD's."""


class OptimizerGroup:
    """Optimizers stepped without Lightning's closures and hooks, so that a CUDA graph can capture the steps.

    A parameter group that was given its own learning rate keeps it; schedules scale it by the same factor as the
    others. All other groups have the algorithm's learning rate.

    Args:
        each: optimizers without state; where their layout allows it they step one flat tensor instead of many (see
            `modules.optim.flat_parameters`).
        module: whose parameters they step; tells `MuonAdamW` which matrices are hidden.

    Attributes:
        scaler: of losses, in mixed precision with float16.

    Raises: ConfigurationError for optimizers that need more than a gradient.
    """

    def __init__(self, each: Sequence[Optimizer], module: nn.Module | None = None):
        self.each = list(each)
        if module is not None:
            restrict_muon_(self.each, module)
        for optimizer in self.each:
            check_optimizer(optimizer)
        self._own_rates = [[own_rate(optimizer, group) for group in optimizer.param_groups] for optimizer in self.each]
        self.flat = {optimizer: flat for optimizer in each if (flat := flatten_optimizer(optimizer)) is not None}
        self.scaler: GradScaler | None = None
        excluded = ("params", "lr", "capturable")
        self._options = [{key: group[key] for key in group if key not in excluded} for group in self.groups]
        self._rates_set: list[tuple[float, float] | None] = [None] * len(self.each)

    @property
    def groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups of all optimizers."""
        return [group for optimizer in self.each for group in optimizer.param_groups]

    @property
    def tensors(self) -> list[Tensor]:
        """Return the tensors of the optimizers' states."""
        states = [state for optimizer in self.each for state in optimizer.state.values()]
        return [value for state in states for value in state.values() if isinstance(value, Tensor)]

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the last step of every optimizer, averaged over ranks and clipped; [] before it."""
        gradients: list[Tensor] = []
        for optimizer in self.each:
            flat = self.flat.get(optimizer)
            each = [parameter.grad for parameter in parameters_of(optimizer)] if flat is None else flat.grad_views
            gradients += [gradient for gradient in each if gradient is not None]
        return gradients

    def detach_scaler_(self, precision: Any) -> None:
        """Take the loss scaler from Lightning's precision plugin, which would also scale the counting optimizer."""
        self.scaler = getattr(precision, "scaler", None)
        if self.scaler is not None:
            precision.scaler = None

    def restore_scaler_(self, precision: Any) -> None:
        """Give the loss scaler back to Lightning's precision plugin."""
        if self.scaler is not None:
            precision.scaler = self.scaler

    def step(self, loss: Tensor, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """Take one optimizer step, gradients averaged over ranks and clipped by their global norm; return the norm.

        Gradients are computed by `torch.autograd.grad`, not accumulated: a CUDA graph can capture that whatever stream
        came before, and under DDP no hook runs. In mixed precision with float16 a step whose gradients overflow is
        skipped; the norm is then 0.
        """
        return self.step_many(loss, {optimizer: max_grad_norm})[0]

    def step_many(self, loss: Tensor, bounds: dict[Optimizer, float]) -> list[Tensor]:
        """Take a `step` of several optimizers with one backward pass; return their norms.

        Args:
            loss: sum of losses, of which each optimizer's parameters affect only one.
            bounds: maximum norm of each optimizer's gradient.
        """
        self._store_gradients(self._gradients(loss, list(bounds)), list(bounds))
        return self._step_all(bounds)

    def step_accumulated(self, losses: Iterable[Tensor], optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """Take a `step` with the sum of the gradients of several losses, of which one graph at a time is in memory."""
        total: list[Tensor | None] = []
        for loss in losses:
            gradients = self._gradients(loss, [optimizer])
            total = [_sum(*pair) for pair in zip(total, gradients, strict=True)] if total else gradients
        self._store_gradients(total, [optimizer])
        return self._step_all({optimizer: max_grad_norm})[0]

    def step_from_flat_grad(self, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """Take a `step` with the gradient that is already in the optimizer's flat tensor."""
        flat = self.flat[optimizer]
        average_gradients_([flat.flat])
        norm = flat.clip_(max_grad_norm)
        flat.step_(optimizer)
        return norm

    def step_if_finite(self, loss: Tensor, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """Take a `step`, and undo it if the gradient is not finite, without synchronising; the norm is then 0.

        For losses that an unlucky noise sample makes overflow. A zero gradient would not do: optimizers with momentum
        would still move the parameters.
        """
        self.make_state_()
        parameters = parameters_of(optimizer)
        before = {tensor: tensor.detach().clone() for tensor in (*parameters, *self.tensors)}
        norm = self.step(loss, optimizer, max_grad_norm)
        finite = norm.isfinite()
        with torch.no_grad():
            for tensor in (*parameters, *self.tensors):
                kept = before.get(tensor, torch.zeros_like(tensor))  # new state starts at zero
                if tensor.device == finite.device:  # step counts on the host are not undone
                    tensor.copy_(torch.where(finite, tensor, kept))
            for gradient in (parameter.grad for parameter in parameters if parameter.grad is not None):
                gradient.masked_fill_(~finite, 0.0)  # also clears the padding of a flat gradient
        return torch.where(finite, norm, 0.0)

    def _gradients(self, loss: Tensor, optimizers: list[Optimizer]) -> list[Tensor | None]:
        """Return the gradient by every parameter of the optimizers, None where the loss does not depend on it."""
        loss = loss if self.scaler is None else self.scaler.scale(loss)
        parameters = [each for optimizer in optimizers for each in self._learned(optimizer)]
        return [*torch.autograd.grad(loss, parameters, allow_unused=True)]

    def _learned(self, optimizer: Optimizer) -> list[nn.Parameter]:
        """Return the parameters that an optimizer steps, those of a flat one by themselves."""
        flat = self.flat.get(optimizer)
        return parameters_of(optimizer) if flat is None else flat.parameters

    def _store_gradients(self, gradients: Sequence[Tensor | None], optimizers: list[Optimizer]) -> None:
        """Give every parameter of the optimizers its gradient, and run the hooks on it."""
        remaining = iter(gradients)
        for optimizer in optimizers:
            flat, group = self.flat.get(optimizer), self._learned(optimizer)
            group_gradients = [next(remaining) for _ in group]
            if flat is not None:
                flat.copy_grads_(group_gradients)
            else:
                for parameter, gradient in zip(group, group_gradients, strict=True):
                    parameter.grad = gradient
            observed = [parameter._post_accumulate_grad_hooks for parameter in group]
            if any(observed):
                views = group_gradients if flat is None else flat.grad_views
                pairs = zip(group_gradients, views, strict=True)
                run_hooks_(group, [None if gradient is None else view for gradient, view in pairs])

    def _step_all(self, bounds: dict[Optimizer, float]) -> list[Tensor]:
        """Take a step of each optimizer with the gradients stored; return their norms."""
        norms = [self._step(optimizer, bound) for optimizer, bound in bounds.items()]
        if self.scaler is not None:
            self.scaler.update()
        torch.clear_autocast_cache()  # autocast would reuse casts of the old weights
        return norms

    def _step(self, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """Average and clip the gradients and take a step; return the norm."""
        if self.scaler is None and optimizer in self.flat:
            return self.step_from_flat_grad(optimizer, max_grad_norm)
        parameters = parameters_of(optimizer)
        average_gradients_(parameters)
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(parameters, max_grad_norm)
        if self.scaler is None:
            optimizer.step()
            return norm
        self.scaler.step(optimizer)
        return torch.where(norm.isfinite(), norm, 0.0)

    def set_learning_rates_(self, learning_rates: Sequence[float], factor: float = 1.0) -> None:
        """Set the learning rate of each optimizer, in place where a captured update reads it.

        Args:
            learning_rates: one per optimizer, for the parameter groups without their own rate.
            factor: of the rates that parameter groups were given.
        """
        for number, rate in enumerate(learning_rates):
            changed, self._rates_set[number] = self._rates_set[number] != (rate, factor), (rate, factor)
            for group, group_rate in zip(self.each[number].param_groups, self._own_rates[number], strict=False):
                value = rate if group_rate is None else group_rate * factor
                if not isinstance(group["lr"], Tensor):
                    group["lr"] = value
                elif changed:
                    group["lr"].fill_(value)

    def make_capturable_(self, device: torch.device) -> bool:
        """Convert rates and step counts to tensors, so that steps can be captured.

        Returns: False, with a warning, if an optimizer cannot be captured.
        """
        unsupported = [type(optimizer).__name__ for optimizer in self.each if not has_known_start(optimizer)]
        if unsupported or self.scaler is not None:
            reason = f"of {unsupported[0]}" if unsupported else "the scale of float16 losses is decided on the host"
            rank_zero_warn(
                f"update is not captured as a CUDA graph ({reason}): the run continues without it, more slowly."
            )
            return False
        for group in self.groups:
            group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32, device=device)
            if "capturable" in group:
                group["capturable"] = True
        return True

    def make_state_(self) -> None:
        """Create the initial state of every optimizer without state.

        A capture takes warm-up steps, and restores only tensors that existed before.
        """
        for optimizer in self.each:
            if has_known_start(optimizer) and not any(optimizer.state.values()):
                make_state_of_(optimizer)

    def restore_options_(self) -> None:
        """Restore the configuration's options, which a checkpoint replaced by its own."""
        for group, options in zip(self.groups, self._options, strict=True):
            group |= options


def make_optimizer(
    make: Callable[[Iterable[nn.Parameter]], Optimizer], parameters: Iterable[nn.Parameter]
) -> Optimizer:
    """Create an optimizer over the trainable parameters.

    Raises: ConfigurationError if it cannot step them.
    """
    learned = trainable(parameters)
    try:
        optimizer = make(learned)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        why = str(error).rstrip(".") if learned else "all parameters of a network are frozen"
        raise ConfigurationError(
            f"model.optimizer cannot be made for these networks ({why}): {ALTERNATIVES}."
        ) from error
    if not isinstance(optimizer, Optimizer):
        raise ConfigurationError(
            f"model.optimizer made a {type(optimizer).__name__}, which is not an optimizer: {ALTERNATIVES}."
        )
    return optimizer


def check_optimizer(optimizer: Optimizer) -> None:
    """Check that an optimizer needs no more than the gradient of one minibatch.

    Raises: ConfigurationError otherwise.
    """
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    name = type(optimizer).__name__
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigurationError(
            f"{name} evaluates the loss several times a step, which is not supported: {ALTERNATIVES}."
        )
    if isinstance(optimizer, SparseAdam):
        raise ConfigurationError(f"{name} needs sparse gradients, but those of the networks are dense: {ALTERNATIVES}.")


def own_rate(optimizer: Optimizer, group: dict[str, Any]) -> float | None:
    """Return the learning rate that a new optimizer's group was given; None if the group has the default.

    A group without a rate holds the default object itself; an equal number that was given is another object.
    """
    default = optimizer.defaults.get("lr")
    return None if "lr" not in group or group["lr"] is default else float(group["lr"])


def without_decay(optimizer: Optimizer) -> Optimizer:
    """Disable weight decay, for parameters that are no weights: a temperature is a Lagrange multiplier."""
    for group in optimizer.param_groups:
        group |= {option: 0.0 for option in DECAYS if option in group}
    return optimizer


def has_known_start(optimizer: Optimizer) -> bool:
    """Return whether `make_state_of_` covers the optimizer; SGD's momentum starts at a gradient if it is dampened."""
    dampened = any(group.get("momentum") and group.get("dampening") for group in optimizer.param_groups)
    return type(optimizer) in CAPTURABLE and not dampened


@torch.no_grad()
def make_state_of_(optimizer: Optimizer) -> None:
    """Create the initial state of an optimizer in `CAPTURABLE`; parameters and gradients do not change."""
    before = [(parameter, parameter.detach().clone(), parameter.grad) for parameter in parameters_of(optimizer)]
    for parameter, _, _ in before:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for parameter, value, gradient in before:
        parameter.copy_(value)
        parameter.grad = gradient
    for group in optimizer.param_groups:
        first = {"mu": 1.0, "mu_product": 1.0, "eta": group["lr"], "step_size": group["lr"]}
        for parameter in group["params"]:
            for name, value in optimizer.state[parameter].items():
                if isinstance(value, Tensor):
                    value.fill_(first.get(name, 0.0))


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    """Return the sum of two gradients; None stands for 0."""
    return second if first is None else first if second is None else first + second


def run_hooks_(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    """Run hooks registered by `register_post_accumulate_grad_hook`, which `torch.autograd.grad` skips.

    Args:
        gradients: of the parameters, None where the loss does not depend on one; a gradient that a hook replaces is
            copied into it.
    """
    for parameter, gradient in zip(parameters, gradients, strict=True):
        hooks = parameter._post_accumulate_grad_hooks
        if not hooks or gradient is None:
            continue
        parameter.grad = gradient
        for hook in hooks.values():
            hook(parameter)
        if parameter.grad is not gradient:
            gradient.copy_(torch.zeros_like(gradient) if parameter.grad is None else parameter.grad)


def trainable(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Return the parameters with `requires_grad`; those frozen when a fit begins get no optimizer."""
    return [parameter for parameter in parameters if parameter.requires_grad]


def layout_of(optimizer: Optimizer) -> dict[str, Any]:
    """Return the class of an optimizer and the sizes of the parameters in every group, which a saved state must fit."""
    sizes = [[parameter.numel() for parameter in group["params"]] for group in optimizer.param_groups]
    return {"class": type(optimizer).__name__, "sizes": sizes}


def check_same_optimizers(saved: Sequence[dict[str, Any]], present: Sequence[dict[str, Any]]) -> None:
    """Compare optimizers, as `layout_of` describes them, with those of a checkpoint to resume from.

    Raises: ConfigurationError unless they are of the same classes and step the same parameters.
    """
    old, new = (" and ".join(dict.fromkeys(each["class"] for each in part)) for part in (saved, present))
    advice = "or begin a new run with the weights alone (load_from_checkpoint)"
    if old != new:
        raise ConfigurationError(
            f"The checkpoint was saved with the optimizer {old}, and this run has {new}: resume with {old}, {advice}."
        )
    if [*saved] != [*present]:
        raise ConfigurationError(
            f"The checkpoint's optimizers ({old}) step other parameters or parameter groups than those of this run:"
            f" resume with the same networks, frozen parameters, groups and learned temperatures, {advice}."
        )


def parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """Return the parameters that the optimizer steps: of a flat one the flat tensor."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
