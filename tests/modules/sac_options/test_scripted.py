import pytest
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from modules.sac_options.scripted import ScriptedOptions


class Scaled:
    """Half of the actor's action, anywhere, ending more and more surely."""

    uses_actor, min_duration, max_duration = True, 1, 0

    def initiation(self, obs: Tensor) -> Tensor:
        return torch.ones(len(obs), dtype=torch.bool)

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        return actor_action * 0.5

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        return age / 10


class Push(Scaled):
    """Full thrust, where the first feature is positive."""

    uses_actor = False

    def initiation(self, obs: Tensor) -> Tensor:
        return obs[:, 0] > 0

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        return torch.ones_like(actor_action)


def test_every_option_works_on_its_own_column():
    options = ScriptedOptions([Scaled(), Push()])
    obs, age = torch.tensor([[1.0], [-1.0]]), torch.tensor([[0, 0], [3, 5]])
    actor_action = torch.tensor([0.2, 0.4]).view(1, 2, 1).expand(2, 2, 1)

    assert options.initiation(obs).tolist() == [[True, True], [True, False]]
    assert torch.allclose(options.action(obs, age, actor_action)[..., 0], torch.tensor([[0.1, 1.0], [0.1, 1.0]]))
    assert torch.allclose(options.termination(obs, age), torch.tensor([[0.0, 0.0], [0.3, 0.5]]))


def test_what_cannot_be_is_refused_in_a_sentence():
    hasty = Scaled()
    hasty.min_duration, hasty.max_duration = 5, 2

    with pytest.raises(ConfigurationError, match="Scaled has min_duration 5 and max_duration 2"):
        ScriptedOptions([hasty])
    with pytest.raises(ConfigurationError, match="scripted_options is empty"):
        ScriptedOptions([])
