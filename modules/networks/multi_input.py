"""Networks of observations with several parts: an encoder for each part, whose features are joined (`MultiInput`)."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from datamodules.core.pytree import tree_leaves, tree_map
from datamodules.core.types import Obs, ObsPart, SpaceSpec
from modules.networks.base import Network, RecurrentNetwork, State, call_without_hooks, extract_features
from modules.networks.choice_encoders import ChoiceEncoder, OneHot
from modules.networks.cnn import CNN, NatureCNN
from modules.networks.mlp import MLP
from modules.networks.normalization import PartNormalizer, RunningNormalizer
from modules.networks.preprocessing import BYTE, Preprocessing, image_layout, set_obs_scale_

Module = TypeVar("Module", bound=nn.Module)

ObsShape = tuple[int, ...] | dict[str, ObsPart]
"""Shape of an observation, or its parts by name."""

NetworkFactory = Callable[[tuple[int, ...]], nn.Module]
"""Factory of a network, given the shape of an observation or of one of its parts."""

MIN_NATURE_SIDE = 36
"""Shortest side in pixels of an image that `NatureCNN` encodes by default; smaller ones are encoded by `CNN`."""


class FlattenPart(Preprocessing):
    """Encoder of numbers that flattens, casts and scales them; it has no parameters.

    Args:
        shape: shape of the part.
        scale: factor of the part; null divides bytes by the largest value of the observation space.
    """

    def __init__(self, shape: tuple[int, ...], scale: float | None = None) -> None:
        super().__init__(scale)
        self.features = math.prod(shape)

    def initial_state(self, batch: int) -> State:
        """Return `{}`: the network has no state."""
        return {}

    def forward(self, obs: Tensor, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        """Return features `[N, prod(shape)]` of a part `[N, *shape]`, and `state` unchanged."""
        scale = (1.0 / BYTE if obs.dtype == torch.uint8 else 1.0) if self.scale is None else self.scale
        numbers = obs.reshape(obs.shape[0], -1)
        numbers = numbers if numbers.is_floating_point() else numbers.float()
        return numbers if scale == 1.0 else numbers * scale, state


class PartEncoders(nn.Module):
    """Encode every part of an observation and join the features.

    Args:
        obs_parts: the parts by name (`SpaceSpec.obs_parts`).
        encoders: factory of a part's encoder by name; the others have those of `default_encoder`. A factory is called
            with the part's shape, that of a `ChoiceEncoder` with the numbers of choices.

    Attributes:
        features: number of joined features.

    Raises:
        ValueError: For an unknown part, a recurrent encoder, or an encoder of choices for a part of numbers.
    """

    def __init__(self, obs_parts: Mapping[str, ObsPart], encoders: Mapping[str, NetworkFactory] | None = None) -> None:
        super().__init__()
        if unknown := [name for name in encoders or {} if name not in obs_parts]:
            raise ValueError(
                f"MultiInput: there is no part {unknown[0]!r} to encode; the parts are {_list(obs_parts)}."
            )
        self.names = tuple(obs_parts)
        self.encoders = nn.ModuleList(_encoder(name, part, encoders or {}) for name, part in obs_parts.items())
        self.features = sum(cast(Network, encoder).features for encoder in self.encoders)

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        """Return features `[N, features]` of parts `[N, *shape]` by name."""
        each = zip(self.encoders, self.names, strict=True)
        return torch.cat([extract_features(encoder, obs[name]) for encoder, name in each], -1)


class MultiInput(nn.Module):
    """Network of an observation with several parts: an encoder for each part, the joined features through a torso.

    It is the network of every algorithm for such observations: a network that takes one tensor (`MLP`, `LSTM`) becomes
    the torso of a MultiInput with default encoders. With a recurrent torso it is a `RecurrentNetwork`.

    Args:
        obs_parts: the parts of the observation by name; given by the algorithm.
        encoders: network of a part by its name, for example `CNN`, `MLP`, `OneHot` or `Embedding`; null, and parts
            without an entry: `NatureCNN` or, below 36 pixels a side, `CNN` for images, one-hot for choices, and
            numbers unchanged.
        torso: network of the joined features; makes it from their shape.

    Raises:
        ValueError: For encoders that do not fit the parts, and a torso that takes no vector.
    """

    multi_input = True

    def __init__(
        self,
        obs_parts: dict[str, ObsPart],
        encoders: dict[str, NetworkFactory] | None = None,
        torso: NetworkFactory = MLP,
    ) -> None:
        super().__init__()
        if not isinstance(obs_parts, dict):
            raise ValueError(
                f"MultiInput: the observation of shape {tuple(obs_parts)} has one part; use MLP, CNN or another network"
                " of one tensor."
            )
        self.parts = PartEncoders(obs_parts, encoders)
        try:
            self.torso = torso((self.parts.features,))
        except ValueError as error:
            raise ValueError(
                f"The observation has the parts {_list(obs_parts)}, whose {self.parts.features} joined features the"
                f" torso cannot take ({str(error).rstrip('.')}): give MultiInput an encoder for that part, and an MLP,"
                " LSTM or GRU as torso."
            ) from error
        self.features = cast(Network, self.torso).features

    def initial_state(self, batch: int) -> State:
        """Return the torso's state at the start of an episode."""
        return cast(Network, self.torso).initial_state(batch)

    def forward(self, obs: dict[str, Tensor], state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        """Return features `[B, F]` of parts `[B, *shape]` by name, and the torso's next state."""
        return call_without_hooks(self.torso, call_without_hooks(self.parts, obs), state, episode_start)

    @property
    def unroll(self) -> Callable[[Obs, State, Tensor], Tensor]:
        """Return the function that maps sequences `[T, N, ...]` to features; only with a recurrent torso."""
        unroll = cast(RecurrentNetwork, self.torso).unroll  # without it, `hasattr` is False here too
        return lambda obs, state, episode_start: unroll(self._sequence(obs), state, episode_start)

    @property
    def unroll_with_states(self) -> Callable[[Obs, State, Tensor], tuple[Tensor, State]]:
        """Return `unroll` with the states after every step; only with a recurrent torso."""
        unroll = cast(RecurrentNetwork, self.torso).unroll_with_states
        return lambda obs, state, episode_start: unroll(self._sequence(obs), state, episode_start)

    def _sequence(self, obs: Obs) -> Tensor:
        """Return joined features `[T, N, F]` of parts `[T, N, *shape]`."""
        shape = tree_leaves(obs)[0].shape[:2]
        return self.parts(tree_map(lambda part: part.flatten(0, 1), obs)).unflatten(0, shape)


def obs_shape_of(spaces: SpaceSpec) -> ObsShape:
    """Return the shape of an observation, or its parts by name."""
    return spaces.get("obs_parts", spaces["obs_shape"])


def make_network(network: NetworkFactory, obs_shape: ObsShape) -> nn.Module:
    """Create `network(obs_shape)`, or for the parts of an observation a `MultiInput`, by default around the network.

    A factory of a class with a true attribute `multi_input` is called with the parts.
    """
    if not isinstance(obs_shape, dict):
        return network(obs_shape)
    if takes_parts(network):
        return cast(Callable[[Any], nn.Module], network)(obs_shape)
    return MultiInput(obs_shape, torso=network)


def takes_parts(factory: Callable[..., nn.Module]) -> bool:
    """Return whether a factory makes a network that takes the parts of an observation by name."""
    return bool(getattr(factory_class(factory), "multi_input", False))


def factory_class(factory: Callable[..., nn.Module]) -> type | None:
    """Return the class of the networks that a factory makes, from Python or the command line; None if unknown."""
    if isinstance(factory, partial):
        return next((each for each in (factory.func, *factory.args) if isinstance(each, type)), None)
    return factory if isinstance(factory, type) else None


def set_part_scales_(module: Module, scales: Mapping[str, float]) -> Module:
    """Set the scale of the encoders of parts by name, where none was given, and of the other networks to 1."""
    for encoders in (each for each in module.modules() if isinstance(each, PartEncoders)):
        for name, encoder in zip(encoders.names, encoders.encoders, strict=True):
            set_obs_scale_(encoder, scales[name])
    return set_obs_scale_(module, 1.0)


def set_scales_(module: Module, spaces: SpaceSpec, normalized: bool) -> Module:
    """Set the scale of every network in `module` that was given none by the bounds of the space; return the module.

    Args:
        normalized: whether the networks get observations from `make_obs_normalizer`.
    """
    parts = spaces.get("obs_parts")
    if parts is None:
        high = spaces.get("obs_high", BYTE if spaces["obs_dtype"] == "uint8" else 1)
        return set_obs_scale_(module, 1.0 if normalized else 1.0 / high)
    ready = normalized_parts(parts) if normalized else {}
    scales = {name: 1.0 if name in ready else 1.0 / upper_bound(part) for name, part in parts.items()}
    return set_part_scales_(module, scales)


def is_image(part: ObsPart) -> bool:
    """Return whether a part of an observation is an image: three dimensions of known layout, bytes or bounded."""
    if len(part["shape"]) != 3 or not (part["dtype"] == "uint8" or "high" in part):
        return False
    try:
        image_layout("CNN", part["shape"])
    except ValueError:
        return False
    return True


def upper_bound(part: ObsPart) -> float:
    """Return the value of a part that networks scale to 1; 1 for numbers without a bound."""
    return part.get("high", BYTE if part["dtype"] == "uint8" else 1)


def default_encoder(part: ObsPart) -> NetworkFactory:
    """Return the factory of a part's encoder: a CNN for images, one-hot for choices, numbers unchanged."""
    if part.get("sizes") is not None:
        return cast(NetworkFactory, OneHot)
    if not is_image(part):
        return FlattenPart
    layout = image_layout("CNN", part["shape"])
    return NatureCNN if min(layout.height, layout.width) >= MIN_NATURE_SIDE else CNN


def normalized_parts(obs_parts: Mapping[str, ObsPart]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parts that running statistics normalise: numbers, but neither choices nor images."""
    return {name: part["shape"] for name, part in obs_parts.items() if part.get("sizes") is None and not is_image(part)}


def make_obs_normalizer(spaces: SpaceSpec) -> Any:
    """Create the running normalizer of the observations: a `RunningNormalizer`, or for parts a `PartNormalizer`."""
    parts = spaces.get("obs_parts")
    return RunningNormalizer(spaces["obs_shape"]) if parts is None else PartNormalizer(normalized_parts(parts))


def _encoder(name: str, part: ObsPart, encoders: Mapping[str, NetworkFactory]) -> nn.Module:
    factory, sizes = encoders.get(name, default_encoder(part)), part.get("sizes")
    kind = factory_class(factory)
    of_choices = kind is not None and issubclass(kind, ChoiceEncoder)
    if of_choices and sizes is None:
        raise ValueError(f"MultiInput: {cast(type, kind).__name__} encodes choices, but the part {name} has none.")
    encoder = factory(tuple(cast(list[int], sizes)) if of_choices else part["shape"])
    if hasattr(encoder, "unroll"):
        raise ValueError(
            f"MultiInput: the encoder of {name} is {type(encoder).__name__}, which is recurrent; make it the torso."
        )
    return encoder


def _list(obs_parts: Mapping[str, ObsPart]) -> str:
    return ", ".join(obs_parts)
