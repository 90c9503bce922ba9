"""The checks of `verify`, each of which returns a `Finding`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from app.agent.agent import Agent
from app.envs.check import gymnasium_complaints
from app.export.comparison import export_and_compare
from app.export.decision import Decision
from app.export.formats import FORMATS
from app.verify.short_run import Outcome
from app.verify.weights_report import BY_HAND
from datamodules.base import EnvDataModule
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.printable import counted
from datamodules.core.files.run_checkpoints import load_checkpoint
from datamodules.vector.make_env import make_env
from datamodules.vector.resolve_env import resolve_env

Status = Literal["holds", "fails", "cannot"]

ENV_STEPS, OBSERVATIONS = 300, 200
"""Steps of the environment's repetition, and observations of the comparison of an exported policy."""

COMPILED_TOLERANCE = 1e-3
"""Largest difference of a weight between a compiled and an eager run, in units of the largest weight."""


class Finding(NamedTuple):
    """Result of a check: whether it holds, fails, or cannot be made for a reason that is no fault."""

    name: str
    status: Status
    text: str


def contract(data: EnvDataModule) -> Finding:
    """Check the environment by Gymnasium's checker."""
    if _is_vectorised(data):
        text = f"{data.env} is no single Gymnasium environment, which check_env takes: python -m app envs --check"
        return Finding("contract", "cannot", f"{text} {data.env}")
    errors, warned = gymnasium_complaints(resolve_env(data.env), data.env, data.env_kwargs)
    if errors:
        return Finding("contract", "fails", errors[0])
    text = f"{data.env} passes Gymnasium's check_env" + (f", with {len(warned)} warnings" if warned else "")
    return Finding("contract", "holds", f"{text}: python -m app envs --check {data.env}" if warned else text)


def determinism(data: EnvDataModule) -> Finding:
    """Check that two copies of the environment return the same after the same seed and actions."""
    if _is_vectorised(data):
        return Finding(
            "determinism", "cannot", f"{data.env} cannot be stepped as one Gymnasium environment: see repeat"
        )
    histories = [_history(data) for _ in range(2)]
    for step, (one, other) in enumerate(zip(*histories, strict=True)):
        if not _equal(one, other):
            text = f"two copies of {data.env} differ after {counted(step, 'step')} with equal seed and actions"
            cure = "draw all random numbers from self.np_random, and reset all state"
            return Finding("determinism", "fails", f"{text}: {cure}")
    return Finding("determinism", "holds", f"{ENV_STEPS} steps repeat exactly after one seed")


def _is_vectorised(data: EnvDataModule) -> bool:
    """Return whether the environment has several agents, or steps several rows itself."""
    return data.agents.agent_spaces["num_agents"] > 1 or resolve_env(data.env, data.backend).is_whole


def _history(data: EnvDataModule) -> Iterator[Any]:
    env = make_env(data.env, data.env_kwargs, data.wrappers, rendered=False)
    obs, info = env.reset(seed=7)
    yield obs
    actions = env.action_space  # kept, because some environments replace it at every reset
    actions.seed(7)
    for _ in range(ENV_STEPS):
        action = actions.sample(*([_mask(info)] if "action_mask" in info else []))
        obs, reward, terminated, truncated, info = env.step(action)
        yield obs, reward, terminated, truncated
        if terminated or truncated:
            obs, info = env.reset()
            yield obs
    env.close()


def _mask(info: dict[str, Any]) -> Any:
    return np.asarray(info["action_mask"], dtype=np.int8)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(np.array_equal(np.asarray(one), np.asarray(other), equal_nan=np.asarray(one).dtype.kind == "f"))


def repetition(first: Outcome, second: Outcome, iterations: int) -> Finding:
    """Check that two runs of one seed end with equal weights."""
    if second.report is None or first.report is None:
        return Finding("repeat", "fails", f"a second run fails: {second.error}")
    if first.report["weights"] == second.report["weights"]:
        return Finding("repeat", "holds", f"two runs of one seed end with equal weights after {iterations} iterations")
    text = "two runs of one seed end with different weights: seed everything random in environment and network"
    return Finding("repeat", "fails", text)


def resumption(whole: Outcome, resumed: Outcome, half: int) -> Finding:
    """Check that a run saved and resumed in its middle ends with the weights of an uninterrupted one."""
    if resumed.report is None or whole.report is None:
        return Finding("resume", "fails", f"the run cannot be resumed: {resumed.error}")
    if whole.report["weights"] == resumed.report["weights"]:
        return Finding(
            "resume", "holds", f"saved after {half} iterations and resumed, the weights are equal to the bit"
        )
    checkpoint = load_checkpoint(whole.checkpoint)
    saved = [each["ranks"] for each in checkpoint.values() if isinstance(each, dict) and "ranks" in each]
    if saved and isinstance(saved[0][0], dict) and not saved[0][0].get("envs", True):
        text = "a resumed run goes on, but not exactly: the environment cannot save its state and is reset"
        return Finding("resume", "cannot", text)
    return Finding("resume", "fails", "a resumed run ends with other weights, though the environment saves its state")


def compiled(eager: Outcome, other: Outcome, backend: str) -> Finding:
    """Check that a compiled run compiles what it should and ends with nearly the weights of the eager one."""
    if other.report is None or eager.report is None:
        return Finding("compile", "fails", f"a compiled run fails: {other.error}")
    update = other.report["phases"].get("update")
    if update == BY_HAND:
        text = "on a CPU, hand-written passes take the place of a compiled update of this network"
        return Finding("compile", "cannot", text)
    if update == "eager":
        return Finding("compile", "fails", "the update cannot be compiled and runs eagerly: see the warning of a fit")
    one, two = (load_checkpoint(run.checkpoint)["state_dict"] for run in (eager, other))
    pairs = [(tensor.double(), two[name].double()) for name, tensor in one.items() if tensor.is_floating_point()]
    largest = max((float((a - b).abs().max()) for a, b in pairs if a.numel()), default=0.0)
    unit = max((float(a.abs().max()) for a, _ in pairs if a.numel()), default=1.0) or 1.0
    text = f"update {update} by torch.compile ({backend}), largest difference of a weight {largest / unit:.1e}"
    return Finding("compile", "holds" if largest / unit <= COMPILED_TOLERANCE else "fails", text)


def ranks(single: Outcome, double: Outcome) -> Finding:
    """Check that two ranks take twice the steps of one, and end with equal weights on both."""
    if double.report is None or single.report is None:
        return Finding("ranks", "fails", f"a run of two ranks fails: {double.error}")
    if len({*double.report["weights"]}) != 1:
        return Finding("ranks", "fails", "the weights of two ranks differ: parameters are changed without all-reduce")
    steps = single.report["env_steps"], double.report["env_steps"]
    if not 0.9 <= steps[1] / (2 * steps[0]) <= 1.1 or double.report["updates"] != single.report["updates"]:
        text = (
            f"two ranks took {counted(steps[1], 'env step')} and"
            f" {counted(double.report['updates'], 'update')}; one took {steps[0]}"
        )
        return Finding("ranks", "fails", f"{text} and {single.report['updates']}")
    return Finding("ranks", "holds", f"two ranks take {steps[1]:,} env steps (one {steps[0]:,}) and keep equal weights")


def exported(agent: Agent, data: EnvDataModule, folder: Path) -> Finding:
    """Check that the exported decision is the agent's."""
    try:
        Decision(agent.module)
    except ConfigurationError as error:
        return Finding("export", "cannot", str(error))
    try:
        path = folder / FORMATS["torch-export"]
        found = export_and_compare(agent.module, data, OBSERVATIONS, "torch-export", path).difference
    except ConfigurationError as error:
        return Finding("export", "fails", str(error))
    text = f"{counted(found.observations, 'observation')}, largest difference {found.largest:.1e}"
    return Finding(
        "export", "holds" if found.holds else "fails", f"{text}, other discrete actions {found.other_actions}"
    )
