"""Model card: README.md, results.json and curves beside an exported policy, in the layout of model hubs."""

import json
import math
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

import yaml

from app.agent.agent import Agent
from app.monitor.curves import Curves
from app.plot.learning_curves import draw_learning_curves
from app.plot.statistics import confidence_band
from callbacks.figures.plotting import encode, style
from callbacks.run_control.atomic_write import atomic_write
from callbacks.run_control.checkpoint import run_folder
from datamodules.core.files.run_checkpoints import load_checkpoint

PACKAGES = ("leyden", "torch", "lightning", "gymnasium", "numpy", "onnx")
CURVE = "eval/return_mean"

STATE = (
    "A state begins with zeros and `episode_start` true; each call returns the `next_state`. Masks of the state are"
    " those of the environment, all true without one."
)


def write_card(folder: Path, agent: Agent, exported: str, signature: dict[str, Any], compared: str) -> None:
    """Write README.md with its metadata, `results.json` and, if the run has logged curves, `curves.png`.

    Args:
        folder: folder of the exported file `exported`.
        signature: inputs and outputs by name.   compared: the comparison in words.
    """
    assert agent.path is not None
    checkpoint = load_checkpoint(agent.path)
    hparams: dict[str, Any] = checkpoint.get("datamodule_hyper_parameters") or {}
    env = str(hparams.get("env", "Trading-v0"))
    results = evaluation(agent.path, checkpoint)
    with atomic_write(folder / "results.json") as file:
        file.write(json.dumps(results, indent=1).encode() + b"\n")
    name = str(checkpoint["hyper_parameters"]["_class_path"]).rpartition(".")[2]
    head = yaml.safe_dump(metadata(name, env, results), sort_keys=False)
    parts = [
        f"---\n{head}---\n\n# {name} on {env}",
        f"A policy trained with Leyden for {agent.env_steps:,} env steps. `{exported}` is its greedy decision, from the"
        " environment's observation to its action: normalisation, networks, squashing and scaling.",
        f"Compared with the agent on {compared}.",
        "## Evaluation\n\n" + table(("metric", "value"), [(key, f"{value:.4g}") for key, value in results.items()]),
    ]
    if draw_curves(run_folder(agent.path, "."), folder / "curves.png"):
        parts.append(f"![{CURVE} against env steps](curves.png)")
    rows = [
        (side, name, f"{value['dtype']} {value['shape']}".replace("'", ""))
        for side in ("inputs", "outputs")
        for name, value in signature[side].items()
    ]
    parts += [
        "## Inputs and outputs\n\n" + table(("", "name", "type and shape"), rows),
        *([STATE] if "episode_start" in signature["inputs"] else []),
        "## Settings\n\n```yaml\n" + yaml.safe_dump(plain(checkpoint), sort_keys=False) + "```",
        "## Versions\n\n" + table(("package", "version"), versions()),
    ]
    with atomic_write(folder / "README.md") as file:
        file.write(("\n\n".join(parts) + "\n").encode())


def metadata(name: str, env: str, results: dict[str, float]) -> dict[str, Any]:
    """Return the metadata of the card, with the evaluation as model hubs read it."""
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    mean, std = results.get("eval/return_mean"), results.get("eval/return_std")
    card: dict[str, Any] = {
        "library_name": "leyden",
        "tags": [env, "deep-reinforcement-learning", "reinforcement-learning"],
    }
    if mean is not None:
        value = f"{mean:.2f}" if std is None else f"{mean:.2f} +/- {std:.2f}"
        metric = {"type": "mean_reward", "value": value, "name": "mean_reward", "verified": False}
        card["model-index"] = [
            {"name": name, "results": [{"task": task, "dataset": {"name": env, "type": env}, "metrics": [metric]}]}
        ]
    return card


def evaluation(path: Path, checkpoint: dict[str, Any]) -> dict[str, float]:
    """Return the values of `metrics.json`, which `test` writes, else those of the best checkpoint's evaluation."""
    measured = run_folder(path, ".") / "metrics.json"
    if measured.is_file():
        found = json.loads(measured.read_text(encoding="utf-8"))
    else:
        states = (checkpoint.get("callbacks") or {}).values()
        found = next((each["best_evaluation"] for each in states if "best_evaluation" in each), {})
    return {
        key: float(value) for key, value in found.items() if isinstance(value, int | float) and math.isfinite(value)
    }


def draw_curves(run: Path, path: Path) -> bool:
    """Draw the run's evaluations; return whether there were any."""
    curves = Curves(run)
    curves.refresh()
    if CURVE not in curves.by_tag:
        return False
    band = confidence_band([curves.by_tag[CURVE].points])
    if not band.steps:
        return False
    with style(), atomic_write(path) as file:
        file.write(encode(draw_learning_curves({CURVE: {run.parent.name: band}}, {}, None), "png"))
    return True


def plain(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of algorithm and data in the form of a config."""
    names = {"model": "hyper_parameters", "data": "datamodule_hyper_parameters"}
    settings = {}
    for part, key in names.items():
        values = dict(checkpoint.get(key) or {})
        values.pop("_instantiator", None)
        values.pop("spaces", None)
        settings[part] = {"class_path": values.pop("_class_path", None), "init_args": values}
    result: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return result


def versions() -> list[tuple[str, str]]:
    """Return the versions of Python and of the packages that are installed."""
    rows = [("python", python_version())]
    for package in PACKAGES:
        try:
            rows.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return rows


def table(head: tuple[str, ...], rows: list[Any]) -> str:
    """Return a table of Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
