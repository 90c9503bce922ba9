"""Names that say what a thing is, folders that say what lives in them, and no trace of anybody's machine."""

import ast
import re
import tomllib

from tests.architecture.source import FOLDERS, PACKAGES, ROOT, facts, python_files, text_files, where

EMPTY_WORDS = {"common", "handler", "handlers", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}
LOCAL_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|tmp|home|opt|Users)/")


def test_no_module_has_an_empty_name() -> None:
    empty = [where(path) for path in python_files(*FOLDERS) if EMPTY_WORDS & set(path.stem.lower().split("_"))]

    assert not empty, f"name these files after what is in them: {empty}"


def test_every_folder_says_what_lives_there() -> None:
    folders = {path.parent for path in python_files(*FOLDERS)}

    silent = [
        str(folder.relative_to(ROOT))
        for folder in sorted(folders)
        if not (folder / "__init__.py").exists() or not facts(folder / "__init__.py").docstring
    ]

    assert not silent, f"write what lives there, and how to add one more, in the __init__.py docstring of {silent}"


def test_every_package_is_installed() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]

    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in python_files(*PACKAGES)}

    assert set(named) == folders | {"configs"}, "name every folder of code in pyproject.toml"


def test_only_the_program_prints() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in python_files(*{*PACKAGES} - {"app"})}
    printing = [
        where(path, node.lineno)
        for path, text in texts.items()
        if "print" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]

    assert not printing, f"log or return it instead: {printing}"


def test_no_file_names_a_path_of_one_machine() -> None:
    found = [
        where(path, number)
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if LOCAL_PATH.search(line)
    ]

    assert not found, f"use a path relative to the project, or pytest's tmp_path: {found}"
