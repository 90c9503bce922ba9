"""On a GPU: the pieces of a flat tensor are stepped as the optimizer steps the whole."""

import pytest
import torch
from torch import nn
from torch.optim import Adam, AdamW

from modules.optim.flat_parameters import CHUNK, MAX_CHUNKS, flatten_optimizer

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kind", [Adam, AdamW])
@pytest.mark.parametrize("size", [5, CHUNK + 1, 3 * MAX_CHUNKS * CHUNK + 7])
def test_pieces_give_what_the_whole_gives_bit_for_bit(kind: type[Adam], size: int) -> None:
    results = []
    for whole in (False, True):
        weight = nn.Parameter(torch.linspace(-1, 1, size, device="cuda"))
        optimizer = kind([weight], lr=torch.tensor(1e-2, device="cuda"), fused=True, capturable=True)
        flat = flatten_optimizer(optimizer)
        assert flat is not None
        for step in range(4):
            flat.copy_grads_([weight.detach() * step + 0.1])
            if whole:
                optimizer.step()
            else:
                flat.step_(optimizer)
        results.append([flat.flat.detach(), *optimizer.state[flat.flat].values()])
    assert all(map(torch.equal, *results))
