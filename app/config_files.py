"""Config files: whether one is UTF-8, YAML and a mapping, found out before anything reads it."""

from pathlib import Path

import yaml


def problem(path: Path) -> str:
    """Say in one sentence why a file is no config; empty if it is one.

    Nothing in the file is executed: YAML's tags of Python objects are refused.
    """
    try:
        content = yaml.safe_load(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        byte = f"byte {error.start} is 0x{error.object[error.start]:02x}"
        return f"`{path}` is not UTF-8 text ({byte}): save it as UTF-8."
    except OSError as error:
        return f"`{path}` cannot be read: {error.strerror}."
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        return f"`{path}`, line {line}, is not valid YAML: {' '.join(str(error.problem).split())}."
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # of values such as the date 2020-99-99, too
        return f"`{path}` is not valid YAML: {' '.join(str(error).split())}."
    except RecursionError:
        return f"`{path}` is not usable: its values are nested too deeply."
    if not isinstance(content, dict):
        return f"`{path}` holds no settings: an experiment is a mapping with `model`, `data` and `trainer`."
    if odd := [key for key in content if not isinstance(key, str)]:
        return f"`{path}` has the setting `{odd[0]}`, which is no text: a setting's name is text, such as `model`."
    return ""
