"""The files of the reading order are those that an iteration runs, and no more than a person reads."""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from lightning.pytorch import Callback

from modules.sac_options.sac_options import SACOptions
from tests.docs.pages import ROOT, text
from tests.oracles.sac import box_data, small_sac
from tests.support.replay_fixtures import replay_data, small_dqn
from tests.support.small_runs import cartpole_data, small_ppo, trainer

ORDER = text(ROOT / "docs" / "concepts" / "iteration.md").partition("## Reading order")[2]
"""A paragraph for each algorithm: its name and the number of files, shared files by name, and a table of its own."""

RUNS: dict[str, Any] = {
    "PPO": (cartpole_data, small_ppo, 9),
    "DQN": (replay_data, small_dqn, 11),
    "SAC with options": (
        lambda: box_data(total_env_steps=640, learning_starts=64, n_step=1),
        lambda data: small_sac(data, kind=SACOptions),
        15,
    ),
}
"""Data, model, and the most files that following one iteration may take."""


def reading_order(algorithm: str) -> set[str]:
    """The files to read for an algorithm."""
    part = re.split(r"^(?=[A-Z][\w ]+, \d+ files)", ORDER, flags=re.MULTILINE)
    (own,) = [each for each in part if each.startswith(f"{algorithm}, ")]
    paths = {Path(path).name: path for path in re.findall(r"`(\w+/[\w/]+\.py)`", ORDER)}
    return {name if "/" in name else paths[name] for name in re.findall(r"`([\w/]+\.py)`", own)}


class Files(Callback):
    """Notes the files of the package whose functions run in two iterations."""

    def __init__(self) -> None:
        self.paths: set[str] = set()

    def note(self, frame: FrameType, *_: object) -> None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT):
            self.paths.add(path.relative_to(ROOT).as_posix())

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        sys.setprofile(self.note if 4 <= trainer.global_step < 6 else None)

    def teardown(self, *_: Any, **__: Any) -> None:
        sys.setprofile(None)


@pytest.mark.parametrize("algorithm", RUNS)
def test_an_iteration_runs_the_files_of_the_reading_order(algorithm: str, tmp_path: Path) -> None:
    make_data, make_model, bar = RUNS[algorithm]
    data, files = make_data(), Files()
    trainer(tmp_path, files, manual_backward=False).fit(make_model(data), data)

    listed = reading_order(algorithm)

    assert f"{algorithm}, {len(listed)} files" in ORDER and len(listed) <= bar
    assert listed - files.paths == set()
