"""Protocol of networks, their feed-forward base class, orthogonal initialisation, activations and layer helpers."""

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

Obs = Tensor | dict[str, Tensor]
"""Observations: one tensor, or their parts by name."""

State = dict[str, Tensor]

Activation = Literal["tanh", "relu", "elu", "gelu", "silu"] | type[nn.Module]
"""Name of an activation, or the class path of an `nn.Module` without arguments, for example `torch.nn.Mish`."""

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


class Network(Protocol):
    """Torso: maps observations to features, step by step, with an explicit recurrent state.

    Bring your own: any `nn.Module` with the members below, built as `MyNet(obs_shape, **your_arguments)`, named by its
    dotted path as a `class_path`. Keep your arguments plain data, so that a checkpoint can save them. A network with
    `unroll` is a `RecurrentNetwork`.

    Networks act, evaluate and compute targets in eval mode, and are updated in train mode. With dropout or BatchNorm,
    losses that compare the updated policy with the behaviour policy also see the difference between the modes: PPO's
    ratio is not 1 before its first step, but differs from it by the effect of dropout or of the minibatch's statistics.
    Some samples are then clipped, and `approx_kl` is above 0, from the start; with V-trace (`data.policy_lag` 1) only
    the minibatches are affected, since the corrections compare two policies in eval mode. For such policies prefer
    LayerNorm and no dropout, or freeze these layers (`eval()` before the fit). Losses of values (DQN, PQN, SAC) compare
    no policies: dropout is noise in the prediction, and targets have none.

    features: number F of output features.
    """

    features: int

    def initial_state(self, batch: int) -> State:
        """Return the state of `batch` rows at the start of an episode, every leaf `[B, ...]`; `{}` if not recurrent."""
        ...

    def __call__(self, obs: Obs, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        """Return features `[B, F]` and the next state, without changing the arguments.

        Args:
            obs: `[B, *obs_shape]` in the environment's dtype, or parts by name; the network casts and scales.
            state: returned by `initial_state` or the previous call.
            episode_start: `[B]` bool; rows where it is True start from `initial_state`, whatever `state` contains.
        """
        ...


class RecurrentNetwork(Network, Protocol):
    """Recurrent torso; algorithms train it on whole sequences.

    Step-by-step calls and `unroll` give equal features: both start rows with `episode_start` from `initial_state`.
    """

    def unroll(self, obs: Obs, state: State, episode_start: Tensor) -> Tensor:
        """Return features `[T, N, F]` of `obs` `[T, N, *obs_shape]`, given the state before t=0 and starts `[T, N]`."""
        ...

    def unroll_with_states(self, obs: Obs, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        """Return the features of `unroll`, and the states after every step, every leaf `[T, N, ...]`."""
        ...


class FeedForward(Preprocessing):
    """Feed-forward network: its features depend on the current observation only.

    Args:
        body: maps `[B, *obs_shape]` to `[B, features]`.
        features: number of output features of `body`.
        scale: factor of the observation; None as in `Preprocessing`.
    """

    def __init__(self, body: nn.Module, features: int, scale: float | None = None) -> None:
        super().__init__(scale)
        self.body = body
        self.features = features

    def initial_state(self, batch: int) -> State:
        """Return `{}`: the network has no state."""
        return {}

    def forward(self, obs: Obs, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        """Return features `[B, F]` of `obs` `[B, *obs_shape]`, and `state` unchanged; integers are cast.

        Observations of several parts reach the module as they are, a dictionary.
        """
        return run_layers(self.body, obs if isinstance(obs, dict) else self.preprocess(obs)), state


def extract_features(network: nn.Module, obs: Obs) -> Tensor:
    """Return features `[N, F]` of observations `[N, *obs_shape]` from a feed-forward network."""
    return call_without_hooks(network, obs, {}, no_episode_start(obs))[0]


def no_episode_start(obs: Obs) -> Tensor:
    """Return False for each of N observations: no row starts an episode, bool `[N]`."""
    part = next(iter(obs.values())) if isinstance(obs, dict) else obs
    return torch.zeros(part.shape[0], dtype=torch.bool, device=part.device)


def at_least_float32(x: Tensor) -> Tensor:
    """Return `x`, cast to float32 if its dtype is narrower."""
    return x.float() if x.dtype.itemsize < 4 else x


def call_without_hooks(module: nn.Module, *args: Any) -> Any:
    """Call `module(*args)`; without hooks call `forward` directly, which saves the cost of a small matrix product."""
    return module(*args) if _is_observed(module) else module.forward(*args)


def _is_observed(module: nn.Module) -> Any:
    """Return a true value if a call does more than `forward`, as `nn.Module._call_impl` decides it."""
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
    """Return whether a hook observes or changes what this module computes, or the gradients of its own parameters.

    A `forward` replaced on the instance counts too; hooks on state dicts do not.
    """
    on_parameters = any(
        parameter._backward_hooks or parameter._post_accumulate_grad_hooks
        for parameter in module.parameters(recurse=False)
    )
    return bool(_is_observed(module)) or on_parameters or "forward" in vars(module)


def linear_fp32(layer: nn.Linear, features: Tensor) -> Tensor:
    """Apply the layer in the dtype of its weights, ignoring autocast; return at least float32."""
    device = features.device.type
    if not torch.is_autocast_enabled(device):
        output = call_without_hooks(layer, features)
    else:
        with torch.autocast(device, enabled=False):
            output = call_without_hooks(layer, features.to(layer.weight.dtype))
    return at_least_float32(output)


AFFINE: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d, nn.LayerNorm)
"""Layers whose output autograd does not read in the backward pass, so that it can be overwritten."""


def run_layers(layers: nn.Module, x: Any, affine: tuple[type[nn.Module], ...] = AFFINE) -> Tensor:
    """Return `layers(x)`; within a plain `nn.Sequential` a ReLU overwrites the output of the affine layer before it.

    Overwriting saves memory and up to 6 % of the time. It is skipped if the ReLU or the layer before it has a hook: a
    forward hook may keep that output, and full backward hooks do not allow it to change.
    """
    if type(layers) is not nn.Sequential or _is_observed(layers):
        return layers(x)
    overwritable = False
    for layer in layers:
        plain = not (_is_observed(layer) or "forward" in layer.__dict__)
        x = torch.relu_(x) if overwritable and plain and type(layer) is nn.ReLU else call_without_hooks(layer, x)
        overwritable = plain and type(layer) in affine
    return x


def orthogonal(layer: Layer, gain: float = math.sqrt(2.0)) -> Layer:
    """Initialise a layer in place, orthogonal weights times `gain` and bias 0; return the layer.

    Source: Saxe et al. 2014, arXiv:1312.6120; the gains are item 2 of Huang et al. 2022, "The 37 implementation
    details of PPO": sqrt(2) for hidden layers, 0.01 for a policy, 1 for a value.
    """
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def activation_layer(activation: Activation) -> nn.Module:
    """Create an activation layer.

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
    """Create fully connected layers of the given widths, each Linear, optional LayerNorm, activation."""
    layers: list[nn.Module] = []
    for width in hidden:
        norm = [nn.LayerNorm(width)] if layer_norm else []
        layers += [orthogonal(nn.Linear(inputs, width)), *norm, activation_layer(activation)]
        inputs = width
    return layers


def silu_layers(widths: Sequence[int]) -> list[nn.Module]:
    """Create fully connected layers with SiLU units from each width to the next; none for a single width."""
    return [nn.Sequential(nn.Linear(a, b), nn.SiLU()) for a, b in pairwise(widths)]
