"""Who may import whom: the contracts of pyproject.toml, and what each package may take from outside."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.source import FOLDERS, PACKAGES, ROOT, facts, python_files, where

OUTSIDE = {
    "modules/functional": {"jaxtyping", "torch"},
    "modules/networks": {"jaxtyping", "torch"},
    "modules": {"jaxtyping", "lightning", "torch", "torchmetrics"},
    "datamodules": {
        "PIL",
        "envpool",
        "gymnasium",
        "jaxtyping",
        "lightning",
        "mettagrid",
        "minari",
        "numpy",
        "pandas",
        "torch",
    },
    "callbacks": {
        "PIL",
        "imageio",
        "imageio_ffmpeg",
        "lightning",
        "matplotlib",
        "numpy",
        "pynvml",
        "rich",
        "tensorboard",
        "torch",
        "tqdm",
    },
}


def test_import_contracts_hold() -> None:
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache"]  # in process it would disable our loggers

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("folder", OUTSIDE)
def test_packages_take_only_what_the_design_allows_from_outside(folder: str) -> None:
    allowed = OUTSIDE[folder] | set(PACKAGES) | sys.stdlib_module_names

    strangers = {
        f"{where(path)} imports {name}"
        for path in python_files(folder)
        for name in facts(path).imported
        if name.split(".")[0] not in allowed
    }

    assert not strangers, f"{folder} may import {sorted(OUTSIDE[folder])} from outside: {sorted(strangers)}"


def test_imports_are_absolute() -> None:
    relative = [where(path, line) for path in python_files(*FOLDERS) for line in facts(path).relative_imports]

    assert not relative, f"name the package: {relative}"


def test_the_program_and_the_data_never_import_tests() -> None:
    importing = [
        where(path) for path in python_files(*PACKAGES) if any(n.startswith("tests.") for n in facts(path).imported)
    ]

    assert not importing


def test_every_algorithm_stands_in_the_contract_that_keeps_algorithms_apart() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract.get("containers") == ["modules"])

    algorithms = {
        path.relative_to(ROOT / "modules").parts[0]
        for path in (ROOT / "modules").rglob("*.py")
        if "modules.base.algorithm.Algorithm" in facts(path).imported
    }

    assert {"ppo", "dqn", "sac"} <= algorithms <= {*re.findall(r"\w+", " ".join(layers))}, "add it to pyproject.toml"
