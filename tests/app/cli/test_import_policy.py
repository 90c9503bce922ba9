import os
from pathlib import Path

import pytest
import torch

from app.cli.import_policy import untrusted_environments, why_untrustworthy
from datamodules.core.exports import ALLOWED, may_import
from tests.app.conftest import EXPERIMENT, Run

EVIL_CLASSES = {
    "a shell command as the model": ("tests.support.fake_algorithm.Walker", "os.system"),
    "a process as a callback": ("lightning.pytorch.callbacks.ModelCheckpoint", "subprocess.Popen"),
    "eval as the logger": ("lightning.pytorch.loggers.CSVLogger", "builtins.eval"),
    "a module of somebody's as the model": ("tests.support.fake_algorithm.Walker", "evil_module.Model"),
    "a module of somebody's as the data": ("tests.support.fake_algorithm.Field", "evil_module.Data"),
    "a way around through our own imports": ("tests.support.fake_algorithm.Field", "datamodules.base.torch.load"),
}


class Evil:
    def __reduce__(self) -> tuple:
        return os.system, ("touch marker",)


@pytest.fixture
def evil_module(folder: Path) -> Path:
    (folder / "evil_module.py").write_text("import pathlib\npathlib.Path('marker').touch()\n")
    return folder


@pytest.mark.parametrize(("good", "evil"), EVIL_CLASSES.values(), ids=EVIL_CLASSES)
@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_a_malicious_config_never_runs(run: Run, evil_module: Path, verb: str, good: str, evil: str) -> None:
    (evil_module / "evil.yaml").write_text(EXPERIMENT.replace(good, evil))

    outcome = run(verb, "--config", "evil.yaml")

    assert outcome.code == 2
    assert evil.rpartition(".")[2] in outcome.err
    assert not (evil_module / "marker").exists()


@pytest.mark.parametrize("words", [("--model.network", "os.system"), ("--trainer.profiler", "evil_module.Profiler")])
def test_a_malicious_callable_on_the_command_line_never_runs(run: Run, evil_module: Path, words: tuple) -> None:
    outcome = run("fit", "--config", "small.yaml", *words)

    assert outcome.code == 2
    assert not (evil_module / "marker").exists()


@pytest.mark.parametrize(
    "env", ["evil_module:Env-v0", "evil_module.Env", "evil_module:ns/Env-v0", "evil_module:1", "évil.Thing"]
)
def test_an_environment_of_an_untrusted_module_is_never_imported(run: Run, evil_module: Path, env: str) -> None:
    (evil_module / "evil.yaml").write_text(EXPERIMENT.replace("CartPole-v1", env))

    outcome = run("fit", "--config", "evil.yaml")

    assert outcome.code == 2
    assert f"add `--trust {env.partition(':')[0].partition('.')[0]}`" in outcome.err
    assert not (evil_module / "marker").exists()


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_a_malicious_checkpoint_never_runs(run: Run, folder: Path, verb: str) -> None:
    torch.save({"state_dict": {}, "hyper_parameters": Evil()}, folder / "evil.ckpt")

    outcome = run(verb, "--config", "small.yaml", "--ckpt_path", "evil.ckpt")

    assert (outcome.code, "evil.ckpt is refused" in outcome.err) == (2, True)
    assert not (folder / "marker").exists()


def test_trust_opens_the_users_own_module_in_the_working_directory(run: Run, folder: Path) -> None:
    (folder / "my_module.py").write_text(
        "from tests.support.fake_algorithm import Walker\nclass Mine(Walker):\n    pass\n"
    )

    refused = run("fit", "--config", "small.yaml", "--model", "my_module.Mine")
    accepted = run("fit", "--config", "small.yaml", "--model", "my_module.Mine", "--trust", "my_module")

    assert (refused.code, accepted.code) == (2, 0)
    assert "add `--trust my_module`" in refused.err


def test_weights_only_is_no_option(run: Run) -> None:
    assert run("test", "--config", "small.yaml", "--weights_only", "false").code == 2


@pytest.mark.parametrize("path", ["torch.nn.Tanh", "modules.PPO", "gymnasium.envs.toy_text"])
def test_an_allowed_module_may_be_imported(path: str) -> None:
    assert may_import(path, ALLOWED)


@pytest.mark.parametrize("path", ["torch.load", "torch.hub", "torchvision", "gymnasium.envs.registration.make"])
def test_the_most_specific_entry_decides(path: str) -> None:
    assert not may_import(path, ALLOWED)


def test_ordinary_strings_are_no_environments() -> None:
    config = {"env": "CartPole-v1", "device": "cuda:0", "list": ["ALE/Pong-v5", "00:12:00:00"], "file": "runs/a.b"}

    assert not list(untrusted_environments(config, ()))


def test_environment_ids_are_found_wherever_they_hide() -> None:
    config = {"env_kwargs": {"inner": [{"id": "evil:X-v0"}]}}

    assert list(untrusted_environments(config, ())) == ["evil:X-v0"]
    assert not list(untrusted_environments(config, ("evil",)))


def test_trust_refuses_what_could_run_anything() -> None:
    assert why_untrustworthy("my_module") is None
    assert why_untrustworthy("os") is not None
