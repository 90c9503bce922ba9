"""Every test has one tier by its folder."""

from pathlib import Path

import pytest

from tests.conftest import CONTRACTS, TESTS, UNITS, tier_of


@pytest.mark.parametrize("folder", [*UNITS, *CONTRACTS])
def test_the_folders_of_the_tiers_exist(folder: str) -> None:
    assert [*(TESTS / folder).glob("test_*.py")] or [*(TESTS / folder).rglob("test_*.py")]


@pytest.mark.parametrize(
    ("file", "tier"),
    [
        ("modules/functional/dynamics/test_elbo.py", "unit"),
        ("contracts/test_vector_envs.py", "contracts"),
        ("modules/ppo/test_ppo.py", "integration"),
        ("datamodules/envs_of_mine/test_env.py", "integration"),
    ],
)
def test_a_test_has_the_tier_of_its_folder(file: str, tier: str) -> None:
    assert tier_of(TESTS / Path(file)) == tier
