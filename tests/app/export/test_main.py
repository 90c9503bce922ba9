"""`export` writes the decision of the best checkpoint with its card, and runs without Leyden."""

import importlib.util
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from app.export import comparison
from app.export.comparison import Difference
from tests.app.conftest import Run
from tests.docs.pages import listings

HAS_ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))


def test_a_program_and_its_card_are_written(trained: Path, run: Run) -> None:
    said = run("export", "--format", "torch-export", "--observations", "50")

    folder = trained / "export"
    program = torch.export.load(folder / "policy.pt2").module()
    _, head, text = (folder / "README.md").read_text().split("---\n", 2)
    card, results = yaml.safe_load(head), json.loads((folder / "results.json").read_text())
    assert "50 observations" in said.out and said.code == 0
    assert program({"obs": torch.zeros(1, 4)})["action"].shape == (1,)
    assert {path.name for path in folder.iterdir()} == {
        *("policy.pt2", "policy.pt2.json", "README.md", "results.json", "curves.png", "config.yaml")
    }
    assert card["library_name"] == "leyden" and "CartPole-v1" in card["tags"]
    assert card["model-index"][0]["results"][0]["metrics"][0]["type"] == "mean_reward"
    assert results["eval/episodes"] == 2 and "modules.PPO" in text and "| torch |" in text
    assert "A state begins" not in text


def test_the_program_runs_as_the_page_says(trained: Path, run: Run, folder: Path) -> None:
    assert run("export", "--format", "torch-export", "--observations", "50").code == 0
    (folder / "run_torch_export.py").write_text(listings()["run_torch_export.py"])

    assert runpy.run_path("run_torch_export.py")["total"] > 0


@pytest.mark.skipif(not HAS_ONNX, reason="needs the extra `export`")
def test_the_onnx_file_runs_without_leyden(trained: Path, run: Run, folder: Path) -> None:
    assert run("export", "--observations", "50").code == 0
    (folder / "run_onnx.py").write_text(listings()["run_onnx.py"])

    done = subprocess.run([sys.executable, "run_onnx.py"], cwd=folder, capture_output=True, text=True, timeout=110)

    assert done.stdout.startswith("return "), done.stderr


@pytest.mark.skipif(HAS_ONNX, reason="the extra `export` is installed")
def test_missing_packages_are_named(trained: Path, run: Run) -> None:
    said = run("export", "--observations", "5")

    assert said.code == 2 and "pip install -e '.[export]'" in said.err


def test_a_file_that_decides_otherwise_is_removed(trained: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "compare", lambda *args: Difference(5, 2e-3, 1))

    said = run("export", "--format", "torch-export", "--observations", "5")

    assert said.code == 1 and "Not exported" in said.out and "other discrete actions 1" in said.out
    assert not [*(trained / "export").glob("policy*")]


def test_what_cannot_be_exported_is_said_in_one_sentence(folder: Path, run: Run) -> None:
    for words, sentence in {
        ("--ckpt_path", "no.ckpt"): "There is no checkpoint",
        ("--observations", "1"): "at least 2",
    }.items():
        said = run("export", *words)
        assert said.code == 2 and sentence in said.err
