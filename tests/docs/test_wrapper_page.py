"""The lists of wrappers in the documentation parse."""

import sys
import textwrap
from pathlib import Path

import pytest
import yaml

import app.cli.main  # noqa: F401  (first, so that Lightning's log handler keeps a stream that outlives one test)
from app.__main__ import main
from tests.docs.pages import blocks

LISTS = [yaml.safe_load(textwrap.dedent(block)) for block in blocks("yaml") if "wrappers:" in block]


@pytest.mark.parametrize("index", range(3))
def test_listed_wrappers_parse(index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = LISTS[index].get("data", {}).get("init_args") or LISTS[index]
    given = {name: settings[name] for name in ("wrappers", "train_wrappers")}
    (tmp_path / "more.yaml").write_text(yaml.safe_dump({"data": {"init_args": given}}))
    monkeypatch.setattr(sys, "argv", ["app", "fit", "--config", "dqn_pong.yaml"])
    sys.argv += ["--config", str(tmp_path / "more.yaml"), "--print_config"]

    with pytest.raises(SystemExit) as ended:
        main()

    assert not ended.value.code
