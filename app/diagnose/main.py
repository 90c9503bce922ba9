"""`python -m app diagnose --config A.yaml`: where an iteration's time goes, what is in force, and what to change.

A change is named with what it was measured to bring: a run that has it, next to the run that has not.
"""

import argparse
import json
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from app.cli.error_messages import refuse
from app.cli.import_policy import restrict_imports
from app.cli.main import NOISE
from app.diagnose.profiler import Diagnosed, described, measure
from app.timing import device_name
from callbacks.performance.execution_summary import table
from datamodules.buffers.storage import free_bytes
from datamodules.core.errors import UsageError
from modules.base.checks import divisors

TESTS = ("all", "env", "inference", "update", "gpu")
SHARES = ("collect", "prepare", "update", "other")


def main() -> None:
    """Measure, print what was found, then one line of JSON.

    Raises:
        SystemExit: with code 2 and one sentence when the input is bad.
    """
    for message in NOISE:
        warnings.filterwarnings("ignore", message=message)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    restrict_imports()
    options, words = parsed(sys.argv[2:])
    try:
        text = json.dumps(diagnosed(options.test, words))
    except UsageError as error:
        refuse(str(error))
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(text)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the verb's own options."""
    parser = argparse.ArgumentParser(
        "python -m app diagnose", epilog="All options of fit are taken too.", allow_abbrev=False, exit_on_error=False
    )
    parser.add_argument("--test", default="all", help=f"what to measure: {', '.join(TESTS)}")
    parser.add_argument("--json", type=Path, help="write the JSON object to this file too")
    return parser


def parsed(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our own options, checked, and the words that are left for `fit`.

    Raises:
        SystemExit: with code 2 and one sentence when they are bad.
    """
    try:
        options, rest = make_parser().parse_known_args(words)
    except argparse.ArgumentError as error:
        refuse(f"`diagnose` was given no good {error.argument_name}: {error.message}.")
    if options.test not in TESTS:
        refuse(f"--test is {options.test}; choose one of {', '.join(TESTS)}.")
    if options.json and not options.json.absolute().parent.is_dir():
        refuse(f"--json {options.json} cannot be written: there is no folder {options.json.parent}.")
    return options, rest


def diagnosed(test: str, words: list[str]) -> dict[str, Any]:
    """Everything that the test asks for, printed as it is found.

    Raises:
        UsageError: if the run cannot be made or would not fit into memory.
    """
    run = described(words)
    device = run.trainer.strategy.root_device
    head = {"config": " ".join(words), "device": device_name(device), "torch": torch.__version__, "test": test}
    memory = require_memory(run, device)
    found = measure(run, test)
    print("\n".join(report(found)))
    if test != "all":
        return head | found
    checks = memory | checked(run, found, device)
    print(table("Checks:", {name: str(value) for name, value in checks.items()}))
    place = bottleneck(found)
    print(f"Bottleneck: {place}.")
    changes = [tried(flag, value, words) for flag, value in remedies(place, found["backend"], run)]
    again = measure(described(words), "update")["env_steps_per_s"]
    print("\n".join(verdicts(changes, found["env_steps_per_s"], again)))
    return head | found | {"env_steps_per_s_again": again, "bottleneck": place, "changes": changes, "checks": checks}


def report(found: Mapping[str, Any]) -> Iterator[str]:
    """What was measured, line by line."""
    yield table("In force:", found["in_force"])
    iteration = found["iteration_s"]
    speed = f"{found['env_steps_per_s']:,.0f} env steps/s, evaluation and logging off"
    yield f"Iteration: {iteration * 1e3:.3g} ms, {speed}"
    for name, seconds in shares(found).items():
        beside = ", beside the others" if name in found["beside"] else ""
        yield f"  {name:<9}{seconds * 1e3:>8.3g} ms {seconds / iteration:>6.0%}{beside}"
    if alone := found.get("environment"):
        step, speed = alone["step_s"] * 1e3, alone["env_steps_per_s"]
        yield f"Environment alone: {step:.3g} ms a vector step of random actions, {speed:,.0f} env steps/s"
    if times := found.get("inference"):
        numbers = ", ".join(f"{name} {times[f'{name}_ms']:.3g} ms" for name in ("mean", "p95", "p99"))
        yield f"Inference: {numbers} for {times['rows']} rows"
    if gpu := found.get("gpu"):
        told = gpu if isinstance(gpu, str) else ", ".join(f"{name} {value:,.0f}" for name, value in gpu.items())
        yield f"GPU: {told}"


def shares(found: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of each part of an iteration; stored data has none to collect."""
    return {name: found[f"{name}_s"] for name in SHARES if f"{name}_s" in found}


def require_memory(run: Diagnosed, device: torch.device) -> dict[str, Any]:
    """The size of a rollout's storage beside the free memory, in MiB; nothing where no rollout is made.

    Raises:
        UsageError: if it does not fit; says how many environments would.
    """
    data = run.datamodule
    if not data.acts:
        return {}
    copies = 1 + ("collect" in data.beside)  # what is learned from stays while the next is collected
    needed, free = copies * rollout_bytes(data.spaces, data.horizon, data.num_envs), free_bytes(device)
    if needed > free:
        fitting = int(data.num_envs * free / needed)
        raise UsageError(
            f"A rollout of {data.num_envs} x {data.horizon} steps needs {needed / 2**20:,.0f} MiB, and {device} has"
            f" {free / 2**20:,.0f} MiB free: set data.num_envs to at most {fitting}, or a shorter data.horizon."
        )
    return {"rollout_mib": round(needed / 2**20, 2), "free_mib": round(free / 2**20)}


def rollout_bytes(spaces: Mapping[str, Any], horizon: int, num_envs: int) -> int:
    """Size of the storage of T steps of B rows, from the spaces alone; what networks remember is not counted."""
    rows, obs = num_envs * spaces["agents"], torch.Size(spaces["obs_shape"]).numel()
    obs_bytes = obs * getattr(torch, spaces["obs_dtype"]).itemsize
    parts = len(spaces["action_low"]) * 4 or len(spaces["action_sizes"]) * 8
    logits = len(spaces["action_sizes"]) if spaces["action_kind"] == "binary" else sum(spaces["action_sizes"])
    flags, reward, policy = 4, 4, 4 * (len(spaces["action_low"]) or logits)
    return rows * ((horizon + 1) * obs_bytes + horizon * (parts + flags + reward + policy))


def checked(run: Diagnosed, found: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Settings that cost speed silently: minibatches, TF32, compilation, threads."""
    checks: dict[str, Any] = {"peak_memory_mib": round(found["peak_memory_mib"])}
    if minibatches := getattr(run.model, "minibatches", None):
        rows = run.datamodule.rows_per_rollout
        checks["minibatches"] = f"{minibatches} of {rows // minibatches} rows"
        checks["minibatches_that_divide"] = [divisor for divisor in divisors(rows) if divisor <= 128]
    if device.type == "cuda" and torch.get_float32_matmul_precision() == "highest":
        checks["tf32"] = "off: torch.set_float32_matmul_precision('high') would turn it on"
    if names := found.get("could_be_compiled"):
        checks["compile"] = (
            f"{', '.join(names)} eager; callbacks.performance.compile.Compile would compile that (not tried here)"
        )
    if threads := found.get("threads_ms"):
        checks["threads"] = {number: round(milliseconds, 3) for number, milliseconds in threads.items()}
    return checks


def bottleneck(found: Mapping[str, Any]) -> str:
    """The largest part of an iteration; of collecting, the larger of environment and inference."""
    seconds = shares(found)
    largest = max(seconds, key=seconds.__getitem__)
    if largest != "collect":
        return largest
    inference = found["inference"]["mean_ms"] / 1e3
    return "collect (environment)" if found["environment"]["step_s"] >= inference else "collect (inference)"


def remedies(place: str, backend: str | None, run: Diagnosed) -> Iterator[tuple[str, str]]:
    """Settings that can help there, as flag and value; whether they do is for a measurement to say."""
    data, model = run.datamodule, run.model
    if place == "collect (environment)" and backend == "sync":
        yield "--data.backend", "vector"
    if data.acts and model.corrects_staleness and not data.beside:
        yield "--data.staleness", "1"
    minibatches = getattr(model, "minibatches", 1)
    if place == "update" and minibatches > 1:
        yield "--model.minibatches", str(minibatches // divisors(minibatches)[1])
    if place == "update" and run.trainer.strategy.root_device.type == "cuda" and run.trainer.precision == "32-true":
        yield "--trainer.precision", "bf16-mixed"
    yield ("--data.num_envs", str(2 * data.num_envs)) if data.acts else ("--data.batch_size", str(2 * data.batch_size))


def tried(flag: str, value: str, words: list[str]) -> dict[str, Any]:
    """What a run with one more setting reaches; `refused` where it cannot be."""
    setting = f"{flag} {value}"
    try:
        return {
            "setting": setting,
            "env_steps_per_s": measure(described([*words, flag, value]), "update")["env_steps_per_s"],
        }
    except UsageError as refusal:
        return {"setting": setting, "refused": str(refusal)}


def verdicts(changes: Sequence[Mapping[str, Any]], first: float, again: float) -> Iterator[str]:
    """What each change gave beside the run as it is, which was measured before and after them."""
    low, high = sorted((first, again))
    yield f"As it is: {low:,.0f} to {high:,.0f} env steps/s in two runs."
    for change in changes:
        setting, speed = change["setting"], change.get("env_steps_per_s", 0.0)
        if "refused" in change:
            yield f"  {setting} cannot be: {change['refused']}"
        elif low <= speed <= high:
            yield f"  {setting} gave {speed:,.0f}, no more than two runs differ: no reason to change."
        elif speed < low:
            yield f"  {setting} gave {speed:,.0f}, which is slower: leave it."
        else:
            ratio = 2 * speed / (low + high)
            yield f"  {setting} gave {speed:,.0f}, {ratio:.2f} times as many: check what is learned with it."
