"""Curiosity: what it rewards, what it learns, and that every setting acts."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec
from modules.networks import GRU, MLP
from modules.networks.heads.twin_critic import TwinMLP
from modules.sac.batch import SACBatch
from modules.sac.curiosity import Curiosity
from modules.sac.sac import SAC
from modules.sac_options.sac_options import SACOptions
from tests.oracles.sac import box_data, choice_data, fitted_sac
from tests.support.small_runs import weights_hash

BOX = SpaceSpec(
    obs_shape=(3,),
    obs_dtype="float32",
    action_type="continuous",
    action_sizes=[],
    action_low=[-1.0],
    action_high=[1.0],
    action_start=[],
    num_agents=1,
)
CHOICES: SpaceSpec = {**BOX, "action_type": "discrete", "action_sizes": [3], "action_low": [], "action_high": []}

COLUMNS = ("obs", "action", "next_obs")


def world(spaces: SpaceSpec, rows: int = 256, shift: float = 0.0) -> SACBatch:
    """Transitions in which every action pushes its own way."""
    generator = torch.Generator().manual_seed(0)
    obs = torch.randn(rows, 3, generator=generator) + shift
    if spaces["action_type"] == "continuous":
        action = torch.rand(rows, 1, generator=generator) * 2 - 1
        push = action * torch.tensor([1.0, 0.0, -1.0])
    else:
        action = torch.randint(3, (rows,), generator=generator)
        push = torch.eye(3)[action]
    one, none = torch.ones(rows), torch.zeros(rows, dtype=torch.bool)
    return SACBatch(obs, action, one, none, 0.9 * one, obs + push, {}, {}, one)


def learned(spaces: SpaceSpec, batch: SACBatch, updates: int = 300, **settings: Any) -> tuple[Curiosity, Tensor]:
    """Curiosity after some updates, and its forward and inverse errors before and after each, `[updates, 2]`."""
    torch.manual_seed(0)
    curiosity = Curiosity(spaces, **settings)
    optimizer, errors = torch.optim.Adam(curiosity.parameters(), lr=curiosity.rates[0]), []
    for _ in range(updates):
        loss, (_, *both) = curiosity.loss(batch)
        errors.append(torch.stack(both))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return curiosity, torch.stack(errors)


def reward(curiosity: Curiosity, batch: SACBatch) -> Tensor:
    return (curiosity.add_intrinsic_reward(batch.map(lambda column: column[None])).return_ - batch.return_).squeeze(0)


@pytest.mark.parametrize("spaces", [BOX, CHOICES], ids=["box", "choices"])
def test_what_is_new_rewards_more_than_what_is_seen_often(spaces: SpaceSpec) -> None:
    seen, new = world(spaces), world(spaces, shift=4.0)
    both = seen._replace(**{name: torch.cat([getattr(seen, name), getattr(new, name)]) for name in COLUMNS})

    used, errors = learned(spaces, seen)
    familiar, strange = reward(used, both._replace(weight=torch.ones(512), return_=torch.ones(512))).split(256)

    assert familiar.mean() < 0.2 * strange.mean()
    assert errors[-1, 0] < 0.5 * errors[0, 0], "the forward model learns what follows"
    assert errors[-1, 1] < 0.5 * errors[0, 1], "the inverse model learns to tell actions apart"


def test_the_reward_goes_by_the_error_of_the_forward_model_and_its_mean_is_the_scale() -> None:
    batch, curiosity = world(BOX), Curiosity(BOX, scale=0.5)
    forward, inverse = (
        error.detach() for error in curiosity.prediction_errors(batch.obs, batch.action, batch.next_obs)
    )

    loss, measured = curiosity.loss(batch)

    assert_close(reward(curiosity, batch), 0.5 * forward / forward.mean(), rtol=1e-3, atol=1e-5)
    assert_close(loss.detach(), 0.2 * forward.mean() + 0.8 * inverse.mean())
    assert_close(torch.stack(measured), torch.stack([torch.tensor(0.5), forward.mean(), inverse.mean()]))


@pytest.mark.parametrize("unit", [1e-2, 1.0, 1e2])
def test_the_reward_does_not_depend_on_units_nor_on_how_much_was_learned(unit: float) -> None:
    batch = world(BOX)
    small = batch._replace(obs=unit * batch.obs, next_obs=unit * batch.next_obs)

    for updates in (1, 100):
        curiosity, _ = learned(BOX, small, updates, scale=0.5)

        assert_close(reward(curiosity, small).mean(), torch.tensor(0.5), rtol=1e-3, atol=0.0)


def test_a_world_that_is_foreseen_rewards_nothing() -> None:
    batch, curiosity = world(BOX), Curiosity(BOX)
    for each in (*curiosity.network.parameters(), *curiosity.forward_model.parameters()):
        nn.init.zeros_(each)

    assert not reward(curiosity, batch).any()


def test_the_scale_falls_on_a_line_to_nothing() -> None:
    curiosity, scales = Curiosity(BOX, scale=0.5, anneal_env_steps=100), []
    for env_steps in (0, 50, 100, 1000):
        curiosity.anneal_(env_steps)
        scales.append(float(curiosity.current_scale))

    assert scales == [0.5, 0.25, 0.0, 0.0]


@pytest.mark.parametrize(("weight", "still"), [(0.0, "ahead"), (1.0, "back")])
def test_the_weight_says_which_model_learns(weight: float, still: str) -> None:
    curiosity = Curiosity(BOX, forward_weight=weight)

    curiosity.loss(world(BOX))[0].backward()

    unmoved = {name for name, each in curiosity.named_parameters() if each.grad is None or not each.grad.any()}
    assert {name for name in unmoved if name.startswith(("ahead", "back"))} == {
        name for name, _ in curiosity.named_parameters() if name.startswith(still)
    }


def test_entries_of_no_weight_teach_nothing() -> None:
    batch, curiosity = world(BOX), Curiosity(BOX)
    half = batch._replace(weight=(torch.arange(256) < 128).float())
    absurd = half._replace(next_obs=half.next_obs.index_fill(0, torch.arange(128, 256), 1e3))

    assert curiosity.loss(half)[0] == curiosity.loss(absurd)[0]
    assert torch.equal(reward(curiosity, half)[:128], reward(curiosity, absurd)[:128])


@pytest.mark.parametrize("data", [box_data, choice_data])
def test_scale_zero_is_soft_actor_critic_without_curiosity_to_the_last_bit(tmp_path: Path, data: Any) -> None:
    without = fitted_sac(tmp_path, data(n_step=1))
    zero, some = (
        fitted_sac(tmp_path, data(n_step=1), curiosity=partial(Curiosity, scale=scale)) for scale in (0.0, 5.0)
    )

    parts = [
        {name: each for name, each in model.state_dict().items() if "curiosity" not in name} for model in (zero, some)
    ]
    assert all(torch.equal(each, parts[0][name]) for name, each in without.state_dict().items())
    assert not all(torch.equal(each, parts[1][name]) for name, each in without.state_dict().items())


def test_a_run_logs_curiosity_and_anneals_it(tmp_path: Path) -> None:
    curiosity = partial(
        Curiosity, network=partial(MLP, hidden=(8,)), hidden=8, anneal_env_steps=160, learning_rate=1e-2
    )

    model = fitted_sac(tmp_path, box_data(n_step=1), curiosity=curiosity)

    assert {*Curiosity.metric_names} <= {*model.last_logged}
    assert model.last_logged["curiosity/scale"] == 0 and model.last_logged["curiosity/forward_loss"] > 0
    actor, *_, curious = (group["lr"] for group in model.optim.groups)
    assert curious == pytest.approx(10 * actor)


def test_options_may_be_curious_too(tmp_path: Path) -> None:
    model = fitted_sac(
        tmp_path, box_data(n_step=1), kind=SACOptions, curiosity=Curiosity, learning_rate_schedule="constant"
    )

    assert {"curiosity/forward_loss", "option/switch_rate"} <= {*model.last_logged}
    assert [*model.optimizers_by_name] == [
        "actor",
        "critic",
        "alpha",
        "curiosity",
        "master",
        "alpha_option",
        "termination",
    ]  # type: ignore[attr-defined]


def test_a_checkpoint_makes_a_curious_module_again(tmp_path: Path) -> None:
    parts = {"network": partial(MLP, hidden=(8,)), "critic": partial(TwinMLP, hidden=(8,))}
    model = fitted_sac(tmp_path, box_data(n_step=1), RunCheckpoint(), curiosity=partial(Curiosity, hidden=16), **parts)

    again = SAC.load_from_checkpoint(next(tmp_path.rglob("last.ckpt")))

    assert weights_hash(again) == weights_hash(model)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"scale": -1.0}, "has scale -1.0; choose at least 0.$"),
        ({"anneal_env_steps": 0}, "has anneal_env_steps 0; choose at least 1, or null.$"),
        ({"network": GRU}, "give curiosity a feed-forward one"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Curiosity(BOX, **settings)


def test_windows_of_several_steps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="n_step is 2; curiosity learns from single steps"):
        fitted_sac(tmp_path, box_data(), curiosity=Curiosity)
