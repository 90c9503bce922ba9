"""PPO's settings for large rollouts: each acts, has no effect at its default, is refused where it cannot act."""

from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from datamodules.core.errors import ConfigurationError
from datamodules.rollout import RolloutDataModule
from modules.networks import LSTM
from modules.ppo.large_batch import LargeBatch
from modules.ppo.ppo import PPO
from tests.modules.base.test_training_loop import SaveAt
from tests.modules.ppo.test_ppo_recurrent import model_and_rollouts
from tests.support.small_runs import Told, cartpole_data, small_ppo, snake_data, trainer, weights_hash

RECURRENT: dict[str, Any] = {"network": partial(LSTM, hidden=8, encoder=(8,)), "share_torso": True}
SHORT: dict[str, Any] = {"update_epochs": 2, "learning_rate": 5e-3, "num_minibatches": 2}

CHANGES: dict[str, dict[str, Any]] = {
    "bptt_length": {**RECURRENT, "bptt_length": 4},
    "advantage": {"advantage": "vtrace"},
    "rho_clip": {"advantage": "vtrace", "rho_clip": 0.5},
    "c_clip": {"advantage": "vtrace", "c_clip": 0.5},
    "priority_alpha": {"priority_alpha": 0.8},
    "priority_beta": {"priority_alpha": 0.8, "priority_beta": 1.0},
    "refresh_values": {"value_clip_range": 0.01, "refresh_values": True},
    "refresh_values of vtrace": {"advantage": "vtrace", "refresh_values": True},
    "num_microbatches": {"num_microbatches": 2},
    "reference_minibatch": {"reference_minibatch": 16},
    "max_learning_rate": {"max_learning_rate": 1e-3},
    "learning_rate_warmup": {"learning_rate_warmup": 0.5},
    "entropy_coef_schedule": {"entropy_coef": 0.5, "entropy_coef_schedule": "linear"},
    "reward_centering": {"reward_centering": 0.01},
}
"""Settings that change the weights, each with those that it needs."""

WITHOUT: dict[str, str] = {"rho_clip": "advantage", "c_clip": "advantage", "priority_beta": "priority_alpha"}
"""The case of `CHANGES` to compare with; plain PPO for all others."""

OFF: dict[str, Any] = {
    **{"advantage": "gae", "rho_clip": 1.0, "c_clip": 1.0, "priority_alpha": 0.0, "priority_beta": 0.4},
    **{"refresh_values": False, "num_microbatches": 1, "reference_minibatch": None, "max_learning_rate": 1.0},
    **{"learning_rate_warmup": 0.0, "entropy_coef_schedule": "constant", "reward_centering": 0.0},
}


def trained(root: Path, *callbacks: Callback, data: RolloutDataModule | None = None, **changes: Any) -> PPO:
    lightning.seed_everything(1, verbose=False)
    data = data or snake_data(total_env_steps=512)
    path, manual = changes.pop("ckpt_path", None), changes.pop("manual_backward", True)
    model = small_ppo(data, **{**SHORT, **changes})
    run = trainer(root, *callbacks, manual_backward=manual)
    run.fit(model, datamodule=data, ckpt_path=path, weights_only=True)
    return model


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_acts_on_the_weights(tmp_path: Path, name: str) -> None:
    changes = CHANGES[name]
    owned = name.split()[0]
    before = CHANGES[WITHOUT[name]] if name in WITHOUT else {key: changes[key] for key in changes if key != owned}

    with_it, without = (weights_hash(trained(tmp_path, **each, manual_backward=False)) for each in (changes, before))

    assert with_it != without


@pytest.mark.parametrize("network", [{}, {**RECURRENT, "bptt_length": 8}], ids=["feed-forward", "recurrent"])
def test_settings_at_their_defaults_have_no_effect(tmp_path: Path, network: dict[str, Any]) -> None:
    plain = {name: value for name, value in network.items() if name != "bptt_length"}
    assert weights_hash(trained(tmp_path, **plain)) == weights_hash(trained(tmp_path, **network, **OFF))


@pytest.mark.parametrize("name", CHANGES)
def test_updates_without_autograd_are_used_only_where_they_are_those_of_plain_ppo(tmp_path: Path, name: str) -> None:
    plain = ("reference_minibatch", "max_learning_rate", "learning_rate_warmup", "reward_centering")
    told = Told()
    trained(tmp_path, told, data=snake_data(total_env_steps=128), **CHANGES[name])
    assert told.manual_backward == (name in plain)


ALL: dict[str, Any] = {
    **{"advantage": "vtrace", "priority_alpha": 0.8, "refresh_values": True, "num_microbatches": 2},
    **{"reference_minibatch": 16, "learning_rate_warmup": 0.5, "entropy_coef": 0.1, "reward_centering": 0.01},
    **{"entropy_coef_schedule": "cosine", "value_clip_range": 0.2, "bptt_length": 4},
}


@pytest.mark.parametrize("network", [{}, RECURRENT], ids=["feed-forward", "recurrent"])
def test_all_settings_together_resume_bit_for_bit(tmp_path: Path, network: dict[str, Any]) -> None:
    path, data = tmp_path / "k.ckpt", partial(snake_data, total_env_steps=768)
    uninterrupted = trained(tmp_path, data=data(), **network, **ALL)
    trained(tmp_path, SaveAt(3, path, stop=True), data=data(), **network, **ALL)
    resumed = trained(tmp_path, data=data(), ckpt_path=path, **network, **ALL)
    assert weights_hash(resumed) == weights_hash(uninterrupted)


@pytest.mark.parametrize("env", [{"backend": "vector", "num_envs": 8}, {"policy_lag": 1}])
def test_all_settings_together_learn_with_autoreset_steps_and_policy_lag(tmp_path: Path, env: dict[str, Any]) -> None:
    data = cartpole_data(total_env_steps=512, **env)
    model = trained(tmp_path, data=data, **{**ALL, "num_minibatches": 2})
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def test_a_loss_with_vtrace_and_weights_is_compiled_as_one_graph() -> None:
    model, batch = made(advantage="vtrace", bptt_length=4)
    batch = batch._replace(weight=torch.rand(1, batch.size))
    eager = model.loss(batch)[0]
    compiled = torch.compile(model.loss, backend="aot_eager", fullgraph=True, dynamic=False)(batch)[0]
    torch.testing.assert_close(compiled, eager)


def made(**settings: Any) -> tuple[PPO, Any]:
    """An untrained model and a batch of its own decisions."""
    model, (_, rollout) = model_and_rollouts("CartPole-v1", 2, settings=settings)
    with torch.no_grad():
        return model, model.prepare(rollout)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"bptt_length": 4},
            r"bptt_length is 4, but a feed-forward network.*advantage to vtrace or model\.priority_alph",
        ),
        ({"bptt_length": 0, **RECURRENT}, r"model\.bptt_length is 0; it must be positive"),
        ({"priority_alpha": 1.5}, r"model\.priority_alpha is 1\.5; it must lie in \[0, 1\]"),
        ({"learning_rate_warmup": -0.1}, r"model\.learning_rate_warmup is -0\.1"),
        ({"reward_centering": 2.0}, r"model\.reward_centering is 2\.0"),
        ({"num_microbatches": 0}, r"model\.num_microbatches is 0"),
        ({"rho_clip": 0.0}, r"model\.rho_clip is 0\.0"),
        ({"rho_clip": 0.5}, r"model\.rho_clip is 0\.5, but model\.advantage is gae.*model\.advantage to vtrace"),
        ({"c_clip": 2.0}, r"model\.c_clip is 2\.0, but model\.advantage is gae.*model\.advantage to vtrace"),
        ({"priority_beta": 0.9}, r"model\.priority_beta is 0\.9, but .*set model\.priority_alpha above 0"),
        ({"refresh_values": True}, r"refresh_values is true, but no loss .*vtrace, or model\.value_clip_range"),
        ({"priority_alpha": 0.8, "minibatch_order": "strided"}, r"minibatch_order is strided, but .*to shuffled"),
        ({"learning_rte": 1.0}, "PPO has no argument learning_rte"),
        ({"advantage": "td"}, r"model\.advantage is 'td'; it must be one of 'gae', 'vtrace'"),
        (
            {"entropy_coef_schedule": "step"},
            r"model\.entropy_coef_schedule is 'step'; .*'constant', 'linear', 'cosine'",
        ),
    ],
)
def test_a_value_that_cannot_be_is_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        small_ppo(snake_data(), **settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"bptt_length": 3}, r"bptt_length is 3.*data\.rollout_length 8: the nearest that do are \[1, 2, 4, 8\]"),
        ({"bptt_length": 4, "num_minibatches": 64}, r"minibatches is 64.*32 segments of 4 steps: .*\[4, 8, 16, 32\]"),
        ({"num_microbatches": 3}, r"num_microbatches is 3.*minibatch's 8 rows: the nearest that do are \[1, 2, 4, 8\]"),
    ],
)
def test_sizes_that_do_not_divide_are_refused_with_those_that_would(
    tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        trained(tmp_path, **RECURRENT, **settings)


def test_the_learning_rate_grows_with_the_square_root_of_the_minibatch_up_to_its_maximum() -> None:
    assert LargeBatch().learning_rate_factor(1e-3, 64, 0.0) == 1.0
    assert LargeBatch(reference_minibatch=16).learning_rate_factor(1e-3, 64, 0.0) == pytest.approx(2.0)
    limited = LargeBatch(reference_minibatch=16, max_learning_rate=1.5e-3, learning_rate_warmup=0.5)
    assert limited.learning_rate_factor(1e-3, 64, 0.5) == pytest.approx(1.5)
    assert limited.learning_rate_factor(1e-3, 64, 0.1) == pytest.approx(0.3)


def test_the_logged_learning_rate_is_the_scaled_one_of_the_minibatch_of_all_ranks(tmp_path: Path) -> None:
    model = trained(tmp_path, learning_rate=1e-3, learning_rate_schedule="constant", reference_minibatch=16)
    assert model.last_logged["train/learning_rate"] == pytest.approx(2e-3)  # minibatches of 64 transitions


def test_the_entropy_coefficient_decays_to_its_value_at_the_progress_of_the_run(tmp_path: Path) -> None:
    model = trained(tmp_path, entropy_coef=0.5, entropy_coef_schedule="linear")
    assert float(model.entropy_weight) == pytest.approx(0.5 * 0.25)  # the last of four iterations began at 3/4
