"""The project's files, as the rules read them."""

import ast
from functools import cache
from pathlib import Path

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


@cache
def tree(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Every node of the parsed file."""
    return list(ast.walk(tree(path)))


@cache
def imported(path: Path) -> set[str]:
    """Full dotted names of what a file imports, anywhere in it: `from a import b` gives `a.b`."""
    names = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names
