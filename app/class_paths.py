"""List the classes that the packages export for configs, and convert their dotted paths to canonical form."""

from importlib import import_module

from datamodules.core.exports import exported_module

PACKAGES = (
    "modules",
    "modules.networks",
    "modules.networks.latent",
    "modules.exploration",
    "modules.optim",
    "datamodules",
    "datamodules.envs.carball",
    "datamodules.envs.four_rooms",
    "datamodules.envs.gridworld",
    "datamodules.trading",
    "datamodules.wrappers",
    "callbacks",
)
"""The packages that export classes for configs in a table `EXPORTS`."""

POPULATION = "modules.ppo.population.PPOPopulation"
"""The algorithm that trains several seeds in one program, for `compare`."""


def short_names(*packages: str) -> dict[str, str]:
    """Return the dotted path of every exported class by its short name, without importing other modules.

    Args:
        packages: packages whose exports are listed; all by default.
    """
    return {name: f"{package}.{name}" for package in packages or PACKAGES for name in import_module(package).EXPORTS}


def exported_classes(*packages: str) -> list[type]:
    """Import and return every exported class, so that the parser knows its short name.

    Args:
        packages: packages whose classes are returned; all by default.
    """
    paths = (path.rpartition(".") for path in short_names(*packages).values())
    return [getattr(import_module(package), name) for package, _, name in paths]


def canonical_path(path: str) -> str:
    """Return the dotted path of a class as its package exports it; other paths are unchanged."""
    module, _, name = path.rpartition(".")
    exporting = (package for package in PACKAGES if exported_module(package, name) == module)
    return next((f"{package}.{name}" for package in exporting), path)
