"""Export classes from packages by a static table, and say which modules configs and checkpoints may import."""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module

MODEL_ALLOWED = ("modules", "datamodules.envs", "datamodules.trading", "torch.nn", "torch.optim")
"""Modules that a checkpoint may import, besides those that the user trusts: it names the parts of a model only, among
them scripted options and option rewards, which are defined beside their environments."""

ALLOWED = (
    *MODEL_ALLOWED,
    "datamodules",
    "callbacks",
    "torch._C._nn",
    "lightning.pytorch.accelerators",
    "lightning.pytorch.callbacks",
    "lightning.pytorch.loggers",
    "lightning.pytorch.plugins",
    "lightning.pytorch.profilers",
    "lightning.pytorch.strategies",
    "lightning.fabric.accelerators",
    "lightning.fabric.plugins",
    "gymnasium.envs",
    "gymnasium.spaces",
    "gymnasium.wrappers",
    "ale_py",
    "gymnasium_robotics",
    "minigrid",
)
"""Modules that a config may import, besides those that the user trusts."""

DENIED = ("gymnasium.envs.registration",)
"""Parts of the allowed modules that neither may import."""


def may_import(path: str, allowed: Iterable[str]) -> bool:
    """Return whether a module or dotted path may be imported; the most specific entry decides.

    Args:
        path: the module or dotted path.
        allowed: the allowed modules.
    """
    verdicts = dict.fromkeys(allowed, True) | dict.fromkeys(DENIED, False)
    parts = path.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((verdicts[prefix] for prefix in prefixes if prefix in verdicts), False)


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
