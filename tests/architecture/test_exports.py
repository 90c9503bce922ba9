"""What the packages export for configs: one table each, the same for Python and for type checkers, free of torch."""

import ast
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
import yaml

from app.class_paths import PACKAGES, canonical_path, exported_classes, short_names
from app.cli.config_files import configs_folder, shipped_configs
from datamodules.core.exports import class_path
from tests.architecture.source import PACKAGES as ROOTS
from tests.architecture.source import ROOT, python_files

WITHOUT_TORCH = """
import sys
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
print(sorted({"torch", "lightning", "jsonargparse"} & sys.modules.keys()))
"""


def parsed(package: str) -> ast.Module:
    """The parsed `__init__` of a package."""
    return ast.parse(ROOT.joinpath(*package.split("."), "__init__.py").read_text(encoding="utf-8"))


def class_paths(config: Any) -> set[str]:
    """Every class that a configuration names."""
    if isinstance(config, dict):
        own = {config["class_path"]} if "class_path" in config else set()
        return own.union(*map(class_paths, config.values()))
    return set().union(*map(class_paths, config)) if isinstance(config, list) else set()


def test_every_package_and_a_pool_worker_start_without_torch() -> None:
    packages = {path.parent.relative_to(ROOT) for path in python_files(*ROOTS) if path.name == "__init__.py"}
    names = sorted(".".join(package.parts) for package in packages)

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *names, "datamodules.worker_pool.worker"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_every_table_of_exports_is_known_to_the_program() -> None:
    tables = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in python_files(*ROOTS)
        if path.name == "__init__.py" and "\nEXPORTS = " in path.read_text(encoding="utf-8")
    }

    assert tables == set(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_the_exports_that_python_sees(package: str) -> None:
    (checking,) = (node for node in parsed(package).body if isinstance(node, ast.If))
    imports = {
        alias.asname: node.module
        for node in checking.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }

    module = import_module(package)

    assert imports == module.EXPORTS
    assert module.EXPORTS.keys() <= set(dir(module))
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        module.Nothing  # noqa: B018


def test_an_exported_class_has_one_path() -> None:
    paths = short_names()

    assert len(paths) == sum(len(import_module(package).EXPORTS) for package in PACKAGES), "short names are unique"
    for kind, path in zip(exported_classes(), paths.values(), strict=True):
        assert class_path(kind) == path
        assert canonical_path(f"{kind.__module__}.{kind.__name__}") == canonical_path(path) == path


def test_other_paths_stay_as_they_are() -> None:
    for path in ("torch.nn.Tanh", "PPO", "my_module.PPO", "modules.ppo.ppo.PPOBatch", ""):
        assert canonical_path(path) == path


@pytest.mark.parametrize("name", shipped_configs())
def test_shipped_configs_use_the_short_paths(name: str) -> None:
    paths = class_paths(yaml.safe_load((configs_folder() / name).read_text(encoding="utf-8")))

    ours = {path for path in paths if path.partition(".")[0] in ROOTS}

    others = ours - set(short_names().values())
    assert ours and not others, f"use the short path of an exported class, or export it: {others}"
