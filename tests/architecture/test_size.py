"""Limit files to 400 lines, functions to 50 lines of code and folders of the packages to 10 files."""

import ast
from collections import Counter

from tests.architecture.source import FOLDERS, PACKAGES, ROOT, facts, facts_of, python_files, where

FILE_LINES = 400
FUNCTION_LINES = 50
FOLDER_FILES = 10
"""Python files of a folder, beside its `__init__.py`."""


def test_files_have_at_most_400_lines() -> None:
    lengths = {where(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files(*FOLDERS)}

    too_long = {place: lines for place, lines in lengths.items() if lines > FILE_LINES}

    assert not too_long, f"split these files along their meaning: {too_long}"


def test_functions_have_at_most_50_lines() -> None:
    lengths = {
        f"{where(path, function.line)} {function.name}": function.code_lines
        for path in python_files(*FOLDERS)
        for function in facts(path).functions
    }

    too_long = {place: lines for place, lines in lengths.items() if lines > FUNCTION_LINES}

    assert not too_long, f"give a step of these functions its own name: {too_long}"


def test_folders_of_the_packages_have_at_most_10_files() -> None:
    files = [path for path in python_files(*PACKAGES) if path.name != "__init__.py"]
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in files)

    too_full = {folder: count for folder, count in counts.items() if count > FOLDER_FILES}

    assert not too_full, f"group the files of these folders by their role: {too_full}"


def test_a_docstring_does_not_count_toward_its_function() -> None:
    body = '\n    """One.\n\n    Two.\n    """\n    return 1\n'

    (function,) = facts_of(ast.parse(f"def f():{body}")).functions

    assert function.code_lines == 2
