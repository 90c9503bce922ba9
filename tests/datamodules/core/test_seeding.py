"""Every rank and every purpose draws from a stream of its own."""

from pathlib import Path
from typing import Any, ClassVar

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import SingleDeviceStrategy

from datamodules.core.seeding import STREAMS, derive_generator, derive_seed, env_seeds
from datamodules.offline import OfflineSequenceDataModule
from modules.active_dynamics.active_dynamics import ActiveDynamics
from modules.active_dynamics.observed_model import FullyObservedModel
from modules.sac_options.sac_options import SACOptions
from tests.oracles.sac import box_data, small_sac
from tests.support.counting_env import Counting
from tests.support.dynamics_fixtures import Bumps, explorer, spring_data
from tests.support.replay_fixtures import replay_data, small_dqn
from tests.support.small_runs import cartpole_data, small_ppo, trainer

RANKS = (0, 1)


class OfRank(SingleDeviceStrategy):
    """One process that takes itself for a rank of several."""

    def __init__(self, rank: int):
        super().__init__(torch.device("cpu"))
        self.global_rank = rank


class Seeded(Counting):
    """Notes the seeds of all its resets."""

    seen: ClassVar[list[int]] = []

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        if seed is not None:
            self.seen.append(seed)
        return super().reset(seed=seed, options=options)


class Generators(Callback):
    """Notes the seeds of the generators that a run draws from."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        data = trainer.datamodule
        owners = {"minibatch": pl_module.minibatch_generator, "action": getattr(data.collector, "generator", None)}
        owners["replay"] = getattr(data.dataset, "generator", None)
        owners["option"] = getattr(pl_module, "option_generator", None)
        self.seeds = {name: each.initial_seed() for name, each in owners.items() if each is not None}


def run(root: Path, rank: int, model: Any, data: Any, **settings: Any) -> dict[str, int]:
    """The seeds of a run's generators, from seed 1."""
    lightning.seed_everything(1, verbose=False)
    seen = Generators()
    trainer(root, seen, strategy=OfRank(rank), max_steps=2, **settings).fit(model, datamodule=data)
    return seen.seeds


def expected(rank: int, *streams: str) -> dict[str, int]:
    return {stream: derive_seed(1, rank, stream) for stream in streams}


def test_no_two_ranks_or_purposes_share_a_seed() -> None:
    seeds = {derive_seed(1, rank, stream) for rank in range(8) for stream in STREAMS}
    cpu = torch.device("cpu")
    drawn = {derive_generator(1, rank, name, cpu).initial_seed() for rank in RANKS for name in STREAMS}

    assert len(seeds) == 8 * len(STREAMS)
    assert len(drawn) == 2 * len(STREAMS)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(2, 0, "env") not in seeds


def test_seeds_of_environments_are_31_bits_and_their_own_and_other_ones_every_time_without_a_seed() -> None:
    seeds = env_seeds(1, 100)

    assert len(set(seeds.tolist())) == 100 and seeds.min() >= 0 and seeds.max() < 2**31
    assert env_seeds(1, 4).tolist() == seeds[:4].tolist()
    assert env_seeds(None, 4).tolist() != env_seeds(None, 4).tolist()


@pytest.mark.parametrize("rank", RANKS)
def test_environments_and_evaluations_begin_from_the_seeds_of_the_rank(tmp_path: Path, rank: int) -> None:
    data = cartpole_data(env=f"{__name__}.Seeded", num_envs=2)
    Seeded.seen.clear()  # making the data tried the environment

    run(tmp_path, rank, small_ppo(data), data, val_check_interval=1)

    train, evaluation = (env_seeds(derive_seed(1, rank, stream), 2).tolist() for stream in ("env", "eval"))
    assert Seeded.seen == train + 2 * evaluation


@pytest.mark.parametrize("rank", RANKS)
def test_on_policy_runs_draw_actions_and_minibatches_from_the_streams_of_the_rank(tmp_path: Path, rank: int) -> None:
    data = cartpole_data()

    assert run(tmp_path, rank, small_ppo(data), data) == expected(rank, "minibatch", "action")


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("kind", ["dqn", "options"])
def test_runs_with_a_replay_draw_from_the_streams_of_the_rank(tmp_path: Path, rank: int, kind: str) -> None:
    data = replay_data() if kind == "dqn" else box_data(n_step=1)
    model: Any = small_dqn(data) if kind == "dqn" else small_sac(data, SACOptions)

    own = ["option"] if kind == "options" else []
    assert run(tmp_path, rank, model, data) == expected(rank, "minibatch", "action", "replay", *own)


@pytest.mark.parametrize("rank", RANKS)
def test_pieces_of_sequences_are_drawn_from_the_streams_of_the_rank(tmp_path: Path, rank: int) -> None:
    data = spring_data()

    assert run(tmp_path, rank, explorer(data), data) == expected(rank, "minibatch", "action", "replay")


def test_every_rank_holds_sequences_of_its_own_out(tmp_path: Path) -> None:
    held_out = []
    for rank in (0, 0, 1):
        data = spring_data()
        run(tmp_path, rank, explorer(data), data, val_check_interval=1)
        held_out.append(data.held_out_sequences().sequences.obs)

    assert torch.equal(held_out[0], held_out[1]) and not torch.equal(held_out[0], held_out[2])


@pytest.mark.parametrize("rank", RANKS)
def test_every_rank_draws_pieces_of_its_own_from_the_same_recording(tmp_path: Path, rank: int) -> None:
    sizes: dict[str, Any] = {"sequences": 4, "steps": 20, "batch_size": 2, "sequence_length": 5, "num_val_sequences": 3}
    data = OfflineSequenceDataModule("tests.support.dynamics_fixtures.Spring", **sizes, total_env_steps=1000)
    model = ActiveDynamics(data.spaces, FullyObservedModel(Bumps()))

    run(tmp_path, rank, model, data)

    assert data.dataset.seed == derive_seed(1, rank, "replay")
    assert torch.equal(data.ring.columns["obs"], data.stored(1 - rank, torch.device("cpu")).obs)
