"""Networks that remember: an encoder of single observations, then layers of LSTM or GRU cells."""

import math
from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from modules.networks.base import Activation, State, hidden_layers, orthogonal, through
from modules.networks.preprocessing import Preprocessing


class Cells(Preprocessing):
    """What LSTM and GRU share: one computation for a step and for a whole sequence, a step being a sequence of one.

    The encoder and the input of every layer's gates are computed for all T at once; only the recurrent product and what
    follows it point by point run step by step, with static shapes and no look at the data. Products take autocast's
    precision, states keep that of the weights, so that they can be stored and returned to at any time.

    Args:
        obs_shape: shape of one observation, any number of dimensions; it is flattened.
        hidden: H, width of every layer's state, and the number of features.
        encoder: widths of the fully connected layers before the cells; may be empty.
        activation: after every layer of the encoder.
        layers: of cells, one on top of the other.
        scale: multiplies the observation first; null divides bytes by the largest value of the observation space.

    Raises:
        ValueError: If `hidden` or `layers` is not positive.
    """

    gates: ClassVar[int]
    """How many times H a cell's input is."""
    leaves: ClassVar[tuple[str, ...]]
    """Names in the state, the one that is the output first; each `[N, layers x H]`, layer after layer."""
    recurrent_bias: ClassVar[bool]
    """Whether the recurrent product has a bias of its own."""

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
        self.recurrent = nn.ModuleList(
            orthogonal(nn.Linear(hidden, outputs, bias=self.recurrent_bias), 1.0) for _ in range(layers)
        )

    def initial_state(self, batch: int) -> State:
        """Zeros `[batch, layers x H]` for every name in `leaves`, where the weights are."""
        weight = next(self.parameters())
        return {name: weight.new_zeros(batch, len(self.inputs) * self.features) for name in self.leaves}

    def forward(self, obs: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """Features `[N, H]` of `obs` `[N, *obs_shape]`, and the next state; rows with `reset` start anew."""
        features, states = self.trace(obs.unsqueeze(0), state, reset.unsqueeze(0))
        return features.squeeze(0), {name: leaf.squeeze(0) for name, leaf in states.items()}

    def unroll(self, obs: Tensor, state: State, reset: Tensor) -> Tensor:
        """Features `[T, N, H]` of sequences `[T, N, *obs_shape]`: what T calls would return, resets `[T, N]` included.

        Args:
            state: before t=0.
        """
        return self.trace(obs, state, reset)[0]

    def trace(self, obs: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """As `unroll`, and the states after every step, every leaf `[T, N, ...]`."""
        features, fresh = self._encoded(obs), reset.unsqueeze(-1).unbind()
        before = zip(*(state[name].chunk(len(self.inputs), -1) for name in self.leaves), strict=True)
        after = []
        for inputs, recurrent, leaves in zip(self.inputs, self.recurrent, before, strict=True):
            steps = []
            for x, new in zip(inputs(features).unbind(), fresh, strict=True):
                leaves = self.cell(x, recurrent, *(leaf.masked_fill(new, 0.0) for leaf in leaves))
                steps.append(leaves)
            after.append([torch.stack(leaf) for leaf in zip(*steps, strict=True)])
            features = after[-1][0]
        states = zip(self.leaves, zip(*after, strict=True), strict=True)
        return features, {name: _joined(leaf) for name, leaf in states}

    def cell(self, x: Tensor, recurrent: nn.Module, *leaves: Tensor) -> tuple[Tensor, ...]:
        """One step of one layer: leaves `[N, H]` from the input of its gates `[N, gates x H]` and the last leaves."""
        raise NotImplementedError

    def _encoded(self, obs: Tensor) -> Tensor:
        """`[T, N, width]` from `[T, N, *obs_shape]`; integers are cast to the weights."""
        return through(self.encoder, self.preprocess(obs).flatten(0, 1)).unflatten(0, obs.shape[:2])


class LSTM(Cells):
    """An encoder and long short-term memory.

    i, f, g, o = W x + U h + b,   c' = sigmoid(f) c + sigmoid(i) tanh(g),   h' = sigmoid(o) tanh(c')

    Args:
        obs_shape: shape of one observation, any number of dimensions; it is flattened.
        hidden: H, width of every layer's state, and the number of features.
        encoder: widths of the fully connected layers before the cells; may be empty.
        activation: after every layer of the encoder.
        layers: of cells, one on top of the other.
        scale: multiplies the observation first; null divides bytes by the largest value of the observation space.

    State: `hidden` and `cell`, each `[N, layers x H]`, zero at the start of an episode.

    Raises:
        ValueError: If `hidden` or `layers` is not positive.

    Source: Hochreiter and Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735, with the forget gate of Gers et al. 2000,
    doi:10.1162/089976600300015015; orthogonal weights and bias 0 as in Huang et al. 2022, "The 37 implementation
    details of PPO". The two biases of `torch.nn.LSTM` are one here.
    """

    gates = 4
    leaves = ("hidden", "cell")
    recurrent_bias = False

    def cell(self, x: Tensor, recurrent: nn.Module, *leaves: Tensor) -> tuple[Tensor, Tensor]:
        """Next hidden and cell `[N, H]`."""
        hidden, cell = leaves
        enter, keep, candidate, leave = (x + recurrent(hidden)).to(cell.dtype).chunk(4, -1)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
        return torch.sigmoid(leave) * torch.tanh(cell), cell


class GRU(Cells):
    """An encoder and gated recurrent units: lighter than `LSTM`, usually as good.

    r, z, n = W x + b,   r', z', n' = U h + b',   r = sigmoid(r + r'),   z = sigmoid(z + z'),
    h' = (1 - z) tanh(n + r n') + z h

    Args:
        obs_shape: shape of one observation, any number of dimensions; it is flattened.
        hidden: H, width of every layer's state, and the number of features.
        encoder: widths of the fully connected layers before the cells; may be empty.
        activation: after every layer of the encoder.
        layers: of cells, one on top of the other.
        scale: multiplies the observation first; null divides bytes by the largest value of the observation space.

    State: `hidden` `[N, layers x H]`, zero at the start of an episode.

    Raises:
        ValueError: If `hidden` or `layers` is not positive.

    Source: Cho et al. 2014, arXiv:1406.1078, with the reset gate after the recurrent product, as in `torch.nn.GRU`.
    """

    gates = 3
    leaves = ("hidden",)
    recurrent_bias = True

    def cell(self, x: Tensor, recurrent: nn.Module, *leaves: Tensor) -> tuple[Tensor]:
        """Next hidden `[N, H]`."""
        (hidden,) = leaves
        entering, remembered = x.to(hidden.dtype).chunk(3, -1), recurrent(hidden).to(hidden.dtype).chunk(3, -1)
        relevant = torch.sigmoid(entering[0] + remembered[0])
        keep = torch.sigmoid(entering[1] + remembered[1])
        candidate = torch.tanh(entering[2] + relevant * remembered[2])
        return (torch.lerp(candidate, hidden, keep),)


def _joined(leaf: Iterable[Tensor]) -> Tensor:
    """Leaves of all layers in one; a single layer's is not copied."""
    leaves = list(leaf)
    return leaves[0] if len(leaves) == 1 else torch.cat(leaves, -1)
