"""What a run saves of its settings is a config: an algorithm's defaults are written out and taken back."""

import sys
from pathlib import Path

import pytest

import app.cli.main  # noqa: F401  (here, so that Lightning's log handler keeps a stream that outlives one test)
from app.__main__ import main

ALGORITHMS = {
    "modules.PPO": "datamodules.RolloutDataModule",
    "modules.PQN": "datamodules.RolloutDataModule",
    "modules.DQN": "datamodules.ReplayDataModule",
    "modules.SAC": "datamodules.ReplayDataModule",
    "modules.SACOptions": "datamodules.ReplayDataModule",
}
OPTIONS = {
    "modules.SACOptions": [
        "--model.controller",
        "modules.OptionController",
    ]
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_config_of_defaults_starts_again(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["app", "fit", *words, "--print_config"])
        with pytest.raises(SystemExit, match="0"):
            main()
        return capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    options = OPTIONS.get(algorithm, [])
    saved = printed("--model", algorithm, "--data", ALGORITHMS[algorithm], "--data.env", "CartPole-v1", *options)
    Path("saved.yaml").write_text(saved)

    assert "Unable to serialize" not in saved
    assert printed("--config", "saved.yaml") == saved
