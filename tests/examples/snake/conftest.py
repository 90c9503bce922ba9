from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "snake"


@pytest.fixture(autouse=True)
def inside_the_folder(monkeypatch: pytest.MonkeyPatch):
    """Scripts import one another by bare names, as they do when started from their folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
