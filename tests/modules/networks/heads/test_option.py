from functools import partial

import pytest
import torch

from modules.networks import GRU, MLP
from modules.networks.heads.option import OptionHead, TorsoWithHead


def test_outputs_start_near_the_bias_one_an_option():
    outputs = TorsoWithHead(MLP, (3,), partial(OptionHead, options=4, bias=-2.0))(torch.randn(8, 3))

    assert outputs.shape == (8, 4)
    assert torch.allclose(outputs, torch.full((8, 4), -2.0), atol=0.2)


def test_options_can_have_several_outputs_each():
    assert OptionHead(5, options=4, outputs=3)(torch.randn(8, 5)).shape == (8, 4, 3)


def test_a_recurrent_torso_is_refused():
    with pytest.raises(ValueError, match="GRU, which is recurrent"):
        TorsoWithHead(partial(GRU, hidden=8), (3,), partial(OptionHead, options=2))
