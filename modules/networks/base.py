"""What a network is, and what every network here shares: orthogonal initialisation, activations, memorylessness."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)

from modules.networks.preprocessing import Preprocessing

State = dict[str, Tensor]


Activation = Literal["tanh", "relu", "elu", "gelu", "silu"] | type[nn.Module]
"""A name, or the class path of an `nn.Module` that needs no arguments, for example `torch.nn.Mish`."""


Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


class Network(Protocol):
    """Observations to features, step by step, with an explicit state.

    Bring your own: any `nn.Module` with the members below, built as `MyNet(obs_shape, **your_arguments)`, named by its
    dotted path as a `class_path`. Keep your arguments plain data, so that they survive in a checkpoint. A network that
    remembers is a `RecurrentNetwork`; it is told by having `unroll`.

    Networks act, evaluate and give targets in eval mode, and learn in train mode. With dropout or BatchNorm, losses
    that compare the policy that learns with the one that acted see the difference of the modes too: PPO's ratio is not
    1 before its first step, but as far from it as dropout or the minibatch's statistics move the policy. Some samples
    are then clipped, and `approx_kl` above 0, from the start; with V-trace (`data.staleness` 1) only the minibatches
    are affected, since the corrections compare two policies in eval mode. Prefer LayerNorm and no dropout in the
    policy's network there, or freeze these layers (`eval()` before the fit). Losses of values (DQN, PQN, SAC) compare
    no policies: dropout is noise in what they learn, and their targets have none.

    features: the number F of features it returns.
    """

    features: int

    def initial_state(self, batch: int) -> State:
        """State of `batch` rows at the start of an episode, every leaf `[B, ...]`; `{}` when memoryless."""
        ...

    def __call__(self, obs: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """Features `[B, F]` and the next state; the arguments stay as they are.

        Args:
            obs: `[B, *obs_shape]` in the environment's dtype; the network casts and scales.
            state: what `initial_state` or the last call returned.
            reset: `[B]` bool; rows where it is True start from `initial_state`, whatever `state` holds.
        """
        ...


class RecurrentNetwork(Network, Protocol):
    """A network with a state, which algorithms run over whole sequences to learn.

    Collecting step by step equals unrolling: both start rows with a reset from `initial_state`.
    """

    def unroll(self, obs: Tensor, state: State, reset: Tensor) -> Tensor:
        """Features `[T, N, F]` of `obs` `[T, N, *obs_shape]`, from the state before t=0 and resets `[T, N]`."""
        ...

    def trace(self, obs: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """As `unroll`, and the states after every step, every leaf `[T, N, ...]`."""
        ...


class Memoryless(Preprocessing):
    """A network whose features depend on the present observation only.

    Args:
        body: `[B, *obs_shape]` to `[B, features]`.
        features: what `body` returns.
        scale: multiplies the observation first; None as `Preprocessing` says.
    """

    def __init__(self, body: nn.Module, features: int, scale: float | None = None) -> None:
        super().__init__(scale)
        self.body = body
        self.features = features

    def initial_state(self, batch: int) -> State:
        """Nothing to remember: `{}`."""
        return {}

    def forward(self, obs: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """Features `[B, F]` of `obs` `[B, *obs_shape]`, and the state as it came. Integers are cast to the weights."""
        return through(self.body, self.preprocess(obs)), state


def features_of(network: nn.Module, obs: Tensor) -> Tensor:
    """Features `[N, F]` of observations `[N, *obs_shape]` by a network that remembers nothing."""
    reset = torch.zeros(len(obs), dtype=torch.bool, device=obs.device)
    return applied(network, obs, {}, reset)[0]


def at_least_float32(x: Tensor) -> Tensor:
    """In float32 where the precision made it less."""
    return x.float() if x.dtype.itemsize < 4 else x


def applied(module: nn.Module, *args: Any) -> Any:
    """Call `module(*args)`; without hooks call `forward`, since the rest of a call costs as much as a small product."""
    return module(*args) if _is_observed(module) else module.forward(*args)


def _is_observed(module: nn.Module) -> Any:
    """Tell whether a call does more than `forward`, as `nn.Module._call_impl` decides it."""
    return (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or module._compiled_call_impl
        or _global_forward_hooks
        or _global_forward_pre_hooks
        or _global_backward_hooks
        or _global_backward_pre_hooks
    )


def has_hooks(module: nn.Module) -> bool:
    """Tell whether a hook observes or changes what this module computes, or the gradients of its own parameters.

    A `forward` replaced on the instance counts too; hooks that act on state dicts do not.
    """
    on_parameters = any(
        parameter._backward_hooks or parameter._post_accumulate_grad_hooks
        for parameter in module.parameters(recurse=False)
    )
    return bool(_is_observed(module)) or on_parameters or "forward" in vars(module)


def exactly(layer: nn.Linear, features: Tensor) -> Tensor:
    """Apply the layer at the precision of its weights, not of autocast, and in float32 at least."""
    device = features.device.type
    if not torch.is_autocast_enabled(device):
        output = applied(layer, features)
    else:
        with torch.autocast(device, enabled=False):
            output = applied(layer, features.to(layer.weight.dtype))
    return at_least_float32(output)


AFFINE: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d, nn.LayerNorm)
"""Layers whose output autograd does not read again, so that it can be overwritten."""


def through(layers: nn.Module, x: Tensor, affine: tuple[type[nn.Module], ...] = AFFINE) -> Tensor:
    """Return `layers(x)`, each layer of a plain sequence `applied`; a ReLU overwrites the output of an affine layer.

    Overwriting saves memory and up to 6 % of the time. It is left out where a hook is registered on the ReLU or on the
    layer before it: a forward hook may keep that output, and full backward hooks refuse to have it changed.
    """
    if type(layers) is not nn.Sequential or _is_observed(layers):
        return layers(x)
    overwritable = False
    for layer in layers:
        plain = not (_is_observed(layer) or "forward" in layer.__dict__)
        x = torch.relu_(x) if overwritable and plain and type(layer) is nn.ReLU else applied(layer, x)
        overwritable = plain and type(layer) in affine
    return x


def orthogonal(layer: Layer, gain: float = math.sqrt(2.0)) -> Layer:
    """Initialise in place: orthogonal weights times `gain`, bias 0. Returns the layer.

    Source: Saxe et al. 2014, arXiv:1312.6120; the gains are item 2 of Huang et al. 2022, "The 37 implementation details
    of PPO": sqrt(2) for hidden layers, 0.01 for a policy, 1 for a value.
    """
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def activation_layer(activation: Activation) -> nn.Module:
    """Make a fresh activation layer.

    Raises:
        ValueError: If the name is unknown.
    """
    if not isinstance(activation, str):
        return activation()
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"activation is {activation!r}; use one of {', '.join(_ACTIVATIONS)} or the class path of an nn.Module."
        )
    return _ACTIVATIONS[activation]()


def hidden_layers(inputs: int, hidden: tuple[int, ...], activation: Activation, layer_norm: bool) -> list[nn.Module]:
    """Fully connected layers of the given widths: Linear, LayerNorm if asked for, activation, and so on."""
    layers: list[nn.Module] = []
    for width in hidden:
        norm = [nn.LayerNorm(width)] if layer_norm else []
        layers += [orthogonal(nn.Linear(inputs, width)), *norm, activation_layer(activation)]
        inputs = width
    return layers


def silu_layers(widths: Sequence[int]) -> list[nn.Module]:
    """Fully connected layers with SiLU units from each width to the next; none from a single width."""
    return [nn.Sequential(nn.Linear(a, b), nn.SiLU()) for a, b in pairwise(widths)]
