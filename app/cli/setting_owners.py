"""Which classes of the package take a setting that the configured one does not."""

import inspect
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

FAMILIES = {
    ("data",): ("datamodules", "train_dataloader"),
    ("model",): ("modules", "action_kinds"),
    ("model", "network"): ("modules.networks", "forward"),
}
"""Package of the classes that can stand at a key, and an attribute that the package gives them."""


def owners(written: str) -> list[str]:
    """Return the dotted paths of the classes that take a setting at its place; empty if none does.

    Args:
        written: the setting in full, such as `data.init_args.horizon`.
    """
    *place, name = [part for part in written.split(".") if part != "init_args"]
    if tuple(place) not in FAMILIES:
        return []
    package, attribute = FAMILIES[tuple(place)]
    found = [kind for kind in classes(package) if gives(package, kind, attribute)]
    return [f"{kind.__module__}.{kind.__name__}" for kind in found if name in arguments(kind)]


def classes(package: str) -> Iterator[type]:
    """Yield the classes that are defined in a package."""
    for module in walk_packages(import_module(package).__path__, f"{package}."):
        members = vars(import_module(module.name)).values()
        yield from (each for each in members if isinstance(each, type) and each.__module__ == module.name)


def gives(package: str, kind: type, attribute: str) -> bool:
    """Return whether a class has an attribute that a class of the package defines."""
    definer = next((each for each in kind.__mro__ if attribute in vars(each)), type)
    return definer.__module__.startswith(f"{package}.")


def arguments(kind: type) -> set[str]:
    """Return the names of the arguments of a class, those that it hands on to its bases included."""
    names: set[str] = set()
    for each in kind.__mro__:
        if "__init__" in vars(each):
            parameters = inspect.signature(vars(each)["__init__"]).parameters
            names |= parameters.keys()
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
                break
    return names - {"self"}
