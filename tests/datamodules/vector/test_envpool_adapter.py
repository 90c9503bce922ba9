import subprocess
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.seeding import derive_seed
from datamodules.vector.envpool_adapter import EnvPoolVectorEnv
from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter
from datamodules.vector.make_env import make_vector_env, probe_spaces
from tests.support.autoreset_contract import stepped
from tests.support.counting_env import transitions
from tests.support.small_runs import cartpole_data, fitted, small_ppo, trainer, weights_hash

pytest.importorskip("envpool", reason="needs the extra envpool")


def pool(env: str = "CartPole-v1", num_envs: int = 4, **kwargs) -> GymnasiumVectorAdapter:
    return make_vector_env(env, num_envs, backend="envpool", env_kwargs=kwargs)


def threads_of_this_process() -> int:
    return len([*Path("/proc/self/task").iterdir()])


def test_the_step_after_an_end_is_a_phantom_that_brings_the_next_episode():
    for step, ended in stepped(pool(), 60):
        assert (step.obs[ended].abs() <= 0.05).all()
        assert not (step.terminated | step.truncated)[ended].any()


def test_an_episode_that_reaches_its_limit_is_truncated_with_its_true_last_observation():
    limited, longer = pool("MountainCar-v0", max_episode_steps=3), pool("MountainCar-v0")
    push = torch.full((4,), 2)
    limited.reset(5)
    longer.reset(5)
    for t in range(3):
        step, further = limited.step(push), longer.step(push)
        assert step.truncated.all() == (t == 2)
        assert not step.terminated.any()
    assert torch.equal(step.final_obs, further.obs)


def last_of_first_episode(**kwargs) -> tuple[int, bool, bool]:
    """Steps of a pole that is pushed until it falls or is stopped, and both flags."""
    envs = pool(num_envs=1, **kwargs)
    envs.reset(0)
    steps = (envs.step(torch.ones(1, dtype=torch.int64)) for _ in range(100))
    return next((n, *map(bool, step[2:4])) for n, step in enumerate(steps, 1) if step.terminated or step.truncated)


def test_an_episode_that_ends_by_itself_is_terminated_and_in_the_step_of_its_limit_truncated_only():
    steps, *flags = last_of_first_episode()
    assert flags == [True, False]
    assert last_of_first_episode(max_episode_steps=steps + 1) == (steps, True, False)
    assert last_of_first_episode(max_episode_steps=steps) == (steps, False, True)


def test_rows_stay_in_order_and_every_transition_counts_once():
    rows = transitions(pool("MountainCar-v0", num_threads=2, max_episode_steps=4), 20, seed=3)
    assert [len(row) for row in rows] == [16] * 4
    for row in rows:
        assert [flags for *_, flags, _ in row] == [False, False, False, True] * 4
        assert all(last[4] == first[0] for last, first in pairwise(row) if not last[3])


def test_reset_with_a_seed_repeats_the_episodes_and_later_resets_do_not():
    envs = pool()
    first, second = (transitions(envs, 30, seed=7) for _ in range(2))
    other = envs.reset()[0].clone()
    assert first == second == transitions(pool(), 30, seed=7)
    assert not set(map(tuple, other.tolist())) & {tuple(row[0][0]) for row in first}


def test_seeds_in_a_row_share_no_episode():
    starts = [tuple(obs) for seed in range(5) for obs in pool(num_envs=8).reset(seed)[0].tolist()]
    assert len(set(starts)) == 40


def test_actions_are_clipped_and_numbers_are_what_networks_want():
    envs, bounded = pool("Pendulum-v1"), pool("Pendulum-v1")
    envs.reset(0)
    bounded.reset(0)
    assert torch.equal(envs.step(torch.full((4, 1), 9.0)).obs, bounded.step(torch.full((4, 1), 2.0)).obs)
    runner = pool("HalfCheetah-v4", num_envs=2)
    runner.reset(0)
    step = runner.step(torch.zeros(2, 6))
    assert step.obs.shape == (2, 17)
    assert step.obs.dtype == step.reward.dtype == torch.float32


def test_discrete_observations_become_one_hot():
    assert pool("FrozenLake-v1", num_envs=2).reset(0)[0].tolist() == torch.eye(16)[[0, 0]].tolist()


def test_spaces_are_envpool_s_own_and_follow_its_arguments():
    spaces = probe_spaces("Pong-v5", {"stack_num": 2, "img_height": 42, "img_width": 40}, "envpool")
    assert spaces["obs_shape"] == (2, 42, 40)
    assert spaces["obs_dtype"] == "uint8"
    assert not torch.cuda.is_initialized()


def test_a_game_of_atari_s_is_stepped():
    envs = pool("Pong-v5", num_envs=2, noop_max=1)
    obs, _ = envs.reset(0)
    step = envs.step(torch.tensor([2, 3]))
    assert obs.shape == step.obs.shape == (2, 4, 84, 84)
    assert step.obs.dtype == torch.uint8
    assert step.obs.any()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to count threads")
def test_threads_are_the_cores_of_a_rank_unless_told_and_end_with_the_environments(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)), raising=False)
    before, counts = threads_of_this_process(), []
    for ranks, num_envs, kwargs in [(2, 8, {}), (1, 2, {}), (1, 8, {"num_threads": 5}), (9, 8, {})]:
        envs = EnvPoolVectorEnv("CartPole-v1", num_envs, kwargs, ranks=ranks)
        for seed in (0, 1):
            envs.reset(seed=seed)
            counts.append(envs._pool.config["num_threads"])
            assert threads_of_this_process() > before
        envs.close()
    assert counts == [3, 3, 2, 2, 5, 5, 1, 1]
    assert threads_of_this_process() == before


@pytest.mark.parametrize(
    ("env", "kwargs", "sentence"),
    [
        ("cartpol-v1", {}, r"EnvPool has no environment 'cartpol-v1': name CartPole-v1 or .*, or choose another back"),
        ("my.Env", {}, r"EnvPool has no environment 'my.Env': choose another backend\."),
        ("CartPole-v1", {"lenght": 3}, r"takes no env_kwargs.lenght; it takes .*max_episode_steps.*num_threads"),
        (
            "Pong-v5",
            {"frame_skip": "four", "mode": 0},
            r"\{'frame_skip': 'four'\}: give .* types of \{'frame_skip': 4}",
        ),
        ("CartPole-v1", {"seed": 3}, r"env_kwargs may not contain seed, which backend envpool sets itself"),
        ("CartPole-v1", {"num_threads": 0}, r"env_kwargs.num_threads is 0; it must be a whole number of at least 1"),
        ("CartPole-v1", {"num_threads": True}, r"env_kwargs.num_threads is True; it must be a whole number of at"),
        ("CartPole-v1", {"max_episode_steps": -3}, r"env_kwargs.max_episode_steps is -3; it must be a whole number"),
        ("Pong-v5", {"stack_num": -1}, r"env_kwargs.stack_num is -1; it must be a whole number of at least 1"),
        ("Pong-v5", {"base_path": "/"}, r"env_kwargs may not contain base_path, which backend envpool sets itself"),
        (
            "Pong-v5",
            {"mode": 999},
            r"could not be created with env_kwargs \{'num_threads.*'mode': 999.*: Invalid game mode",
        ),
        (
            "TicTacToe-v1",
            {},
            r"TicTacToe-v1 has 2 players, but only EnvPool .* with one player are supported: choose another\.",
        ),
        (
            "CheetahRun-v1",
            {},
            r"CheetahRun-v1 has Dict observations and Box actions.* choose another, or another backend\.",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence_before_anything_is_made(env, kwargs, sentence):
    for refused in (lambda: pool(env, **kwargs), lambda: probe_spaces(env, kwargs, "envpool")):
        with pytest.raises(ConfigurationError, match=sentence) as caught:
            refused()
        assert "\n" not in str(caught.value)


def test_an_id_of_envpool_s_alone_needs_its_backend():
    with pytest.raises(ConfigurationError, match=r"There is no environment 'Pong-v5'"):
        make_vector_env("Pong-v5", 2, backend="sync")


def test_a_program_that_forgets_to_close_ends():
    code = "import datamodules.vector.make_env as v; v.make_vector_env('CartPole-v1', 4, backend='envpool').reset(0)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_training_repeats_itself_and_counts_no_phantom(tmp_path):
    models = [fitted(tmp_path, cartpole_data(backend="envpool")) for _ in range(2)]
    assert weights_hash(models[0]) == weights_hash(models[1])
    assert models[0].env_steps < 640


def test_ranks_of_a_host_play_other_episodes_and_share_its_cores(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    data = cartpole_data(backend="envpool")
    data.trainer = trainer(tmp_path, strategy="ddp", devices=2)
    data.trainer.strategy.connect(small_ppo(data))
    with closing(data.make_collector().envs) as envs:
        assert envs.envs._pool.config["num_threads"] == 2
        starts = [tuple(obs) for rank in (0, 1) for obs in envs.reset(derive_seed(1, rank, "env"))[0].tolist()]
    assert len(set(starts)) == 8


def test_evaluation_plays_whole_episodes_of_the_same_backend(tmp_path):
    data = cartpole_data(backend="envpool", env_kwargs={"max_episode_steps": 20})
    model = small_ppo(data)
    scores = [trainer(tmp_path).validate(model, datamodule=data, verbose=False)[0] for _ in range(2)]
    assert scores[0] == scores[1]
    assert 1 <= scores[0]["eval/return_mean"] <= 20


def test_one_step_is_that_of_gymnasium_s_namesake():
    envs, namesake = pool(num_envs=1), make_vector_env("CartPole-v1", 1, backend="sync")
    obs = envs.reset(0)[0].clone()
    namesake.reset(0)
    namesake.envs.envs[0].unwrapped.state = obs[0].double().numpy()
    for action in (1, 0, 1, 1, 0, 0):
        step, other = envs.step(torch.tensor([action])), namesake.step(torch.tensor([action]))
        np.testing.assert_allclose(step.obs, other.obs, atol=1e-5)
