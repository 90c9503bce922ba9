"""Policy for imports by a configuration: only the listed modules and those trusted by the user are allowed.

Add a library by adding its prefix to `ALLOWED` in `datamodules.core.exports`, where `DENIED` excludes parts of it.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from datamodules.core.exports import ALLOWED, DENIED, may_import

TRUST_VARIABLE = "LEYDEN_TRUST"
"""Environment variable with the modules of `--trust`, for the processes of a multi-process run."""

NEVER_TRUSTED = {*sys.stdlib_module_names, "gymnasium", "jsonargparse", "lightning", "numpy", "torch"}

ENVIRONMENTS = ("mpe2", "pettingzoo")
"""Packages of environments, whose modules an environment's name may import, but nothing else in a config."""

ENV_WITH_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*):[A-Za-z_][\w./-]*")


def trusted() -> tuple[str, ...]:
    """Return the modules that the user trusts with `--trust`."""
    return tuple(name for name in os.environ.get(TRUST_VARIABLE, "").split(",") if name)


def why_untrustworthy(name: str) -> str | None:
    """Return one sentence that says why `--trust name` is refused; None if it is accepted."""
    if not all(part.isidentifier() for part in name.split(".")):
        return f"`--trust {name}` names no module: write a dotted name such as `my_module`, without `.py`."
    if name.partition(".")[0] in NEVER_TRUSTED:
        return f"`--trust {name}` is refused: trust is for your own modules, and a config could run anything in it."
    return None


def restrict_imports(trusted: Iterable[str]) -> None:
    """Restrict the parser to allowed or trusted imports, and to local config files.

    Call it after the import of `lightning.pytorch.cli`, which enables remote files.

    Args:
        trusted: modules that the user trusts.
    """
    from jsonargparse import set_parsing_settings

    set_parsing_settings(
        import_path_denylist=["*", *DENIED],
        import_path_allowlist=[*ALLOWED, *trusted],
        config_read_mode_fsspec_enabled=False,
        config_read_mode_urls_enabled=False,
        instantiate_subclass_spec_in_any=False,
    )


def untrusted_environments(config: object, trusted: Iterable[str]) -> Iterator[str]:
    """Yield the environment ids in a nested configuration that would import an untrusted module.

    Gymnasium imports the part before the colon of `module:Id`; a dotted path under the key `env` is imported as well.

    Args:
        config: the configuration.   trusted: modules that the user trusts.
    """
    allowed = (*ALLOWED, *trusted)
    for key, text in _strings("", config):
        path = _imported_by(text) if key == "env" else (ENV_WITH_MODULE.fullmatch(text) or [None, None])[1]
        known = key == "env" and path is not None and path.partition(".")[0] in ENVIRONMENTS
        if path is not None and not known and not may_import(path, allowed):
            yield text


def trust_advice(env: str) -> str:
    """Return the message with which an environment of an untrusted module is refused."""
    top = env.partition(":")[0].partition(".")[0]
    if why_untrustworthy(top):
        return f"The environment `{env}` is refused: its name may not import this part of `{top}`."
    return f"The environment `{env}` imports `{top}`: if you trust that code, add `--trust {top}`."


def _imported_by(env: str) -> str | None:
    """Return the module that an environment's name imports, as parsed by `datamodules.vector.resolve_env`."""
    module, colon, _ = env.rpartition(":")
    if colon:
        return module
    return env if "." in env and all(part.isidentifier() for part in env.split(".")) else None


def _strings(key: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for inner, child in value.items():
            yield from _strings(str(inner), child)
    elif isinstance(value, Iterable):
        for child in value:
            yield from _strings(key, child)
