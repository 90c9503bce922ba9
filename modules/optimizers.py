"""The optimizers that an update steps by itself, and all that steps share: averaging, scaling, clipping, rates."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import SGD, Adadelta, Adam, Adamax, AdamW, Optimizer, RAdam, RMSprop

from modules.flat import flattened
from modules.ranks import average_gradients_

BEGIN_AT_ZERO = (Adadelta, Adam, AdamW, Adamax, RAdam, RMSprop, SGD)
"""Optimizers whose state is all zeros before their first step, which is how a capture leaves it after warming up."""


class Optimizers:
    """Steps optimizers raw: no closure, no hook, nothing that a CUDA graph could not hold.

    Args:
        each: fresh ones; where their layout allows it they step one flat tensor instead of many (see `modules.flat`).
        scaler: of losses, in mixed precision with float16.
    """

    def __init__(self, each: Sequence[Optimizer]):
        self.each = list(each)
        self.flat = {optimizer: flat for optimizer in each if (flat := flattened(optimizer)) is not None}
        self.scaler: GradScaler | None = None
        own = ("params", "lr", "capturable")
        self._options = [{key: group[key] for key in group if key not in own} for group in self.groups]
        self._learning_rates: list[float | None] = [None] * len(self.each)

    @property
    def groups(self) -> list[dict[str, Any]]:
        """Parameter groups of all of them."""
        return [group for optimizer in self.each for group in optimizer.param_groups]

    @property
    def tensors(self) -> list[Tensor]:
        """Their states."""
        states = [state for optimizer in self.each for state in optimizer.state.values()]
        return [value for state in states for value in state.values() if isinstance(value, Tensor)]

    def take_scaler_(self, precision: Any) -> None:
        """Take over the loss scaler of Lightning's precision, which would scale the steps that count iterations too."""
        self.scaler = getattr(precision, "scaler", None)
        if self.scaler is not None:
            precision.scaler = None

    def give_scaler_back_(self, precision: Any) -> None:
        """For whatever the Trainer does next."""
        if self.scaler is not None:
            precision.scaler = self.scaler

    def step(self, loss: Tensor, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """One step: gradients averaged over ranks and clipped by their global norm, which is returned.

        Gradients are asked for rather than accumulated: a CUDA graph can hold that whatever stream came before, and
        under DDP no hook reacts to it. In mixed precision with float16 a step whose gradients overflow is left out; the
        norm is 0 then.
        """
        return self.step_each(loss, {optimizer: max_grad_norm})[0]

    def step_each(self, loss: Tensor, bounds: dict[Optimizer, float]) -> list[Tensor]:
        """A `step` of several optimizers by one backward pass; their norms.

        Args:
            loss: a sum of losses, of which every optimizer's parameters reach no more than one.
            bounds: on the norm of each optimizer's gradient.
        """
        self._differentiate(loss if self.scaler is None else self.scaler.scale(loss), list(bounds))
        norms = [self._step(optimizer, bound) for optimizer, bound in bounds.items()]
        if self.scaler is not None:
            self.scaler.update()
        torch.clear_autocast_cache()  # autocast would go on with the weights of before the step
        return norms

    def step_written(self, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """`step` by the gradient that lies in the optimizer's flat tensor already."""
        flat = self.flat[optimizer]
        average_gradients_([flat.whole])
        norm = flat.clip_(max_grad_norm)
        flat.step_(optimizer)
        return norm

    def step_if_finite(self, loss: Tensor, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """`step`, taken back if the gradient is not finite, without asking the device about it; the norm is 0 then.

        For losses that one unlucky draw of noise makes overflow. A gradient of zero would not do: optimizers with
        momentum go on moving.
        """
        parameters = parameters_of(optimizer)
        before = {tensor: tensor.detach().clone() for tensor in (*parameters, *self.tensors)}
        norm = self.step(loss, optimizer, max_grad_norm)
        finite = norm.isfinite()
        with torch.no_grad():
            for tensor in (*parameters, *self.tensors):
                kept = before.get(tensor, torch.zeros_like(tensor))  # a fresh state begins at zero
                if tensor.device == finite.device:  # a count of steps on the host goes on
                    tensor.copy_(torch.where(finite, tensor, kept))
            for gradient in (parameter.grad for parameter in parameters if parameter.grad is not None):
                gradient.masked_fill_(~finite, 0.0)  # for what pads a flat one, which nothing else writes to
        return torch.where(finite, norm, 0.0)

    def _differentiate(self, loss: Tensor, optimizers: list[Optimizer]) -> None:
        """Give every parameter its gradient."""
        flats = [self.flat.get(optimizer) for optimizer in optimizers]
        groups = [
            parameters_of(each) if flat is None else flat.parameters
            for each, flat in zip(optimizers, flats, strict=True)
        ]
        found = iter(torch.autograd.grad(loss, [each for group in groups for each in group], allow_unused=True))
        for flat, group in zip(flats, groups, strict=True):
            gradients = [next(found) for _ in group]
            if flat is not None:
                flat.receive_(gradients)
                continue
            for parameter, gradient in zip(group, gradients, strict=True):
                parameter.grad = gradient

    def _step(self, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """Average, clip and step by gradients that are there already; the norm."""
        if self.scaler is None and optimizer in self.flat:
            return self.step_written(optimizer, max_grad_norm)
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

    def set_learning_rate_(self, learning_rate: float) -> None:
        """Of all of them."""
        self.set_learning_rates_([learning_rate] * len(self.each))

    def set_learning_rates_(self, learning_rates: Sequence[float]) -> None:
        """One for each of them; in place where a captured update reads it."""
        for optimizer, rate, before in zip(self.each, learning_rates, self._learning_rates, strict=True):
            for group in optimizer.param_groups:
                if not isinstance(group["lr"], Tensor):
                    group["lr"] = rate
                elif rate != before:
                    group["lr"].fill_(rate)
        self._learning_rates = list(learning_rates)

    def make_capturable_(self, device: torch.device) -> bool:
        """Rates and step counts become tensors, so that steps can be captured; False, aloud, if they cannot be."""
        strange = [type(optimizer).__name__ for optimizer in self.each if type(optimizer) not in BEGIN_AT_ZERO]
        if strange or self.scaler is not None:
            why = f"of {strange[0]}" if strange else "the scale of float16 losses is decided on the host"
            rank_zero_warn(
                f"update is not captured as a CUDA graph ({why}): it goes on without, which costs speed only."
            )
            return False
        for group in self.groups:
            group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32, device=device)
            if "capturable" in group:
                group["capturable"] = True
        return True

    def restore_options_(self) -> None:
        """Give back the configuration's options, which a checkpoint replaced by its own."""
        for group, options in zip(self.groups, self._options, strict=True):
            group |= options


def learning(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Those that learn; what is frozen when a fit begins is no optimizer's to step."""
    return [parameter for parameter in parameters if parameter.requires_grad]


def parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """What it steps: of a flat one the whole."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
