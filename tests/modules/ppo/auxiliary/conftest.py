"""Teachers that the tests of auxiliary losses share."""

from pathlib import Path

import pytest

from tests.support.auxiliary_runs import every_loss


@pytest.fixture(scope="session")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the checkpoints that `every_loss` names."""
    folder = tmp_path_factory.mktemp("teachers")
    every_loss(folder)
    return folder
