"""Without the package, its environment says how to install it."""

import importlib.util

import pytest

from datamodules.core.errors import ConfigurationError
from datamodules.envs.mettagrid.vector_env import MettaGridVectorEnv
from tests.architecture.source import ROOT


@pytest.mark.skipif(importlib.util.find_spec("mettagrid") is not None, reason="the package is installed")
def test_a_missing_package_is_one_sentence() -> None:
    with pytest.raises(ConfigurationError, match=r"needs the package mettagrid.*make mettagrid"):
        MettaGridVectorEnv(2)


def releases(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return {line.partition("==")[0].lower(): line for line in lines if line and not line.startswith("#")}


def test_its_constraints_are_the_projects_except_for_what_it_needs() -> None:
    own, other = releases("constraints.txt"), releases("constraints-mettagrid.txt")

    assert own.keys() <= other.keys()
    assert {name for name in own if own[name] != other[name]} == {"python-dateutil"}
    assert "mettagrid==0.26.22" in other.values()
