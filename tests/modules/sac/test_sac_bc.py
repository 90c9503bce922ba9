from typing import Any

import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec
from modules.sac.batch import SACBatch
from modules.sac.sac import SAC
from modules.sac.sac_bc import SACBC

BOX: SpaceSpec = {
    "obs_shape": (3,), "obs_dtype": "float32", "action_type": "continuous", "action_sizes": [],
    "action_low": [-2.0, -2.0], "action_high": [2.0, 2.0], "action_start": [], "num_agents": 1,
}  # fmt: skip
CHOICES: SpaceSpec = {
    **BOX, "action_type": "discrete", "action_sizes": [4], "action_low": [], "action_high": [], "action_start": [0]
}  # fmt: skip


def batch(spaces: SpaceSpec, rows: int = 16) -> SACBatch:
    draw = torch.Generator().manual_seed(1)
    obs = torch.randn(rows, 3, generator=draw)
    box = torch.rand(rows, 2, generator=draw) * 2 - 1
    action = box if spaces["action_type"] == "continuous" else torch.randint(4, (rows,), generator=draw)
    ones = torch.ones(rows)
    weight = torch.cat([torch.zeros(2), ones[2:]])
    return SACBatch(obs, action, ones, ones < 0, ones, obs, {}, {}, weight)


@pytest.mark.parametrize("spaces", [BOX, CHOICES], ids=["box", "discrete"])
def test_the_loss_is_that_of_sac_and_the_weighted_distance_to_the_stored_actions(spaces: SpaceSpec) -> None:
    torch.manual_seed(1)
    model, data = SACBC(spaces, bc_coef=0.5), batch(spaces)
    noise = torch.randn(16, 2) if spaces is BOX else None
    alpha = torch.tensor(0.2)

    loss, entropy = model.actor_loss(data, noise, alpha)

    plain, same = SAC.actor_loss(model, data, noise, alpha)
    value, _ = model.soft_value(model.critic, data.obs, noise, None, alpha)
    policy: Any = model.policy(data.obs, None)
    if spaces is BOX:
        distance = (torch.tanh(policy.mean) - data.action).square().mean(1)
    else:
        distance = -policy.log_probs[torch.arange(16), data.action]
    expected = plain + 0.5 * value.abs().mean() * distance[2:].sum() / 16
    assert torch.equal(entropy, same) and torch.allclose(loss, expected)


def test_the_term_pulls_the_mode_to_the_stored_actions() -> None:
    torch.manual_seed(1)
    model, data = SACBC(BOX, bc_coef=100.0), batch(BOX)
    optimizer = torch.optim.Adam([*model.network.parameters(), *model.head.parameters()], lr=1e-2)

    def distance() -> float:
        return float((model.policy(data.obs, None).mode - data.action)[2:].square().mean())

    before = distance()
    for _ in range(60):
        optimizer.zero_grad()
        model.actor_loss(data, torch.randn(16, 2), torch.tensor(0.2))[0].backward()
        optimizer.step()

    assert distance() < 0.2 * before


def test_a_weight_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"model\.bc_coef is 0"):
        SACBC(BOX, bc_coef=0.0)
