"""The documentation is true: its listings run, its commands parse, its links resolve, its names exist."""

import importlib
import inspect
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from gymnasium.utils.env_checker import check_env
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import app.cli.main  # noqa: F401  (first, so that Lightning's log handler keeps a stream that outlives one test)
import callbacks
from app import docs
from app.__main__ import main
from app.cli.config_files import shipped_configs
from app.metrics import PPO, SECTIONS
from app.verbs import VERBS
from datamodules.envs.horde import Horde
from datamodules.wrappers.select_observation import SelectObservation
from modules.networks.mlp import MLP
from modules.sac_options.checkpoint_option import CheckpointOption
from tests.docs.pages import (
    PAGES,
    REFERENCE,
    ROOT,
    WRITTEN,
    anchors,
    commands,
    configs,
    links,
    listings,
    name,
    prose,
    shortened,
    text,
)
from tests.docs.test_config_listings import EVIDENCE

DOCS = ROOT / "docs"
COMMANDS = commands()
APP = [command.removeprefix("python -m app ") for command in COMMANDS if command.startswith("python -m app ")]
TRAINED = [command for command in APP if re.match(r"fit .*--trust my_\w+$", command)]
LIGHTNING = [command for command in APP if command.split()[0] in ("fit", "validate", "test", "predict")]
LISTED = {f"fit --config {config} --config {name}" for name, (config, _) in EVIDENCE.items()}
RUN_ELSEWHERE = {*TRAINED, *LISTED, *(f"fit --config {name}" for name in shipped_configs())}
"""Commands that other tests run: those of a user below, in test_config_listings.py and in tests/contracts."""
PARSED = sorted({*LIGHTNING} - RUN_ELSEWHERE)
OTHERS = [command for command in APP if command not in LIGHTNING]
SETTINGS = {"data.num_envs": 8, "data.eval_episodes": 2, "trainer.max_steps": 2, "trainer.log_every_n_steps": 1}
SHORT = [f"--{key}={value}" for key, value in SETTINGS.items()] + ["--trainer.accelerator=cpu"]
BANNED = ("aloud", "whoever", "nobody", "of now")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a user who copied every listing."""
    for file, listing in (listings() | configs()).items():
        (tmp_path / file).write_text(shortened(listing))
    (tmp_path / "mine.yaml").write_text("seed_everything: 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LEYDEN_TRUST", "")
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    return tmp_path


def logged(folder: Path) -> set[str]:
    """Tags of the scalars of the only run in the folder."""
    (run,) = folder.glob("runs/*/version_0")
    return set(EventAccumulator(str(run)).Reload().Tags()["scalars"])


def run(command: str, monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    """Run a command of the program in this process."""
    monkeypatch.setattr(sys, "argv", ["app", *shlex.split(command), *more])
    main()


@pytest.mark.parametrize("command", TRAINED, ids=[command.split()[-1] for command in TRAINED])
def test_what_a_user_brings_trains(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(command, monkeypatch, *SHORT)

    assert {"train/policy_loss", "eval/return_mean"} <= logged(folder)


AFTER_A_RUN = {"act.py", "act_batch.py", "run_onnx.py", "run_torch_export.py"}
SCRIPTS = sorted({*listings()} - {f"{command.split()[-1]}.py" for command in TRAINED} - AFTER_A_RUN)


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_run(script: str, folder: Path) -> None:
    runpy.run_path(script, run_name="__main__")


def test_an_agent_acts_after_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fit --config ppo_cartpole.yaml", monkeypatch, "--data.total_env_steps=512", *SHORT[1:2], SHORT[-1])
    capsys.readouterr()

    runpy.run_path("act.py", run_name="__main__")
    assert "return " in capsys.readouterr().out
    runpy.run_path("act_batch.py", run_name="__main__")
    assert "Agent(PPO of" in capsys.readouterr().out


def test_the_environment_keeps_gymnasiums_contract(folder: Path) -> None:
    scope: dict[str, type] = {}
    exec(listings()["my_env.py"], scope)

    check_env(scope["Corridor"](), skip_render_check=True)


@pytest.mark.parametrize("index", range(len(PARSED)))
def test_commands_of_lightnings_verbs_parse(index: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.cli.main.LeydenCLI._parse_ckpt_path", lambda _: sys.exit(0))  # settings were parsed

    with pytest.raises(SystemExit) as ended:
        run(PARSED[index], monkeypatch)

    assert not ended.value.code, PARSED[index]


@pytest.mark.parametrize("index", range(len(OTHERS)))
def test_commands_of_other_verbs_parse(index: int) -> None:
    verb, *words = shlex.split(re.sub(r" --trust \S+", "", OTHERS[index]))  # every verb takes it
    assert verb in VERBS
    if verb not in docs.PARSERS:
        return

    options, rest = docs.PARSERS[verb]().parse_known_args(words)

    assert not rest or verb in ("diagnose", "verify")  # they take the settings of fit too
    assert set(getattr(options, "config", None) or []) <= set(shipped_configs())


def test_other_commands_name_what_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", text(ROOT / "Makefile"), re.MULTILINE))
    extras = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]

    for command in COMMANDS:
        if command.startswith("make "):
            assert command.split()[1] in targets, command
        if named := re.search(r"\.\[([\w,]+)\]|EXTRAS=([\w,]+)", command):
            assert {*(named[1] or named[2]).split(",")} <= {*extras}, command


@pytest.mark.parametrize("page", PAGES, ids=[name(page) for page in PAGES])
def test_links_resolve(page: Path) -> None:
    for target in links(page):
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), f"{name(page)} links to {target}"
        assert DOCS not in page.parents or DOCS in linked.parents, f"{name(page)} links to {target}, not on the site"
        assert not anchor or anchor in anchors(linked), f"{name(page)} links to {target}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=[name(page) for page in PAGES])
def test_pages_are_short(page: Path) -> None:
    limit = 90 if page.name == "README.md" else 200 if REFERENCE in page.parents else 150

    assert len(text(page).splitlines()) <= limit, f"split {name(page)}: at most {limit} lines"


@pytest.mark.parametrize("page", WRITTEN, ids=[name(page) for page in WRITTEN])
def test_pages_name_only_what_exists(page: Path) -> None:
    for path in re.findall(
        r"`((?:app|callbacks|datamodules|modules|configs|tests|examples|docs)/[\w./]*)`", prose(page)
    ):
        assert "name" in Path(path).parts[-1] or (ROOT / path).exists(), f"{name(page)} names {path}"
    for dotted in re.findall(r"`((?:callbacks|datamodules|modules)(?:\.\w+)+)`", prose(page)):
        assert exists(dotted), f"{name(page)} names {dotted}"
    for config in re.findall(r"`((?:ppo|dqn|pqn|sac|dynamics)_\w+\.yaml)`", prose(page)):
        assert config in shipped_configs(), f"{name(page)} names {config}"


def exists(dotted: str) -> bool:
    """Return whether a dotted path is a module or something in one."""
    try:
        importlib.import_module(dotted)
    except ImportError:
        module, _, attribute = dotted.rpartition(".")
        return bool(module) and hasattr(importlib.import_module(module), attribute)
    return True


@pytest.mark.parametrize("page", PAGES, ids=[name(page) for page in PAGES])
def test_pages_avoid_banned_words(page: Path) -> None:
    said = [word for word in BANNED if re.search(rf"\b{word}\b", prose(page), re.IGNORECASE)]

    assert page.name == "CONTRIBUTING.md" or not said, f"{name(page)} says {said}"


def test_the_reference_pages_are_those_of_the_code() -> None:
    stale = [file for file, page in docs.pages().items() if not equal(REFERENCE / file, page)]
    strangers = {path.relative_to(REFERENCE).as_posix() for path in REFERENCE.rglob("*.md")} - docs.pages().keys()

    assert not stale and not strangers, f"run `python -m app docs`: {stale}; remove {strangers}"


def test_every_setting_has_a_help_text_of_its_own() -> None:
    for classes in docs.configurable().values():
        for cls in classes:
            rows = [*docs.setting_rows(cls)]
            names = {row[0].strip("`") for row in rows}
            for setting, _, _, meaning in rows:
                assert meaning, f"{cls.__module__}.{cls.__name__} does not say what {setting} is"
                others = [other for other in names - {setting.strip("`")} if re.search(rf"(^|\s){other}: ", meaning)]
                assert not others, f"{cls.__name__}: give {others} lines of their own, after {setting}"


def test_arguments_that_a_config_must_set_are_in_the_reference() -> None:
    cases = {CheckpointOption: ["checkpoint", "option"], SelectObservation: ["indices"], MLP: []}

    for cls, names in cases.items():
        assert [name.strip("`") for name, _, default, _ in docs.setting_rows(cls) if default == "required"] == names


def equal(path: Path, page: str) -> bool:
    """Return whether a file holds a page."""
    return path.is_file() and text(path) == page


def test_every_exported_callback_is_in_the_guide() -> None:
    guide = (DOCS / "guides" / "callbacks.md").read_text(encoding="utf-8")

    missing = [each for each in callbacks.EXPORTS if f"`callbacks.{each}`" not in guide]

    assert not missing, f"name {missing} in docs/guides/callbacks.md"


def test_the_table_of_horde_has_every_argument_and_its_default() -> None:
    section = (DOCS / "guides" / "device_environments.md").read_text(encoding="utf-8").split("## ")[4]
    assert section.startswith("Horde")
    rows = [row.split(" | ")[:2] for row in section.splitlines() if row.startswith("| `")]

    listed = {name.strip("`| "): float(value) for names, values in rows for name, value in pairs(names, values)}

    assert listed == {each.name: each.default for each in inspect.signature(Horde).parameters.values()}


def pairs(names: str, values: str) -> Iterator[tuple[str, str]]:
    """Names and defaults of a row that may hold several, with commas between."""
    return zip(names.split(", "), values.split(", "), strict=True)


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    site = text(ROOT / "mkdocs.yml")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES if ROOT / "docs" in page.parents]

    missing = [page for page in pages if f" {page}\n" not in site and not page.startswith("adr/")]

    assert not missing, f"add these pages to mkdocs.yml: {missing}"


def test_every_decision_is_in_the_index() -> None:
    index = ROOT / "docs" / "adr" / "index.md"
    decisions = {page.name for page in index.parent.glob("[0-9]*.md")}

    assert decisions == {link for link in links(index) if link[0].isdigit()}


def test_the_metrics_of_ppo_are_exactly_what_a_run_logs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("fit --config ppo_fast.yaml", monkeypatch, *SHORT)

    assert logged(folder) == {tag for tags, _, _ in PPO.rows for tag in tags.split()}


@pytest.mark.parametrize(
    "command",
    [
        "dqn_cartpole.yaml --data.learning_starts=64 --data.eval_episodes=2",
        "pqn_snake.yaml --data.num_envs=8 --data.eval_episodes=2 --data.eval_max_steps=64",
        "sac_pendulum.yaml --data.learning_starts=64 --data.eval_episodes=2",
        "sac_options_fourrooms.yaml --data.learning_starts=64 --data.eval_episodes=2",
        "dynamics_duffing.yaml",
    ],
    ids=["dqn", "pqn", "sac", "sac_options", "dynamics"],
)
def test_every_tag_that_an_algorithm_logs_is_documented(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(f"fit --config {command}", monkeypatch, "--trainer.max_steps=8", "--trainer.log_every_n_steps=1", SHORT[-1])
    reported = r"(rollout|eval)/\w+_(mean|max)"  # by the environment, at the end of an episode
    known = [reported] + [
        tag.replace("N", r"\d+") for section in SECTIONS for tags, _, _ in section.rows for tag in tags.split()
    ]

    unknown = [tag for tag in logged(folder) if not any(re.fullmatch(pattern, tag) for pattern in known)]

    assert not unknown, f"document these tags in app/metrics.py: {unknown}"
