"""Find the configs that a command line names, and check them before they are parsed."""

from difflib import get_close_matches
from pathlib import Path

from app.cli.config_files import configs_folder, problem, shipped_configs
from app.cli.error_messages import exit_with_error
from datamodules.core.errors import nearest


def resolve_config_args(argv: list[str]) -> list[str]:
    """Return the command line with config names replaced by their paths."""
    resolved: list[str] = []
    for index, token in enumerate(argv):
        flag, equals, name = token.partition("=")
        if index and argv[index - 1] in ("-c", "--config"):
            resolved.append(find_config(token))
        elif flag == "--config" and equals:
            resolved.append(f"--config={find_config(name)}")
        else:
            resolved.append(token)
    return resolved


def find_config(name: str) -> str:
    """Return the path of a config: in the working directory, else, for a bare name, among the shipped ones."""
    shipped = configs_folder() / name
    if "://" in name:
        exit_with_error(f"The config `{name}` is a URL: download it, read it, and give the local file.")
    if Path(name).is_file():
        return name
    if name == Path(name).name and shipped.is_file():
        return str(shipped)
    searched = f", neither in the working directory nor in {configs_folder()}" if name == Path(name).name else ""
    exit_with_error(f"There is no config `{name}`{searched}: {similar_configs(name)}")


def similar_configs(name: str) -> str:
    """Return a clause that names the config whose file name is closest, in the same folder or shipped."""
    by_file_name = {Path(path).name: path for path in [*shipped_configs(), *own_configs(name)]}
    close = get_close_matches(Path(name).name, by_file_name, n=1)
    return f"did you mean `{by_file_name[close[0]]}`?" if close else nearest(name, by_file_name.values())


def own_configs(name: str) -> list[str]:
    """Return the YAML files of the folder that a config's name means: the working directory for a bare name."""
    return [str(path) for path in Path(name).parent.glob("*.y*ml") if path.is_file()]


def require_config(path: str | Path) -> str:
    """Return the path of a config, after a check that it is UTF-8, YAML and a mapping.

    Raises:
        SystemExit: with one sentence and code 2 if it is not.
    """
    if said := problem(Path(path)):
        exit_with_error(said)
    return str(path)
