"""SAC: its targets, its losses, exploration, masks; every setting acts; it solves small problems."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import OffPolicyIteration, PolicyInput, ReplayBatch, SpaceSpec
from datamodules.replay import ReplayDataModule
from modules.functional.schedules import schedule_value
from modules.networks import GRU
from modules.networks.heads.twin_critic import TwinMLP
from modules.optim.optimizer_group import OptimizerGroup
from modules.sac.batch import SACBatch
from modules.sac.sac import NO_CLIP, SAC
from tests.oracles.sac import box_data, choice_data, fitted_sac
from tests.support.rollout_fixtures import Writer
from tests.support.small_runs import weights_hash

BOX = SpaceSpec(
    obs_shape=(3,),
    obs_dtype="float32",
    action_type="continuous",
    action_sizes=[],
    action_low=[-2.0, 0.0],
    action_high=[2.0, 10.0],
    action_start=[],
    num_agents=1,
)
CHOICES: SpaceSpec = {**BOX, "action_type": "discrete", "action_sizes": [4], "action_low": [], "action_high": []}


class Fixed(torch.nn.Module):
    """Critics with the same answers everywhere."""

    def __init__(self, obs_shape: Any, action_dims: int, outputs: int):
        super().__init__()
        self.answers = torch.nn.Parameter(torch.tensor([[5.0], [4.0]]).expand(2, outputs).clone())

    def forward(self, obs: Tensor, action: Tensor | None = None) -> Tensor:
        return self.answers.unsqueeze(1).expand(2, len(obs), -1)


def batch(spaces: SpaceSpec, rows: int = 6, mask: Tensor | None = None) -> SACBatch:
    continuous = spaces["action_type"] == "continuous"
    action = torch.rand(rows, 2) * 2 - 1 if continuous else torch.randint(4, (rows,))
    masks = {} if mask is None else {"action_mask": mask}
    one, ended = torch.ones(rows), torch.arange(rows) % 2 == 0
    obs = torch.randn(2, rows, 3)
    return SACBatch(obs[0], action, one, ended, 0.9 * (~ended).float(), obs[1], masks, masks, one)


def test_the_critics_learn_from_the_lower_target_and_its_entropy_unless_terminated() -> None:
    model, alpha = SAC(BOX, critic=Fixed), torch.tensor(0.2)
    rows, noise = batch(BOX), torch.randn(6, 2)
    _, log_prob = model.policy(rows.next_obs, None).sample_with_log_prob(noise)
    expected = torch.where(rows.terminated, 1.0, 1 + 0.9 * (4 - 0.2 * log_prob))

    loss, errors, q_mean = model.critic_loss(rows, noise, alpha)

    assert_close(errors, (expected - torch.tensor([[5.0], [4.0]])).abs().mean(0))
    assert_close(loss, sum((q - expected).square().mean() for q in (5.0, 4.0)))
    assert q_mean == 4.5


def test_entries_of_no_weight_change_nothing() -> None:
    model, rows, noise = SAC(BOX), batch(BOX), torch.randn(6, 2)
    weight = torch.tensor([1.0, 1, 1, 1, 1, 0])
    absurd = rows._replace(weight=weight, return_=rows.return_.clone().index_fill_(0, torch.tensor(5), 1e6))

    losses = [model.critic_loss(each, noise, torch.tensor(0.2))[0] for each in (absurd, rows._replace(weight=weight))]

    assert losses[0] == losses[1]


def test_the_actor_does_not_climb_in_entries_of_no_weight() -> None:
    model, rows, noise, alpha = SAC(BOX), batch(BOX), torch.randn(6, 2), torch.tensor(0.2)
    weight = torch.tensor([0.5, 1, 1, 0, 0, 0])
    counted = [row[:3] for row in (rows.obs, noise)]

    loss, _ = model.actor_loss(rows._replace(weight=weight), noise, alpha)

    expected, _ = model.actor_loss(batch(BOX, 3)._replace(obs=counted[0]), counted[1], alpha)
    assert_close(loss, expected / 2)  # half of the entries count, fully whatever their importance weight


def test_the_temperature_does_not_follow_the_entropy_in_entries_of_no_weight() -> None:
    found = []
    for observed in (0.0, 100.0):
        torch.manual_seed(1)
        model, rows, noise = SAC(BOX, optimizer=partial(torch.optim.SGD, lr=0.1)), batch(BOX), torch.randn(6, 2)
        model.configure_optimizers()
        rows.obs[-1] = observed
        model.gradient_step(rows._replace(weight=torch.tensor([1.0, 1, 1, 1, 1, 0])), noise, noise)
        found.append(float(model.log_alpha.detach()))

    assert found[0] == found[1] != 0


def test_stored_actions_on_the_bounds_are_scaled_to_at_most_one() -> None:
    model, replay = SAC(BOX), ReplayBatch(
        obs=torch.zeros(1, 2, 3), action=torch.tensor([[[2.0000002, -1e-6], [-2.5, 10.5]]]),
        reward=torch.zeros(1, 2, 1), num_steps=torch.ones(1, 2, dtype=torch.int64),
        terminated=torch.zeros(1, 2, dtype=torch.bool), next_obs=torch.zeros(1, 2, 3), extras={}, next_masks={},
        loss_weight=torch.ones(1, 2), indices=torch.zeros(1, 2, dtype=torch.int64),
    )  # fmt: skip

    prepared = model.prepare(SimpleNamespace(transitions=replay))  # type: ignore[arg-type]

    assert prepared.action.tolist() == [[[1, -1], [-1, 1]]]


def test_the_temperatures_gradient_is_not_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows, bounds = SAC(BOX, max_grad_norm=0.5), batch(BOX), list[float]()
    model.optim = OptimizerGroup(model.build_optimizers())
    step = model.step
    monkeypatch.setattr(model, "step", lambda *args: bounds.append(args[2]) or step(*args))

    model.gradient_step(rows, torch.randn(6, 2), torch.randn(6, 2))

    assert bounds == [0.5, 0.5, NO_CLIP]


def test_the_actor_climbs_the_soft_value_and_the_critics_stay() -> None:
    model, rows, noise = SAC(BOX), batch(BOX), torch.randn(6, 2)
    loss, entropy = model.actor_loss(rows, noise, torch.tensor(0.2))
    action, log_prob = model.policy(rows.obs, None).sample_with_log_prob(noise)

    assert_close(loss, (0.2 * log_prob - model.critic(rows.obs, action).amin((0, 2))).mean())
    assert_close(entropy, -log_prob.detach())
    assert not entropy.requires_grad


def test_choices_are_weighed_by_their_probabilities() -> None:
    model, rows = SAC(CHOICES), batch(CHOICES)
    probability = model.policy(rows.obs, None).log_probs.exp()
    q = model.critic(rows.obs).amin(0)

    loss, entropy = model.actor_loss(rows, None, torch.tensor(0.2))

    assert_close(loss, -(probability * (q - 0.2 * probability.log())).sum(-1).mean())
    assert_close(entropy, -(probability * probability.log()).sum(-1))


def test_critics_of_choices_learn_the_lower_expected_target_at_the_choice_that_was_made() -> None:
    model, rows, alpha = SAC(CHOICES), batch(CHOICES), 0.2
    after = model.target_critic(rows.next_obs).amin(0)
    probability = torch.softmax(model.policy(rows.next_obs, None).logits, -1)
    value = (probability * (after - alpha * probability.log())).sum(-1)
    target = torch.where(rows.terminated, 1.0, 1 + 0.9 * value)
    made = torch.stack([model.critic(rows.obs)[:, row, choice] for row, choice in enumerate(rows.action)], 1)

    loss, errors, q_mean = model.critic_loss(rows, None, torch.tensor(alpha))

    assert_close(loss, (made - target).square().mean(1).sum())
    assert_close(errors, (made - target).abs().mean(0))
    assert_close(q_mean, made.mean())


def test_masked_choices_are_never_taken_nor_bootstrapped_from() -> None:
    model = SAC(CHOICES, critic=Fixed)
    model.target_critic.answers.data = torch.tensor([[1e6, 3.0, 3.0, 3.0]]).expand(2, 4)
    mask = torch.tensor([False, True, True, True]).expand(300, 4)
    noise = model.noise((300,), torch.Generator().manual_seed(0))
    taken = []
    for exploring in (True, False):
        model.random_warmup.fill_(exploring)
        taken.append(model.act(PolicyInput(torch.zeros(300, 3), {}, torch.zeros(300) > 0, mask), noise=noise)[0].action)
    value, entropy = model.soft_value(model.target_critic, torch.zeros(300, 3), None, mask, torch.tensor(0.0))

    assert (torch.stack(taken) > 0).all() and set(taken[0].tolist()) == {1, 2, 3}
    assert_close(value, torch.full((300,), 3.0))
    assert_close(model.target_entropy_of(mask), torch.full((300,), 0.4 * float(np.log(3))))
    assert (entropy <= np.log(3) + 1e-6).all()


def test_actions_are_in_the_units_of_the_box_uniform_at_first_and_greedy_when_asked() -> None:
    model, obs = SAC(BOX), torch.zeros(4000, 3)
    noise = model.noise((4000,), torch.Generator().manual_seed(0))
    episode_start = torch.zeros(4000, dtype=torch.bool)
    model.random_warmup.fill_(True)

    action = model.act(PolicyInput(obs, {}, episode_start), noise=noise)[0].action
    greedy = model.act(PolicyInput(obs, {}, episode_start), greedy=True)[0].action

    assert_close(action.mean(0), torch.tensor([0.0, 5.0]), atol=0.2, rtol=0)
    assert_close(action.std(0), torch.tensor([4.0, 10.0]) / 12**0.5, atol=0.1, rtol=0)
    assert_close(greedy, torch.tensor([0.0, 5.0]) + torch.tensor([2.0, 5.0]) * model.policy(obs, None).mean.tanh())


def test_noise_is_held_over_a_horizon_only() -> None:
    model, generator = SAC(BOX, noise_hold=3), torch.Generator().manual_seed(0)

    noise = model.noise((7, 2), generator)

    assert noise.shape == (7, 2, 2)
    assert torch.equal(noise[0], noise[2]) and torch.equal(noise[3], noise[5])
    assert not torch.equal(noise[2], noise[3]) and not torch.equal(noise[5], noise[6])
    assert model.noise((2,), generator).shape == (2, 2)


def test_targets_are_copies_that_follow() -> None:
    model = SAC(BOX, tau=0.25)
    model.optim = OptimizerGroup(model.build_optimizers())
    before = [each.clone() for each in model.target_critic.parameters()]
    assert all(torch.equal(*pair) for pair in zip(before, model.critic.parameters(), strict=True))

    model.train_minibatch(batch(BOX), *torch.randn(2, 6, 2))

    for old, target, source in zip(before, model.target_critic.parameters(), model.critic.parameters(), strict=True):
        assert_close(target, old + 0.25 * (source - old))
        assert not target.requires_grad


def test_only_valid_steps_are_merged_into_the_statistics_of_observations() -> None:
    model, writer = SAC({**BOX, "obs_shape": (2,)}, normalize_obs=True), Writer()
    writer.invalid = (1,)
    rollout, _ = writer.rollout(4)

    model.after_update(OffPolicyIteration(rollout, None, None))  # type: ignore[arg-type]

    assert model.obs_normalizer is not None and model.obs_normalizer.count == 3 * 2
    assert_close(model.obs_normalizer.mean, torch.tensor([(0 + 2 + 3) / 3, 0.5], dtype=torch.float64))


SETTINGS: list[dict[str, Any]] = [
    {"learning_rate": 1e-2},
    {"critic_learning_rate": 1e-2},
    {"learning_rate_schedule": "constant"},
    {"gamma": 0.5},
    {"tau": 0.5},
    {"init_temperature": 0.01},
    {"learn_temperature": False},
    {"target_entropy": 0.5},
    {"target_entropy_schedule": "linear"},
    {"max_grad_norm": 1e-3},
    {"normalize_obs": True},
    {"critic": lambda *shape: TwinMLP(*shape, hidden=(8,), activation="tanh")},
]


@pytest.fixture(scope="module")
def default_hash(tmp_path_factory: pytest.TempPathFactory) -> str:
    return weights_hash(fitted_sac(tmp_path_factory.mktemp("default"), box_data()))


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: next(iter(settings)))
def test_every_setting_acts(settings: dict[str, Any], default_hash: str, tmp_path: Path) -> None:
    model = fitted_sac(tmp_path, box_data(), **settings)

    assert weights_hash(model) != default_hash
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def test_the_share_of_the_entropy_of_choices_acts_and_is_logged(tmp_path: Path) -> None:
    models = [fitted_sac(tmp_path, choice_data(), target_entropy_ratio=share) for share in (0.1, 0.9)]

    assert models[0].log_alpha < models[1].log_alpha
    assert {f"train/{name}" for name in SAC.metric_names} <= models[0].last_logged.keys()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"tau": 0.0}, "model.tau is 0.0; it must be positive"),
        ({"init_temperature": -1.0}, "model.init_temperature is -1.0"),
        ({"gamma": 1.1}, "model.gamma is 1.1"),
        ({"max_grad_norm": 0.0}, "model.max_grad_norm is 0.0"),
        ({"critic_learning_rate": 0.0}, "model.critic_learning_rate is 0.0"),
        ({"network": GRU}, "model.network is GRU, which is recurrent, but model.critic is TwinMLP, which is not"),
        (
            {"spaces": {**CHOICES, "action_type": "multidiscrete"}},
            "SAC cannot act in .* MultiDiscrete: use modules.PPO",
        ),
    ],
)
def test_bad_values_are_refused_in_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        SAC(**{"spaces": BOX, **settings})


@pytest.mark.parametrize("make", [box_data, choice_data])
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(make: Any, tmp_path: Path) -> None:
    whole = fitted_sac(tmp_path / "whole", make())
    fitted_sac(tmp_path / "part", make(), RunCheckpoint(), limit_train_batches=9)
    (last,) = (tmp_path / "part").rglob("last.ckpt")

    resumed = fitted_sac(tmp_path / "rest", make(), ckpt_path=last)

    assert weights_hash(resumed) == weights_hash(whole)
    assert (resumed.env_steps, resumed.updates) == (whole.env_steps, whole.updates)
    assert not resumed.random_warmup


@pytest.mark.parametrize("spaces", [BOX, CHOICES], ids=["box", "choices"])
@pytest.mark.parametrize("given", [None, 0.25])
def test_the_target_entropy_falls_from_that_of_uniform_actions(spaces: SpaceSpec, given: float | None) -> None:
    highest, lowest = (2 * np.log(2), -2.0) if spaces is BOX else (np.log(4), 0.4 * np.log(4))
    lowest, found = lowest if given is None else given, []
    for kind in ("constant", "linear", "cosine"):
        model = SAC(spaces, target_entropy=given, target_entropy_schedule=kind)
        for progress in (0.0, 0.25, 1.0):
            if kind != "constant":
                model.entropy_decay.fill_(schedule_value(model.target_entropy_schedule, 1.0, progress))
            found.append((float(model.target_entropy_of(None)) - lowest) / (highest - lowest))
    assert found == pytest.approx([0, 0, 0, 1, 0.75, 0, 1, (1 + 0.5**0.5) / 2, 0], abs=1e-6)


def test_the_target_entropy_of_masked_actions_falls_from_that_of_the_allowed_ones() -> None:
    model = SAC(CHOICES, target_entropy_schedule="linear")
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])

    assert_close(model.target_entropy_of(mask), torch.tensor([2.0, 4.0]).log())


class Guess(gym.Env):
    """Ten steps of saying the number that is shown."""

    def __init__(self, kind: str):
        box = gym.spaces.Box(-3.0, 3.0, (1,), np.float32)
        self.observation_space = self.action_space = box if kind == "box" else gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 10
        return self._draw(), {}

    def _draw(self) -> Any:
        discrete = isinstance(self.action_space, gym.spaces.Discrete)
        self.shown = self.np_random.integers(4) if discrete else self.np_random.uniform(-3, 3, 1).astype(np.float32)
        return self.shown

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        wrong = np.abs(np.asarray(action, np.float32) - self.shown).item()
        reward = float(wrong == 0) if isinstance(self.action_space, gym.spaces.Discrete) else 1 - wrong / 3
        self.left -= 1
        return self._draw(), reward, False, self.left == 0, {}


gym.register("Guess-v0", Guess)


@pytest.mark.parametrize("kind", ["box", "choices"])
def test_it_learns_to_say_what_it_sees(kind: str, tmp_path: Path) -> None:
    sizes = {
        "num_envs": 4,
        "train_freq": 1,
        "batch_size": 64,
        "replay_ratio": 64,
        "learning_starts": 100,
        "capacity": 2000,
    }
    data = ReplayDataModule(
        "Guess-v0", env_kwargs={"kind": kind}, backend="sync", total_env_steps=600, eval_episodes=20, **sizes
    )
    model = fitted_sac(
        tmp_path, data, gamma=0.5, init_temperature=0.1, learning_rate=8e-3, learning_rate_schedule="constant"
    )

    (result,) = model.trainer.validate(model, datamodule=data, verbose=False)

    assert result["eval/return_mean"] >= 9
