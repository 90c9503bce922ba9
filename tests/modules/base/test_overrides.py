"""Methods of an algorithm that take the place of torch's or Lightning's."""

from typing import Any

import pytest

from datamodules.core.errors import ConfigurationError
from modules.base.checks import algorithms, check_overrides
from modules.ppo.ppo import PPO


class Trains(PPO):
    def train(self, batch: Any) -> Any:  # type: ignore[override]
        return self


class Switches(PPO):
    def train(self, mode: bool = True) -> Any:
        return super().train(mode)


def test_a_method_that_torch_calls_otherwise_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Trains has a method `train`.*rename it"):
        check_overrides(Trains)


@pytest.mark.parametrize("kind", [Switches, *algorithms().values()])
def test_a_method_with_the_arguments_of_the_one_that_it_extends_is_accepted(kind: type) -> None:
    check_overrides(kind)
