from functools import partial

import pytest
import torch

from modules.networks import GRU, MLP
from modules.networks.option_heads import PerOption


def test_outputs_start_near_the_bias_one_an_option():
    outputs = PerOption(MLP, (3,), options=4, bias=-2.0)(torch.randn(8, 3))

    assert outputs.shape == (8, 4)
    assert torch.allclose(outputs, torch.full((8, 4), -2.0), atol=0.2)


def test_a_torso_that_remembers_is_refused():
    with pytest.raises(ValueError, match="GRU, which remembers"):
        PerOption(partial(GRU, hidden=8), (3,), options=2)
