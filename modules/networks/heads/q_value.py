"""Q heads: action values as scalars, compressed scalars, categorical distributions (C51) or quantiles (QR-DQN).

A Q head outputs K values per action, `[..., actions, K]`, and defines their meaning: `mean` gives the action value,
`target` the regression target of one action's outputs, and `loss` their error. Bring your own: any `nn.Module` with
these methods, built as `MyHead(features, actions, **your_arguments)`.
"""

from typing import cast

import torch
from torch import Tensor, nn

from modules.functional.q_learning import (
    huber,
    project_distribution,
    quantile_huber,
    rescaled_value,
    unscaled_value,
)
from modules.functional.returns import td_target
from modules.networks.base import (
    Network,
    Obs,
    RecurrentNetwork,
    State,
    call_without_hooks,
    extract_features,
    linear_fp32,
    orthogonal,
)


class QHead(nn.Module):
    """Scalar action values, trained with the Huber loss.

    Args:
        features: number of input features.
        actions: number of actions.
        dueling: separate value and advantage outputs, Q = V + A - mean A (Wang et al. 2016, arXiv:1511.06581, eq. 9).
        numbers: K, outputs per action.
    """

    def __init__(self, features: int, actions: int, dueling: bool = False, numbers: int = 1) -> None:
        super().__init__()
        self.actions, self.dueling, self.numbers = actions, dueling, numbers
        self.linear = orthogonal(nn.Linear(features, (actions + dueling) * numbers), 1.0)

    def forward(self, features: Tensor) -> Tensor:
        """Return outputs `[..., actions, K]` of every action, float32 also under autocast."""
        return self.split_dueling(linear_fp32(self.linear, features))

    def split_dueling(self, output: Tensor) -> Tensor:
        """Return outputs per action `[..., actions, K]` from those of the layer, `[..., (actions + dueling) K]`."""
        output = output.view(*output.shape[:-1], self.actions + self.dueling, self.numbers)
        if not self.dueling:
            return output
        advantage = output[..., 1:, :]
        return output[..., :1, :] + advantage - advantage.mean(-2, keepdim=True)

    def mean(self, output: Tensor) -> Tensor:
        """Return action values `[..., actions]` from outputs `[..., actions, K]`."""
        return output.squeeze(-1)

    def target(self, output: Tensor, return_: Tensor, discount: Tensor) -> Tensor:
        """Return the target of one action's outputs, `[..., K]`.

        Args:
            output: outputs of the next action, `[..., K]`.
            return_, discount: discounted rewards before it and the factor of its value, `[...]`.
        """
        return td_target(return_.unsqueeze(-1), output, discount.unsqueeze(-1))

    def loss(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss and absolute error `[...]` of one action's outputs `[..., K]` against their target."""
        error = (target - output).squeeze(-1)
        return huber(error), error.detach().abs()


class QNetwork(nn.Module):
    """Torso with a Q head: `[N, actions, K]` from observations `[N, *obs]`.

    Attributes:
        recurrent: whether the torso is recurrent; then `step` and `unroll` are used instead of a call.
    """

    def __init__(self, torso: nn.Module, head: QHead) -> None:
        super().__init__()
        self.torso, self.head = torso, head
        self.recurrent = hasattr(torso, "unroll")

    def forward(self, obs: Obs) -> Tensor:
        """Return the head's outputs of every action, from a feed-forward torso."""
        return call_without_hooks(self.head, extract_features(self.torso, obs))

    def initial_state(self, batch: int) -> State:
        """Return the torso's state of `batch` rows at the start of an episode; `{}` if not recurrent."""
        return cast(Network, self.torso).initial_state(batch) if self.recurrent else {}

    def step(self, obs: Obs, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        """Return the outputs `[N, actions, K]` and the next state, initial before `episode_start`."""
        features, state = call_without_hooks(self.torso, obs, state, episode_start)
        return call_without_hooks(self.head, features), state

    def unroll(self, obs: Obs, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        """Return the outputs `[T, N, actions, K]` of sequences `[T, N, *obs]`, and the states `[T, N, ...]` after them.

        Args:
            state: before t=0.
            episode_start: `[T, N]` bool, steps at which rows start from the initial state.
        """
        features, states = cast(RecurrentNetwork, self.torso).unroll_with_states(obs, state, episode_start)
        return call_without_hooks(self.head, features), states


class C51Head(QHead):
    """Categorical distribution of the return over `atoms` equally spaced values between two bounds.

    The loss, and the error, is the cross-entropy to the projected target minus the target's entropy.

    Args:
        features: number of input features.
        actions: number of actions.
        dueling: separate value and advantage outputs, Q = V + A - mean A.
        low: lower bound of the (discounted) return; no return may be below.
        high: upper bound of the (discounted) return; no return may be above.
        atoms: K, number of values; 51 in the paper.

    Raises:
        ValueError: If the bounds do not ascend or there are fewer than two atoms.

    Source: Bellemare et al. 2017, arXiv:1707.06887; with `dueling` as in Hessel et al. 2018, arXiv:1710.02298.
    """

    support: Tensor

    def __init__(
        self,
        features: int,
        actions: int,
        dueling: bool = False,
        low: float = -10.0,
        high: float = 10.0,
        atoms: int = 51,
    ) -> None:
        if not low < high or atoms < 2:
            raise ValueError(f"C51Head: low is {low}, high {high}, atoms {atoms}; give low < high and 2 atoms or more.")
        super().__init__(features, actions, dueling, numbers=atoms)
        self.register_buffer("support", torch.linspace(low, high, atoms), persistent=False)

    def mean(self, output: Tensor) -> Tensor:
        """Return action values `[..., actions]`: sum of p z."""
        return output.softmax(-1) @ self.support

    def target(self, output: Tensor, return_: Tensor, discount: Tensor) -> Tensor:
        """Return the probabilities of the atoms, `[..., K]`."""
        return project_distribution(output.softmax(-1), return_, discount, self.support)

    def loss(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the Kullback-Leibler divergence of the target from the prediction, as loss and as error."""
        divergence = (torch.xlogy(target, target) - target * output.log_softmax(-1)).sum(-1)
        return divergence, divergence.detach()


class QuantileHead(QHead):
    """Quantiles of the return with equal probability, trained by quantile regression.

    Args:
        features: number of input features.
        actions: number of actions.
        dueling: separate value and advantage outputs, Q = V + A - mean A.
        quantiles: K, number of quantiles.

    Source: Dabney et al. 2018, arXiv:1710.10044.
    """

    def __init__(self, features: int, actions: int, dueling: bool = False, quantiles: int = 50) -> None:
        super().__init__(features, actions, dueling, numbers=quantiles)

    def mean(self, output: Tensor) -> Tensor:
        """Return action values `[..., actions]`: the mean of the quantiles."""
        return output.mean(-1)

    def loss(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the quantile regression loss, and the absolute error of the means."""
        return quantile_huber(output, target), (target.mean(-1) - output.mean(-1)).detach().abs()


class RescaledQHead(QHead):
    """Scalar action values on a compressed scale, h(Q), trained with the Huber loss.

    y = h(R + discount h^-1(output)),   h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x

    For large returns and networks with bounded features, such as LSTM and GRU: h(100) is 9.15.

    Args:
        features: number of input features.
        actions: number of actions.
        dueling: separate value and advantage outputs, h(Q) = V + A - mean A.

    Source: Pohlen et al. 2018, arXiv:1805.11593, section 3.2; used by R2D2 (Kapturowski et al. 2019).
    """

    def __init__(self, features: int, actions: int, dueling: bool = False) -> None:
        super().__init__(features, actions, dueling)

    def mean(self, output: Tensor) -> Tensor:
        """Return action values `[..., actions]` from outputs `[..., actions, 1]`."""
        return unscaled_value(output.squeeze(-1))

    def target(self, output: Tensor, return_: Tensor, discount: Tensor) -> Tensor:
        """Return the target of one action's output, `[..., 1]`, on the compressed scale."""
        return rescaled_value(super().target(unscaled_value(output), return_, discount))
