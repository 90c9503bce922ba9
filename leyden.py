"""Leyden from Python: `import leyden; agent = leyden.load("runs/ppo_cartpole/version_0")`.

Exports `load`, `Agent`, and every class that a config can name (`leyden.PPO`, `leyden.RolloutDataModule`, ...); each is
imported when it is first used. A script's or a notebook's folder comes first in Python's search path, so that its own
`modules/` or `app/` would hide a package of Leyden: `import leyden` makes both importable (`find_packages`).
"""

import sys
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

HOME = Path(__file__).resolve().parent
PACKAGES = ("datamodules", "modules", "callbacks", "configs", "app")


def find_packages() -> None:
    """Make Leyden's packages importable, whatever folders or files of the same names come first in the search path.

    Leyden's own come first from then on, in this process and in those that it starts with `multiprocessing`. The
    modules of other folders stay importable under the same name, such as `modules.my_network`, except where Leyden has
    a module of that name; the `__init__.py` of these folders is not run.

    Raises:
        ImportError: if such a folder was already imported under the name of a package of Leyden.
    """
    for name in PACKAGES:
        imported = getattr(sys.modules.get(name), "__path__", None) if name in sys.modules else [str(HOME / name)]
        if not imported or Path(next(iter(imported))).resolve() != HOME / name:
            where = getattr(sys.modules[name], "__file__", None) or ", ".join(imported or ["elsewhere"])
            raise ImportError(
                f"`{name}` was imported from {where} before leyden, which has a package of that name: put `import"
                " leyden` before the import, or rename yours.",
                name=name,
            )
    folders = {name: [path for each in sys.path if (path := Path(each, name)).is_dir()] for name in PACKAGES}
    others = {name: [path for path in found if path.resolve() != HOME / name] for name, found in folders.items()}
    if not all(map(_is_found, PACKAGES)):
        sys.path.insert(0, str(HOME))
        invalidate_caches()
    for name, found in others.items():
        if found:
            import_module(name).__path__.extend(map(str, found))


def _is_found(name: str) -> bool:
    """Return whether an import of this name finds the package of Leyden."""
    spec = find_spec(name)
    return spec is not None and [Path(path).resolve() for path in spec.submodule_search_locations or ()] == [
        HOME / name
    ]


find_packages()

if TYPE_CHECKING:
    from app.agent.agent import Agent as Agent
    from app.agent.load import load as load
    from callbacks import *  # noqa: F403
    from datamodules import *  # noqa: F403
    from datamodules.trading import *  # noqa: F403
    from modules import *  # noqa: F403
    from modules.exploration import *  # noqa: F403
    from modules.networks import *  # noqa: F403
    from modules.networks.latent import *  # noqa: F403
else:
    from app.class_paths import short_names
    from datamodules.core.exports import lazy_exports

    EXPORTS = {name: path.rpartition(".")[0] for name, path in short_names().items()}
    EXPORTS |= {"Agent": "app.agent.agent", "load": "app.agent.load"}
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
