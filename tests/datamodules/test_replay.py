"""The replay's data module: what it refuses, how much it replays, and that it goes on where it was."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import lightning
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from callbacks.run_control.checkpoint import AtomicCheckpointIO, RunCheckpoint
from callbacks.run_control.divergence_guard import DivergenceGuard, TrainingDiverged
from datamodules.buffers.storage import choose_storage_device
from datamodules.core.errors import ConfigurationError
from datamodules.replay import ReplayDataModule
from tests.support.replay_fixtures import fitted_dqn, replay_data, small_dqn
from tests.support.small_runs import trainer, weights_hash

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replay_ratio": 0}, "replay_ratio is 0; it must be positive"),
        ({"priority_alpha": 1.5}, r"priority_alpha is 1.5; it must lie in \[0, 1\]"),
        ({"n_step": 0}, "n_step is 0; it must be at least 1"),
        ({"capacity": 40}, "capacity is 40; 8 environments, data.train_freq 4 and windows of 2 steps need at least 56"),
        ({"frame_stack": 4}, r"frame_stack is 4, but Snake-v0 has observations of shape \(19,\)"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        replay_data(**change)


def test_a_replay_that_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(ConfigurationError, match=r"capacity 1,000,000 needs 953,674,316 MiB, and cpu has .* at most"):
        choose_storage_device("auto", CPU, needed=10**15, capacity=10**6)


def test_learning_starts_no_later_than_a_tenth_of_the_run() -> None:
    assert replay_data(learning_starts=10_000).learning_starts == 64


class Counts(Callback):
    """Notes updates and size of the replay after every iteration."""

    def __init__(self) -> None:
        self.updates: list[int] = []
        self.sizes: list[int] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.updates.append(pl_module.updates)
        self.sizes.append(int(trainer.datamodule.extra_metrics()["replay/size"]))


def test_updates_begin_when_learning_starts_and_keep_the_ratio(tmp_path: Path) -> None:
    counts = Counts()
    model = fitted_dqn(tmp_path, replay_data(), counts)
    assert counts.updates == [0, *range(2, 40, 2)]
    assert counts.sizes[:9] == [32, 64, 96, 128, 160, 192, 224, 256, 256]
    assert (model.env_steps, model.updates) == (640, 38)


class StopAt(Callback):
    """Stops a run after an iteration."""

    def __init__(self, iteration: int):
        self.iteration = iteration

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        trainer.should_stop = trainer.global_step >= self.iteration


class FirstUpdate(Callback):
    """Notes the env steps before and after the iteration of the first update."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.steps, self.found = [pl_module.env_steps], list[int]()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.steps.append(pl_module.env_steps)
        if pl_module.updates and not self.found:
            self.found = self.steps[-2:]


def autoreset_data(**changes: Any) -> ReplayDataModule:
    """Eight cart-poles that end every 20 steps or so, each time with a step that does not count."""
    cartpole: dict[str, Any] = {"env": "CartPole-v1", "env_kwargs": {}, "backend": "vector", "train_freq": 1}
    return replay_data(**{**cartpole, "replay_ratio": 4, "learning_starts": 400, "total_env_steps": 4000, **changes})


@pytest.mark.parametrize("resumed_at", [None, 30])
def test_learning_starts_after_as_many_env_steps_that_count(tmp_path: Path, resumed_at: int | None) -> None:
    first, last = FirstUpdate(), None
    if resumed_at is not None:
        fitted_dqn(tmp_path / "part", autoreset_data(), RunCheckpoint(), StopAt(resumed_at))
        (last,) = (tmp_path / "part").rglob("last.ckpt")

    fitted_dqn(tmp_path, autoreset_data(), first, StopAt(60), ckpt_path=last)

    assert first.found[0] < 400 <= first.found[1] < 408


def test_a_run_with_autoreset_steps_takes_all_of_its_env_steps(tmp_path: Path) -> None:
    model = fitted_dqn(tmp_path, autoreset_data(total_env_steps=800))

    assert 800 <= model.env_steps < 808 and model.global_step > 100


@pytest.mark.parametrize("iteration", [1, 5, 13])
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(tmp_path: Path, iteration: int) -> None:
    whole = fitted_dqn(tmp_path / "whole", replay_data())
    fitted_dqn(tmp_path / "part", replay_data(), StopAt(iteration), RunCheckpoint())
    (last,) = (tmp_path / "part").rglob("last.ckpt")
    resumed = fitted_dqn(tmp_path / "rest", replay_data(), ckpt_path=last)
    assert weights_hash(resumed) == weights_hash(whole)
    assert (resumed.env_steps, resumed.updates) == (whole.env_steps, whole.updates)


def test_without_its_replay_a_resumed_run_fills_a_new_one_first_and_says_so(tmp_path: Path, caplog: Any) -> None:
    fitted_dqn(tmp_path, replay_data(), StopAt(5), RunCheckpoint())
    (last,) = tmp_path.rglob("last.ckpt")
    next(last.parent.glob("last.replay-0-*.pt")).unlink()
    counts = Counts()
    model = fitted_dqn(tmp_path / "rest", replay_data(), counts, ckpt_path=last)
    assert counts.sizes[0] == 32
    assert model.updates == 38 - 2
    assert any("has no replay buffer" in record.message for record in caplog.records)


def test_a_replay_of_another_checkpoint_is_not_taken(tmp_path: Path) -> None:
    for name in ("one", "other"):
        fitted_dqn(tmp_path / name, replay_data(), StopAt(5), RunCheckpoint())
    one, other = (next((tmp_path / name).rglob("last.replay-0-*.pt")) for name in ("one", "other"))
    one.write_bytes(other.read_bytes())
    counts = Counts()
    fitted_dqn(tmp_path / "rest", replay_data(), counts, ckpt_path=one.with_name("last.ckpt"))
    assert counts.sizes[0] == 32


def test_environments_that_begin_anew_end_the_windows_of_before(tmp_path: Path) -> None:
    settings = {"env": "CartPole-v1", "env_kwargs": None, "backend": "sync", "n_step": 3}
    fitted_dqn(tmp_path, replay_data(**settings), StopAt(5), RunCheckpoint())
    (last,) = tmp_path.rglob("last.ckpt")
    data = replay_data(**settings)
    fitted_dqn(tmp_path / "rest", data, StopAt(6), ckpt_path=last)
    replay = data.dataset.replay
    window = replay.gather(torch.arange(8) + 19 * 8)
    assert (window.num_steps == 0).logical_or(window.terminated).all()


def test_steps_that_do_not_count_never_reach_the_learner(tmp_path: Path) -> None:
    data = replay_data(env="CartPole-v1", env_kwargs=None, backend="vector", priority_alpha=0.0)
    model = fitted_dqn(tmp_path, data)
    stored = model.global_step * data.train_freq * data.num_envs
    assert 640 <= model.env_steps < stored  # steps that only reset an environment are stored, and do not count
    found = data.dataset.replay.sample(data.dataset.replay.noise(4, 256, torch.Generator()))
    assert (found.loss_weight == 1).all()


class Images(gym.Env):
    """A byte image that counts; episodes of seven steps."""

    observation_space = gym.spaces.Box(0, 255, (2, 2), "uint8")
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self.count = int(self.np_random.integers(100))
        self.begin = self.count
        return self.observation_space.low + self.count, {}

    def step(self, action: int) -> Any:
        self.count += 1
        ended = self.count - self.begin >= 7
        return self.observation_space.low + self.count, 1.0, False, ended, {}


gym.register("Images-v0", lambda: gym.wrappers.FrameStackObservation(Images(), 3))


def test_stacked_frames_are_stored_once_and_drawn_as_they_were_seen(tmp_path: Path) -> None:
    data = replay_data(env="Images-v0", env_kwargs=None, backend="sync", frame_stack=3, priority_alpha=0.0)
    fitted_dqn(tmp_path, data)
    replay = data.dataset.replay
    assert replay.ring.frames["frames"].shape[1:] == (2, 2)
    assert replay.ring.frames["frames"].dtype == torch.uint8
    found = replay.sample(replay.noise(1, 512, torch.Generator()))
    steps = found.obs[..., 0, 0].int().diff(dim=-1)
    assert ((steps == 1) | (steps == 0)).all()
    newest, following = found.obs[..., -1, 0, 0], found.next_obs[..., -1, 0, 0]
    assert torch.equal(newest + found.num_steps, following)


def test_observations_that_are_no_stacks_of_frames_are_refused(tmp_path: Path) -> None:
    data = replay_data(env="Snake-v0", env_kwargs={"dim": 6, "distance_to_border": 2}, frame_stack=3)
    with pytest.raises(ConfigurationError, match=r"data.frame_stack is 3, but .* observations are not stacks"):
        trainer(tmp_path).fit(small_dqn(data), datamodule=data)


class FailingIO(AtomicCheckpointIO):
    """Saves checkpoints until one iteration, and fails from then on, as a kill does between two files."""

    def __init__(self, iteration: int):
        super().__init__()
        self.iteration = iteration

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        if checkpoint["global_step"] >= self.iteration:
            raise ConnectionError("killed")
        super().save_checkpoint(checkpoint, path, storage_options)


class Spoils(Callback):
    """Makes the weights infinite after an iteration."""

    def __init__(self, iteration: int):
        self.iteration = iteration

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if trainer.global_step == self.iteration:
            next(pl_module.parameters()).data.fill_(torch.inf)


def sidecars(last: Path) -> list[Path]:
    return sorted(last.parent.glob("last.replay-*.pt"))


@pytest.mark.parametrize(
    ("error", "callbacks", "plugins"),
    [(ConnectionError, [], [FailingIO(8)]), (TrainingDiverged, [Spoils(8), DivergenceGuard()], [])],
    ids=["between the replay and the checkpoint", "diverged"],
)
def test_a_save_that_ends_half_way_leaves_the_replay_of_the_checkpoint_before(
    tmp_path: Path, error: Any, callbacks: list[Callback], plugins: list[Any]
) -> None:
    whole = fitted_dqn(tmp_path / "whole", replay_data())
    data = replay_data()
    run = trainer(tmp_path / "part", *callbacks, RunCheckpoint(every_n_iterations=1), plugins=plugins)
    lightning.seed_everything(1, verbose=False)
    with pytest.raises(error):
        run.fit(small_dqn(data), datamodule=data)
    (last,) = (tmp_path / "part").rglob("last.ckpt")
    assert torch.load(last, weights_only=True)["global_step"] == 7
    assert len(sidecars(last)) == (1 if error is TrainingDiverged else 2)

    resumed = fitted_dqn(tmp_path / "part", replay_data(), RunCheckpoint(every_n_iterations=1), ckpt_path=last)

    assert weights_hash(resumed) == weights_hash(whole)
    assert len(sidecars(last)) == 1


class Refuses(Callback):
    """Ends a run before its first iteration has ended."""

    def on_train_batch_start(self, *_: Any) -> None:
        raise ConnectionError


def test_a_resumed_run_that_fails_in_its_first_iteration_leaves_what_it_resumed_from(tmp_path: Path) -> None:
    fitted_dqn(tmp_path, replay_data(), StopAt(5), RunCheckpoint())
    (last,) = tmp_path.rglob("last.ckpt")
    before = {path: path.read_bytes() for path in last.parent.iterdir()}

    with pytest.raises(ConnectionError):
        fitted_dqn(tmp_path, replay_data(), RunCheckpoint(), Refuses(), ckpt_path=last)
    with pytest.raises(ConfigurationError, match=r"keep data\.capacity"):
        fitted_dqn(tmp_path, replay_data(capacity=512), RunCheckpoint(), ckpt_path=last)

    assert {path: path.read_bytes() for path in last.parent.iterdir()} == before


@pytest.mark.parametrize("damage", ["truncated", "flipped", "list", "without the ring", "frames"])
def test_a_damaged_replay_is_one_sentence(tmp_path: Path, damage: str) -> None:
    fitted_dqn(tmp_path, replay_data(), StopAt(5), RunCheckpoint())
    (last,) = tmp_path.rglob("last.ckpt")
    (path,) = sidecars(last)
    state, content = torch.load(path, weights_only=True), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    ring = {**state["ring"], "frames": state["ring"]["frames"][1:]}
    wrong = {"list": [state], "without the ring": {**state, "ring": None}, "frames": {**state, "ring": ring}}
    if damage in wrong:
        torch.save(wrong[damage], path)
    else:
        path.write_bytes(content if damage == "flipped" else content[:-100])

    with pytest.raises(ConfigurationError, match=r"damaged|no replay|another shape"):
        fitted_dqn(tmp_path / "rest", replay_data(), ckpt_path=last)


@pytest.mark.parametrize("change", [{"priority_alpha": 0.6}, {"n_step": 3}, {"storage": "disk"}, {"train_freq": 8}])
def test_a_uniform_replay_is_resumed_by_one_of_other_settings(tmp_path: Path, change: dict[str, Any]) -> None:
    fitted_dqn(tmp_path, replay_data(priority_alpha=0.0), StopAt(5), RunCheckpoint())
    (last,) = tmp_path.rglob("last.ckpt")
    data = replay_data(**{"priority_alpha": 0.0, **change})

    model = fitted_dqn(tmp_path / "rest", data, StopAt(6), ckpt_path=last)

    replay = data.dataset.replay
    assert model.updates > 8
    assert int(replay.ring.size) == 20 + data.train_freq
    found = replay.sample(replay.noise(1, 4000, torch.Generator())).indices // 8
    assert found.unique().tolist() == [*range(int(replay.ring.size) + 1 - data.n_step)]


@pytest.mark.parametrize(
    "change", [{"num_envs": 16}, {"num_envs": 4, "replay_ratio": 4}, {"capacity": 320}], ids=lambda change: str(change)
)
def test_a_replay_of_another_shape_is_refused_in_a_sentence(tmp_path: Path, change: dict[str, Any]) -> None:
    settings = {"env": "CartPole-v1", "env_kwargs": None, "backend": "sync"}
    fitted_dqn(tmp_path, replay_data(**settings), StopAt(3), RunCheckpoint())
    (last,) = tmp_path.rglob("last.ckpt")

    with pytest.raises(
        ConfigurationError, match=r"is float32 \[.*\] in the file and .* in this run\): keep data\.capacity, num_envs"
    ):
        fitted_dqn(tmp_path / "rest", replay_data(**{**settings, **change}), ckpt_path=last)


class Stacked(gym.ObservationWrapper):
    """Four frames of which some are shown; `padding` stands before an episode's first, in every `every`-th episode."""

    def __init__(self, shown: list[int], padding: int | None = None, every: int = 1):
        super().__init__(Images())
        self.shown, self.padding, self.every, self.episode = shown, padding, every, 0
        self.observation_space = gym.spaces.Box(0, 255, (len(shown), 2, 2), "uint8")

    def reset(self, **kwargs: Any) -> Any:
        obs, info = self.env.reset(**kwargs)
        self.episode += 1
        padding = None if self.episode % self.every else self.padding
        self.frames = [obs if padding is None else obs * 0 + padding] * 4
        return self.observation(obs), info

    def observation(self, obs: Any) -> Any:
        self.frames = [*self.frames[1:], obs]
        return np.stack([self.frames[each] for each in self.shown])


@pytest.mark.parametrize(
    "env_kwargs",
    [
        {"shown": [1, 2, 3], "padding": 0},
        {"shown": [1, 2, 3], "padding": 0, "every": 3},
        {"shown": [0, 2, 3]},
        {"shown": [3, 2, 1]},
        {"shown": [2, 1, 3]},
    ],
    ids=["zero padding", "zero padding later", "skipping", "newest first", "permuted"],
)
def test_stacks_that_single_frames_cannot_rebuild_are_refused(env_kwargs: dict[str, Any], tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"frame_stack": 3, "train_freq": 1, "batch_size": 16}
    data = replay_data(env=f"{__name__}.Stacked", env_kwargs=env_kwargs, backend="sync", **sizes)
    with pytest.raises(ConfigurationError, match=r"not stacks that can be rebuilt from single frames .*: set it to 1"):
        trainer(tmp_path).fit(small_dqn(data), datamodule=data)


def test_gymnasiums_stacks_padded_with_zeros_are_refused_and_stored_whole_where_asked(tmp_path: Path) -> None:
    name = f"{__name__}:ZeroPadded-v0"
    stored = replay_data(env=name, env_kwargs=None, backend="sync", frame_stack=3)
    with pytest.raises(ConfigurationError, match="not stacks that can be rebuilt"):
        trainer(tmp_path).fit(small_dqn(stored), datamodule=stored)
    whole = replay_data(env=name, env_kwargs=None, backend="sync", priority_alpha=0.0)
    fitted_dqn(tmp_path, whole)
    found = whole.dataset.replay.sample(whole.dataset.replay.noise(1, 512, torch.Generator()))
    assert (found.obs[:, :, 0] == 0).flatten(2).all(-1).any()


gym.register("ZeroPadded-v0", lambda: gym.wrappers.FrameStackObservation(Images(), 3, padding_type="zero"))


def test_beta_rises_from_its_start_to_one_over_the_run(tmp_path: Path) -> None:
    data, betas = replay_data(priority_beta=0.4), {}

    class Betas(Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            betas[trainer.global_step] = float(data.dataset.replay.beta)

    fitted_dqn(tmp_path, data, Betas())

    assert len(betas) == 20
    assert all(value == pytest.approx(0.4 + 0.6 * (step - 1) / 20) for step, value in betas.items() if step > 2)
