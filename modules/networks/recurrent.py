"""Recurrent networks (`LSTM`, `GRU`, `MinGRU`): an encoder of single observations, then recurrent layers."""

import math
from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from modules.functional.scans import linear_scan
from modules.networks.base import Activation, State, hidden_layers, orthogonal, run_layers
from modules.networks.preprocessing import Preprocessing


class RecurrentTorso(Preprocessing):
    """Base of recurrent networks: one computation for a step and for a sequence, a step being a sequence of length one.

    The encoder and the input part of every layer's gates are computed for all T at once. In LSTM and GRU the recurrent
    product and the elementwise operations after it then run step by step, with static shapes and without control flow
    on data; MinGRU has no recurrent product. Products use autocast's precision; states keep the dtype of the weights,
    so that they can be stored and restored at any time.

    Args:
        obs_shape: shape of one observation, any number of dimensions; it is flattened.
        hidden: H, width of every layer's state, and the number of features.
        encoder: widths of the fully connected layers before the cells; may be empty.
        activation: activation function after every layer of the encoder.
        layers: number of stacked recurrent layers.
        scale: factor of the observation; null divides bytes by the largest value of the observation space.

    Raises:
        ValueError: If `hidden` or `layers` is not positive.
    """

    gates: ClassVar[int]
    """Width of a cell's input, in multiples of H."""
    state_names: ClassVar[tuple[str, ...]]
    """Names of the state's leaves, the output first; each `[N, layers x H]`, layer after layer."""
    recurrent_bias: ClassVar[bool | None]
    """Whether the recurrent product has its own bias; None if there is no such product."""

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        hidden: int = 128,
        encoder: tuple[int, ...] = (128,),
        activation: Activation = "tanh",
        layers: int = 1,
        scale: float | None = None,
    ) -> None:
        super().__init__(scale)
        for name, value in (("hidden", hidden), ("layers", layers)):
            if value < 1:
                raise ValueError(f"{type(self).__name__}: {name} is {value}; it must be at least 1.")
        self.features = hidden
        widths = (math.prod(obs_shape), *encoder)
        self.encoder = nn.Sequential(nn.Flatten(), *hidden_layers(widths[0], tuple(encoder), activation, False))
        inputs, outputs = [widths[-1]] + [hidden] * (layers - 1), self.gates * hidden
        self.inputs = nn.ModuleList(orthogonal(nn.Linear(width, outputs), 1.0) for width in inputs)
        if self.recurrent_bias is not None:
            self.recurrent = nn.ModuleList(
                orthogonal(nn.Linear(hidden, outputs, bias=self.recurrent_bias), 1.0) for _ in range(layers)
            )

    def initial_state(self, batch: int) -> State:
        """Return zeros `[batch, layers x H]` for every name in `state_names`, on the weights' device."""
        weight = next(self.parameters())
        return {name: weight.new_zeros(batch, len(self.inputs) * self.features) for name in self.state_names}

    def forward(self, obs: Tensor, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        """Return features `[N, H]` of `obs` `[N, *obs_shape]`, and the next state, zero before `episode_start`."""
        features, states = self.unroll_with_states(obs.unsqueeze(0), state, episode_start.unsqueeze(0))
        return features.squeeze(0), {name: leaf.squeeze(0) for name, leaf in states.items()}

    def unroll(self, obs: Tensor, state: State, episode_start: Tensor) -> Tensor:
        """Return features `[T, N, H]` of sequences `[T, N, *obs_shape]`, equal to T calls with starts `[T, N]`.

        Args:
            state: before t=0.
        """
        return self.unroll_with_states(obs, state, episode_start)[0]

    def unroll_with_states(self, obs: Tensor, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        """Return the features of `unroll`, and the states after every step, every leaf `[T, N, ...]`."""
        features = self._encoded(obs)
        before = zip(*(state[name].chunk(len(self.inputs), -1) for name in self.state_names), strict=True)
        after = []
        for layer, (inputs, leaves) in enumerate(zip(self.inputs, before, strict=True)):
            after.append(self.run_layer(layer, inputs(features), leaves, episode_start))
            features = after[-1][0]
        states = zip(self.state_names, zip(*after, strict=True), strict=True)
        return features, {name: _joined(leaf) for name, leaf in states}

    def run_layer(self, layer: int, x: Tensor, leaves: tuple[Tensor, ...], episode_start: Tensor) -> list[Tensor]:
        """Return the leaves of a layer after every step, `[T, N, H]`, computed step by step with `cell`.

        Args:
            layer: index of the layer.
            x: input of its gates, `[T, N, gates x H]`.
            leaves: its leaves before t=0, `[N, H]`.
            episode_start: `[T, N]` bool.
        """
        recurrent, steps = self.recurrent[layer], []
        for each, new in zip(x.unbind(), episode_start.unsqueeze(-1).unbind(), strict=True):
            leaves = self.cell(each, recurrent, *(leaf.masked_fill(new, 0.0) for leaf in leaves))
            steps.append(leaves)
        return [torch.stack(leaf) for leaf in zip(*steps, strict=True)]

    def cell(self, x: Tensor, recurrent: nn.Module, *leaves: Tensor) -> tuple[Tensor, ...]:
        """Return a layer's next leaves `[N, H]` from its gates' input `[N, gates x H]` and the previous leaves."""
        raise NotImplementedError

    def _encoded(self, obs: Tensor) -> Tensor:
        """Return the encoder's output `[T, N, width]` of `[T, N, *obs_shape]`; integers are cast first."""
        return run_layers(self.encoder, self.preprocess(obs).flatten(0, 1)).unflatten(0, obs.shape[:2])


class LSTM(RecurrentTorso):
    """Encoder followed by long short-term memory.

    i, f, g, o = W x + U h + b,   c' = sigmoid(f) c + sigmoid(i) tanh(g),   h' = sigmoid(o) tanh(c')

    Args:
        obs_shape: shape of one observation, any number of dimensions; it is flattened.
        hidden: H, width of every layer's state, and the number of features.
        encoder: widths of the fully connected layers before the cells; may be empty.
        activation: activation function after every layer of the encoder.
        layers: number of stacked recurrent layers.
        scale: factor of the observation; null divides bytes by the largest value of the observation space.

    State: `hidden` and `cell`, each `[N, layers x H]`, zero at the start of an episode.

    Raises:
        ValueError: If `hidden` or `layers` is not positive.

    Source: Hochreiter and Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735, with the forget gate of Gers et al.
    2000, doi:10.1162/089976600300015015; orthogonal weights and bias 0 as in Huang et al. 2022, "The 37 implementation
    details of PPO". The two biases of `torch.nn.LSTM` are one.
    """

    gates = 4
    state_names = ("hidden", "cell")
    recurrent_bias = False

    def cell(self, x: Tensor, recurrent: nn.Module, *leaves: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next hidden and cell state, `[N, H]`."""
        hidden, cell = leaves
        enter, keep, candidate, leave = (x + recurrent(hidden)).to(cell.dtype).chunk(4, -1)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
        return torch.sigmoid(leave) * torch.tanh(cell), cell


class GRU(RecurrentTorso):
    """Encoder followed by gated recurrent units: fewer weights than `LSTM`, usually as good.

    r, z, n = W x + b,   r', z', n' = U h + b',   r = sigmoid(r + r'),   z = sigmoid(z + z'),
    h' = (1 - z) tanh(n + r n') + z h

    Args:
        obs_shape: shape of one observation, any number of dimensions; it is flattened.
        hidden: H, width of every layer's state, and the number of features.
        encoder: widths of the fully connected layers before the cells; may be empty.
        activation: activation function after every layer of the encoder.
        layers: number of stacked recurrent layers.
        scale: factor of the observation; null divides bytes by the largest value of the observation space.

    State: `hidden` `[N, layers x H]`, zero at the start of an episode.

    Raises:
        ValueError: If `hidden` or `layers` is not positive.

    Source: Cho et al. 2014, arXiv:1406.1078, with the reset gate after the recurrent product, as in
        `torch.nn.GRU`.
    """

    gates = 3
    state_names = ("hidden",)
    recurrent_bias = True

    def cell(self, x: Tensor, recurrent: nn.Module, *leaves: Tensor) -> tuple[Tensor]:
        """Return the next hidden state, `[N, H]`."""
        (hidden,) = leaves
        entering, remembered = x.to(hidden.dtype).chunk(3, -1), recurrent(hidden).to(hidden.dtype).chunk(3, -1)
        relevant = torch.sigmoid(entering[0] + remembered[0])
        keep = torch.sigmoid(entering[1] + remembered[1])
        candidate = torch.tanh(entering[2] + relevant * remembered[2])
        return (torch.lerp(candidate, hidden, keep),)


class MinGRU(RecurrentTorso):
    """Encoder followed by minimal gated recurrent units, whose gates depend on the input only.

    z = sigmoid(W x + b),   n = V x + c,   h' = (1 - z) h + z n

    Without a recurrent product a sequence is a linear recurrence, computed by a parallel scan with log2 T operations on
    all steps instead of T operations one after the other (`modules.functional.scans.linear_scan`). Sequence and single
    steps are equal but for rounding. The gates of a layer do not depend on its state; with `layers` 2 those of the
    second layer depend on the state of the first.

    Args:
        obs_shape: shape of one observation, any number of dimensions; it is flattened.
        hidden: H, width of every layer's state, and the number of features.
        encoder: widths of the fully connected layers before the recurrent ones; may be empty.
        activation: activation function after every layer of the encoder.
        layers: number of stacked recurrent layers.
        scale: factor of the observation; null divides bytes by the largest value of the observation space.

    State: `hidden` `[N, layers x H]`, zero at the start of an episode.

    Raises:
        ValueError: If `hidden` or `layers` is not positive.

    Source: Feng et al. 2024, arXiv:2410.01201, section 3.1. The state is an average of the inputs V x + c with
    weights that do not exceed 1, so the scan cannot overflow and needs no logarithms, nor the positive inputs of the
    source's log-space variant.
    """

    gates = 2
    state_names = ("hidden",)
    recurrent_bias = None

    def run_layer(self, layer: int, x: Tensor, leaves: tuple[Tensor, ...], episode_start: Tensor) -> list[Tensor]:
        """Return the hidden states of a layer after every step, `[T, N, H]`, by a parallel scan."""
        (hidden,) = leaves
        update, candidate = x.to(hidden.dtype).chunk(2, -1)
        hidden = hidden.masked_fill(episode_start[0].unsqueeze(-1), 0.0)
        keep = torch.sigmoid(-update).masked_fill(episode_start.unsqueeze(-1), 0.0)
        return [linear_scan(keep, torch.sigmoid(update) * candidate, hidden)]


def _joined(leaf: Iterable[Tensor]) -> Tensor:
    """Return the leaves of all layers concatenated; those of a single layer without a copy."""
    leaves = list(leaf)
    return leaves[0] if len(leaves) == 1 else torch.cat(leaves, -1)
