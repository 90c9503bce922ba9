"""Export classes from packages by a static table, and name a class by the path of the package that exports it."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, exports: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports an exported class when it is first used.

    Args:
        package: its `__name__`.
        exports: module of every exported class, by the class's name.
    """

    def get_export(name: str) -> object:
        if name not in exports:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(exports[name]), name)

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *exports})

    return get_export, list_names


def class_path(kind: type) -> str:
    """Return the dotted path of a class: that of the package which exports it, else that of its module."""
    parts = kind.__module__.split(".")
    packages = (".".join(parts[:length]) for length in range(1, len(parts)))
    exporting = (package for package in packages if exported_module(package, kind.__qualname__) == kind.__module__)
    return f"{next(exporting, kind.__module__)}.{kind.__qualname__}"


def exported_module(package: str, name: str) -> str | None:
    """Return the module of a class that a loaded package exports; None where it exports no such class."""
    exports: Mapping[str, str] = getattr(sys.modules.get(package), "EXPORTS", {})
    return exports.get(name)
