"""The configs of the guides train: what they list acts in a run of a few iterations."""

import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import app.cli.main  # noqa: F401  (first, so that Lightning's log handler keeps a stream that outlives one test)
from app.__main__ import main
from tests.docs.pages import configs

SHORT = ["--data.num_envs=16", "--data.eval_episodes=2", "--trainer.accelerator=cpu", "--trainer.log_every_n_steps=1"]
TEACHER = "runs/ppo_fast/version_0/checkpoints/last.ckpt"
EVIDENCE = {
    "kickstart.yaml": ("ppo_fast.yaml", {"kickstart/action_loss", "kickstart/value_loss", "kickstart/share"}),
    "contrastive.yaml": ("ppo_cartpole_memory.yaml", {"contrastive/loss", "contrastive/accuracy"}),
    "l2_init.yaml": ("ppo_fast.yaml", {"l2_init/distance"}),
    "analysis.yaml": ("ppo_fast.yaml", {"weights/actor.linear/effective_rank", "gradients/norm", "system/memory_mib"}),
}


def fit(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """Run `fit` in this process."""
    monkeypatch.setattr(sys, "argv", ["app", "fit", *words, *SHORT])
    main()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a user who copied every config."""
    for file, listing in configs().items():
        (tmp_path / file).write_text(listing.replace("every_n_iterations: 100}", "every_n_iterations: 2}"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", EVIDENCE)
def test_a_listed_config_trains_and_logs(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, tags = EVIDENCE[name]
    if name == "kickstart.yaml":
        fit(monkeypatch, "--config", "ppo_fast.yaml", "--trainer.max_steps=1")
        assert (folder / TEACHER).is_file()

    fit(monkeypatch, "--config", config, "--config", name, "--trainer.max_steps=3")

    run = max(folder.glob("runs/*/version_*"))
    assert tags <= set(EventAccumulator(str(run)).Reload().Tags()["scalars"])


@pytest.mark.usefixtures("forked_programs")
def test_listed_intervals_act(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (folder / "intervals.yaml").read_text()
    for before, after in (("25}", "2}"), ("train_steps: 100", "train_steps: 3"), ("evaluations: 2", "evaluations: 99")):
        assert before in text
        text = text.replace(before, after)
    (folder / "intervals.yaml").write_text(text)

    fit(monkeypatch, "--config", "ppo_fast.yaml", "--config", "intervals.yaml", "--trainer.max_steps=7")

    (checkpoints,) = folder.glob("runs/*/version_0/checkpoints")
    assert {"last.ckpt", "step=3.ckpt", "step=6.ckpt"} <= {path.name for path in checkpoints.iterdir()}
