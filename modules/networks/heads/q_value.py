"""Action values from features: as numbers, as categorical distributions, or as quantiles.

A Q head makes K numbers an action, `[..., actions, K]`, and knows what they mean: their `mean` is the action's value,
`target` says what one action's numbers should have been, and `loss` how far they are from it. Bring your own: any
`nn.Module` with these methods, built as `MyHead(features, actions, **your_arguments)`.
"""

import torch
from torch import Tensor, nn

from modules.functional.q_learning import huber, projected, quantile_huber
from modules.functional.returns import td_target
from modules.networks.base import applied, exactly, features_of, orthogonal


class QHead(nn.Module):
    """One number an action: its value. The loss is Huber's.

    Args:
        features: what the network returns.
        actions: how many there are.
        dueling: a value and an advantage each, Q = V + A - mean A (Wang et al. 2016, arXiv:1511.06581, eq. 9).
        numbers: K.
    """

    def __init__(self, features: int, actions: int, dueling: bool = False, numbers: int = 1) -> None:
        super().__init__()
        self.actions, self.dueling, self.numbers = actions, dueling, numbers
        self.linear = orthogonal(nn.Linear(features, (actions + dueling) * numbers), 1.0)

    def forward(self, features: Tensor) -> Tensor:
        """The numbers `[..., actions, K]` of every action, float32 also under autocast."""
        return self.numbers_of(exactly(self.linear, features))

    def numbers_of(self, output: Tensor) -> Tensor:
        """What outputs `[..., (actions + dueling) K]` of the layer say of every action, `[..., actions, K]`."""
        output = output.view(*output.shape[:-1], self.actions + self.dueling, self.numbers)
        if not self.dueling:
            return output
        advantage = output[..., 1:, :]
        return output[..., :1, :] + advantage - advantage.mean(-2, keepdim=True)

    def mean(self, output: Tensor) -> Tensor:
        """Values `[..., actions]` of the numbers `[..., actions, K]`."""
        return output.squeeze(-1)

    def target(self, output: Tensor, return_: Tensor, discount: Tensor) -> Tensor:
        """What an action's numbers `[..., K]` should be.

        Args:
            output: the numbers of the action that follows, `[..., K]`.
            return_, discount: rewards until then and the factor of what follows, `[...]`.
        """
        return td_target(return_.unsqueeze(-1), output, discount.unsqueeze(-1))

    def loss(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and absolute error `[...]` of an action's numbers `[..., K]` against their target."""
        error = (target - output).squeeze(-1)
        return huber(error), error.detach().abs()


class QNetwork(nn.Module):
    """A memoryless torso and a Q head on it: `[N, actions, K]` from observations `[N, *obs]`."""

    def __init__(self, torso: nn.Module, head: QHead) -> None:
        super().__init__()
        self.torso, self.head = torso, head

    def forward(self, obs: Tensor) -> Tensor:
        """What the head says of every action."""
        return applied(self.head, features_of(self.torso, obs))


class C51Head(QHead):
    """Probabilities of `atoms` returns, equally spaced between two bounds that must hold every return.

    The loss, and the error, is the cross-entropy to the projected target less the target's own entropy.

    Args:
        features, actions, dueling: see `QHead`.
        low: lower bound of the (discounted) return.
        high: upper bound of the (discounted) return.
        atoms: K.

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
        """Values `[..., actions]`: sum of p z."""
        return output.softmax(-1) @ self.support

    def target(self, output: Tensor, return_: Tensor, discount: Tensor) -> Tensor:
        """Probabilities of the atoms, `[..., K]`."""
        return projected(output.softmax(-1), return_, discount, self.support)

    def loss(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Kullback-Leibler divergence of the target from the probabilities, as loss and as error."""
        divergence = (torch.xlogy(target, target) - target * output.log_softmax(-1)).sum(-1)
        return divergence, divergence.detach()


class QuantileHead(QHead):
    """Quantiles of the return, of equal probability.

    Args:
        features, actions, dueling: see `QHead`.
        quantiles: K.

    Source: Dabney et al. 2018, arXiv:1710.10044.
    """

    def __init__(self, features: int, actions: int, dueling: bool = False, quantiles: int = 50) -> None:
        super().__init__(features, actions, dueling, numbers=quantiles)

    def mean(self, output: Tensor) -> Tensor:
        """Values `[..., actions]`: the mean of the quantiles."""
        return output.mean(-1)

    def loss(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Quantile regression; the error is that of the means."""
        return quantile_huber(output, target), (target.mean(-1) - output.mean(-1)).detach().abs()
