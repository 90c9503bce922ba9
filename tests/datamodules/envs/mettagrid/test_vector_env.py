"""The package `mettagrid` as a vector environment: shared arrays, seeds, ends, workers, planes and replays."""

import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.envs.mettagrid.vector_env import MettaGridVectorEnv
from datamodules.vector.make_env import make_vector_env, probe_spaces
from modules.networks.tokens import TokenEncoder

pytest.importorskip("mettagrid", reason="needs the package mettagrid")

SMALL = {"size": 7, "view": 5, "mines": 4, "generators": 3, "altars": 3, "walls": 3, "time_limit": 40, "altar_cost": 1}
ROWS = 12
"""Rows of three environments of four agents."""

TOKENS = 13 + 2 * 5 + 8 * 4 + 4
"""Tokens that can be needed: objects, the frame in a view of five cells, agents, and facts about the agent itself."""


@contextmanager
def made(**changes: Any) -> Iterator[MettaGridVectorEnv]:
    with closing(MettaGridVectorEnv(3, **{**SMALL, **changes})) as envs:
        yield envs


def played(envs: MettaGridVectorEnv, steps: int, seed: int = 5) -> list[np.ndarray]:
    """Every array of a reset and of random steps."""
    generator = np.random.default_rng(seed)
    arrays = [envs.reset(seed=seed)[0].copy()]
    for _ in range(steps):
        results = envs.step(generator.integers(0, 5, ROWS))
        arrays += [array.copy() for array in results[:4]]
        over = results[3].reshape(envs.num_envs, -1).all(1)
        if over.any():
            envs.reset(options={"reset_mask": over})
    return arrays


def test_simulations_write_into_the_arrays_that_a_step_returns() -> None:
    with made() as envs:
        obs, _ = envs.reset(seed=0)
        assert obs is envs.arrays.obs and obs.shape == (ROWS, TOKENS, 3) and obs.dtype == np.uint8
        for _ in range(50):
            returned = envs.step(np.ones(ROWS, np.int64))[0]
            assert returned is envs.arrays.obs
            assert all(np.shares_memory(each.observations(), obs) for each in envs.workers[0].simulators.simulations)


def test_an_episode_is_truncated_for_all_agents_and_a_reset_begins_on_another_map() -> None:
    with made() as envs:
        first = envs.reset(seed=0)[0].copy()
        for step in range(1, 41):
            obs, reward, terminated, truncated, _ = envs.step(np.zeros(ROWS, np.int64))
            assert truncated.tolist() == [step == 40] * ROWS and not terminated.any() and not reward.any()
        last = obs.copy()
        obs, _ = envs.reset(options={"reset_mask": np.array([False, True, False])})
        assert [np.array_equal(obs[row], last[row]) for row in range(0, ROWS, 4)] == [True, False, True]
        assert not np.array_equal(obs[4:8], first[4:8])
        assert envs.arrays.truncated.reshape(3, 4).all(1).tolist() == [True, False, True]


@pytest.mark.parametrize("other", [{}, {"num_workers": 2}])
def test_a_seed_repeats_the_episodes_with_any_number_of_workers(other: dict[str, Any]) -> None:
    with made() as envs, made(**other) as again:
        one, two, three = played(envs, 90), played(again, 90), played(again, 90, seed=6)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(two, three, strict=True))
    assert sum(float(reward.sum()) for reward in one[2::4]) > 0, "random agents find hearts"


def test_there_are_at_most_as_many_workers_as_simulations() -> None:
    with made(num_workers=5) as envs:
        assert [part.stop - part.start for part in envs.parts] == [1, 1, 1]
        assert len({worker.process.pid for worker in envs.workers}) == 3


def test_a_worker_that_fails_is_reported() -> None:
    with made(num_workers=2) as envs, pytest.raises(RuntimeError, match=r"mettagrid 0 failed: AttributeError"):
        envs.workers[0].send(("dance",))
        envs.workers[0].wait()


def test_dense_planes_are_those_that_the_encoder_decodes_from_tokens() -> None:
    with made() as tokens, made(observation="dense") as dense:
        pairs = list(zip(played(tokens, 60), played(dense, 60), strict=True))
        game = tokens.workers[0].simulators.config.game
    ids = game.id_map()
    numbers = [ids.feature_id(f"inv:{name}") for name in ("ore", "battery", "heart")]
    encoder = TokenEncoder((TOKENS, 3), numbers, {ids.feature_id("tag"): 5}, view=5, hidden=())
    shown = [pair for index, pair in enumerate(pairs) if index % 4 == 1 or index == 0]
    for seen, planes in shown:
        decoded = encoder.preprocess(torch.from_numpy(seen)).numpy()
        assert (planes[:, :5] == 255 * decoded[:, 3:]).all()
        assert np.abs(planes[:, 5:] / 255 - decoded[:, :3].clip(max=1)).max() < 1 / 255
    assert any(planes[:, 5:].any() for _, planes in shown)


def test_the_features_that_the_presets_name_are_those_of_the_game() -> None:
    with made() as envs:
        ids = envs.workers[0].simulators.config.game.id_map()
    names = ("last_action", "last_reward", "inv:ore", "inv:battery", "inv:heart")
    assert [ids.feature_id(name) for name in names] == [2, 3, 12, 14, 16]
    assert (ids.feature_id("tag"), len(ids.tag_names())) == (6, 5)


def test_rewards_are_hearts_and_shares_for_ore_and_batteries() -> None:
    with made(ore_reward=0.01, battery_reward=0.1, time_limit=200) as envs:
        total = np.sum(played(envs, 150)[2::4], 0)
        stats = [each.get_episode_stats()["agent"] for each in envs.workers[0].simulators.simulations]
    paid = {"heart.gained": 1.0, "ore.gained": 0.01, "battery.gained": 0.1}
    agents = [agent for each in stats for agent in each]
    assert total == pytest.approx([sum(paid[name] * agent.get(name, 0) for name in paid) for agent in agents], rel=1e-5)
    assert all(sum(agent.get(name, 0) for agent in agents) > 0 for name in paid)


def test_too_few_tokens_are_an_error_of_the_simulator() -> None:
    with made(num_tokens=6) as envs, pytest.raises(RuntimeError, match="token budget exceeded"):
        envs.reset(seed=0)


def test_agents_are_rows_of_the_vector_environment() -> None:
    spaces = probe_spaces("MettaGrid-v0", SMALL)
    assert (spaces["num_agents"], spaces["obs_shape"], spaces["action_sizes"]) == (4, (TOKENS, 3), [5])
    with closing(make_vector_env("MettaGrid-v0", 3, env_kwargs=SMALL)) as envs:
        obs, _ = envs.reset(0)
        assert obs.shape == (ROWS, TOKENS, 3)
        for _ in range(40):
            step = envs.step(torch.zeros(ROWS, dtype=torch.int64))
        assert step.truncated.all() and step.valid.all() and not torch.equal(step.obs, step.final_obs)
        assert not envs.step(torch.zeros(ROWS, dtype=torch.int64)).truncated.any()


def test_replays_pass_the_packages_schemas_and_damaged_ones_do_not(tmp_path: Path) -> None:
    from datamodules.envs.mettagrid.replays import changes, read_replay

    with made(replay_folder=str(tmp_path / "replays")) as envs:
        arrays = played(envs, 80)
    rewards = np.stack(arrays[2::4])[:40, :4].sum(0)
    files = sorted((tmp_path / "replays").glob("*.json.z"))
    replays = [read_replay(file) for file in files]
    assert len(files) == 2 and all(replay["max_steps"] == 40 for replay in replays)
    assert rewards.tolist() in [replay["infos"]["episode_rewards"] for replay in replays]
    agent = next(entry for entry in replays[0]["objects"] if "agent_id" in entry)
    assert len(changes(agent["location"])) > 5 and changes(agent["group_id"]) == [(0, 0)]

    for damage, sentence in (
        (lambda text: text.replace('"version": 4', '"version": 9'), "of version 9"),
        (lambda text: text.replace('"num_agents": 4', '"num_agents": 5'), "has 4 agents"),
        (lambda text: text.replace('"map_size": [9, 9]', '"map_size": [2, 2]'), "outside of its map"),
        (lambda text: text[:50], "is not a replay"),
    ):
        bad = tmp_path / "bad.json.z"
        bad.write_bytes(zlib.compress(damage(zlib.decompress(files[0].read_bytes()).decode()).encode()))
        with pytest.raises(ConfigurationError, match=sentence):
            read_replay(bad)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [({"num_workers": 0}, "num_workers 0; choose at least 1"), ({"observation": "text"}, "choose tokens or dense")],
)
def test_an_argument_out_of_range_is_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        MettaGridVectorEnv(3, **SMALL, **arguments)
