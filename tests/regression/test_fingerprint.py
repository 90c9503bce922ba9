"""The fingerprint of a run: equal when repeated, different for another seed."""

from pathlib import Path

import lightning
import pytest

from tests.regression import fingerprint


def test_a_run_repeats_its_fingerprint(tmp_path: Path) -> None:
    assert fingerprint.fit("dqn_c51", tmp_path / "one") == fingerprint.fit("dqn_c51", tmp_path / "two")


def test_another_seed_has_another_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = fingerprint.fit("ppo_discrete", tmp_path / "one")
    seed_everything = lightning.seed_everything
    monkeypatch.setattr(lightning, "seed_everything", lambda seed, **settings: seed_everything(seed + 1, **settings))

    assert fingerprint.fit("ppo_discrete", tmp_path / "two") != once
