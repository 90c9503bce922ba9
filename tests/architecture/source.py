"""The project's files, as the rules read them."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("app", "callbacks", "datamodules", "modules")
FOLDERS = (*PACKAGES, "configs", "examples", "tests")
TEXTS = ("*.md", "*.toml", "*.txt", "*.yaml", "Makefile", "LICENSE", ".gitignore", ".ci/*", "configs/*.yaml")


def python_files(*folders: str) -> list[Path]:
    """Every Python file below the folders, as absolute paths in a fixed order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def text_files() -> list[Path]:
    """Everything a reader of the project sees: code, configs, documents and the files that build it."""
    return python_files(*FOLDERS) + sorted(path for pattern in TEXTS for path in ROOT.glob(pattern) if path.is_file())


def where(path: Path, line: int = 1) -> str:
    """A place in the project, the way editors and terminals open it."""
    return f"{path.relative_to(ROOT)}:{line}"


class Function(NamedTuple):
    """A function, with its lines of code: from `def` to the end of the body, without the docstring."""

    line: int
    name: str
    code_lines: int


class Facts(NamedTuple):
    """What the rules ask about a file; its syntax tree is not kept, which every collection of garbage would visit."""

    docstring: str | None
    imported: frozenset[str]
    """Full dotted names of what the file imports, anywhere in it: `from a import b` gives `a.b`."""
    relative_imports: tuple[int, ...]
    """Their lines."""
    functions: tuple[Function, ...]


@cache
def facts(path: Path) -> Facts:
    """The facts of a file."""
    return facts_of(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))


def facts_of(module: ast.Module) -> Facts:
    """The facts of a parsed file."""
    imported, relative, functions = set(), [], []
    for node in statements(module):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.module:
                imported |= {f"{node.module}.{alias.name}" for alias in node.names}
            if node.level:
                relative.append(node.lineno)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append(Function(node.lineno, node.name, code_lines(node)))
    return Facts(ast.get_docstring(module), frozenset(imported), tuple(relative), tuple(functions))


def statements(parent: ast.AST) -> Iterator[ast.AST]:
    """Every statement below a node."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(parent, block, ()):
            yield child
            yield from statements(child)


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end of the body, without the docstring."""
    end = function.end_lineno or function.lineno
    docstring = 0
    if ast.get_docstring(function) is not None:
        first = function.body[0]
        docstring = (first.end_lineno or first.lineno) - first.lineno + 1
    return end - function.lineno + 1 - docstring
