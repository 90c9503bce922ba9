"""`python -m app diagnose --config A.yaml`: measure the parts of an iteration; suggest settings that make it faster.

Each suggested change is reported with its measured effect, from runs with and without it.
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

from app.cli.error_messages import exit_with_error
from app.cli.import_policy import restrict_imports, trusted
from app.cli.main import IGNORED_WARNINGS
from app.diagnose.profiler import UnstartedRun, build_run, measure
from app.timing import PARTS, device_name
from callbacks.performance.execution_summary import table
from datamodules.buffers.storage import free_bytes
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.printable import counted
from datamodules.core.signals import exits_on_signal
from modules.base.checks import divisors

TESTS = ("all", "env", "inference", "update", "gpu")


def main() -> None:
    """Measure, print the results, then one line of JSON.

    Raises:
        SystemExit: with code 2 and one sentence for invalid input, 128 + its number after a stop signal.
    """
    for message in IGNORED_WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    restrict_imports(trusted())
    options, words = parsed(sys.argv[2:])
    try:
        with exits_on_signal():
            text = json.dumps(diagnosed(options.test, words))
    except ConfigurationError as error:
        exit_with_error(str(error))
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
    """Parse and check the verb's options; return them and the remaining arguments for `fit`.

    Raises:
        SystemExit: with code 2 and one sentence if they are invalid.
    """
    try:
        options, rest = make_parser().parse_known_args(words)
    except argparse.ArgumentError as error:
        exit_with_error(f"`diagnose` was given no good {error.argument_name}: {error.message}.")
    if options.test not in TESTS:
        exit_with_error(f"--test is {options.test}; choose one of {', '.join(TESTS)}.")
    if options.json and not options.json.absolute().parent.is_dir():
        exit_with_error(f"--json {options.json} cannot be written: there is no folder {options.json.parent}.")
    return options, rest


def diagnosed(test: str, words: list[str]) -> dict[str, Any]:
    """Run the requested measurements and print each result.

    Raises:
        ConfigurationError: if the run cannot be created or would not fit into memory.
    """
    run = build_run(words)
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
    changes = [measure_change(flag, value, words) for flag, value in candidate_changes(place, found, run)]
    again = measure(build_run(words), "update")["env_steps_per_s"]
    print("\n".join(report_changes(changes, found["env_steps_per_s"], again)))
    return head | found | {"env_steps_per_s_again": again, "bottleneck": place, "changes": changes, "checks": checks}


def report(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the report."""
    yield table("Execution:", found["execution"])
    iteration = found["iteration_s"]
    yield f"Iteration: {iteration * 1e3:.3g} ms, {speed_of(found)}, evaluation and logging off"
    for name, seconds in shares(found).items():
        beside = ", beside the others" if name in found["beside"] else ""
        yield f"  {name:<13}{seconds * 1e3:>8.3g} ms {seconds / iteration:>6.0%}{beside}"
    if alone := found.get("environment"):
        step = alone["step_s"] * 1e3
        yield f"Environment alone: {step:.3g} ms a vector step of random actions, {speed_of(alone)}"
        learner = learner_speed(found)
        slower = found["env_steps_per_s"] / min(alone["env_steps_per_s"], learner)
        yield f"Learner alone: {learner:,.0f} env steps/s; the run reaches {slower:.0%} of the slower of the two"
    if times := found.get("inference"):
        numbers = ", ".join(f"{name} {times[f'{name}_ms']:.3g} ms" for name in ("mean", "p95", "p99"))
        yield f"Inference: {numbers} for {counted(times['rows'], 'row')}, {times['calls_per_s']:,.0f} calls/s"
    if gpu := found.get("gpu"):
        told = gpu if isinstance(gpu, str) else ", ".join(f"{name} {value:,.0f}" for name, value in gpu.items())
        yield f"GPU: {told}"


def learner_speed(found: Mapping[str, Any]) -> float:
    """Return the env steps per second without collection and what is outside the phases."""
    busy = sum(seconds for name, seconds in shares(found).items() if name not in ("collect", "other"))
    return found["env_steps_per_s"] * found["iteration_s"] / busy


def speed_of(found: Mapping[str, Any]) -> str:
    """Return env steps and simulator ticks per second."""
    return f"{found['env_steps_per_s']:,.0f} env steps/s, {found['ticks_per_s']:,.0f} ticks/s"


def shares(found: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of each part of an iteration; without collection for stored data."""
    return {name: found[f"{name}_s"] for name in PARTS if f"{name}_s" in found}


def require_memory(run: UnstartedRun, device: torch.device) -> dict[str, Any]:
    """Return the size of a rollout's storage and the free memory, in MiB; empty if there are no rollouts.

    Raises:
        ConfigurationError: if it does not fit, with the number of environments that would.
    """
    data = run.datamodule
    if not data.collects_online:
        return {}
    copies = 1 + ("collect" in data.concurrent_phases)  # what is learned from stays while the next is collected
    needed, free = copies * rollout_bytes(data.spaces, data.steps_per_rollout, data.num_envs), free_bytes(device)
    if needed > free:
        fitting = int(data.num_envs * free / needed)
        raise ConfigurationError(
            f"A rollout of {data.num_envs} x {data.steps_per_rollout} steps needs {needed / 2**20:,.0f} MiB, and"
            f" {device} has {free / 2**20:,.0f} MiB free: set data.num_envs to at most {fitting}, or lower"
            f" data.{data.steps_setting}."
        )
    return {"rollout_mib": round(needed / 2**20, 2), "free_mib": round(free / 2**20)}


def rollout_bytes(spaces: Mapping[str, Any], steps: int, num_envs: int) -> int:
    """Return the size of the storage of T steps of B rows, from the spaces; policy states are not counted."""
    rows, obs = num_envs * spaces["num_agents"], torch.Size(spaces["obs_shape"]).numel()
    obs_bytes = obs * getattr(torch, spaces["obs_dtype"]).itemsize
    parts = len(spaces["action_low"]) * 4 or len(spaces["action_sizes"]) * 8
    logits = len(spaces["action_sizes"]) if spaces["action_type"] == "binary" else sum(spaces["action_sizes"])
    flags, reward, policy = 4, 4, 4 * (len(spaces["action_low"]) or logits)
    return rows * ((steps + 1) * obs_bytes + steps * (parts + flags + reward + policy))


def checked(run: UnstartedRun, found: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Check settings that reduce speed: minibatches, TF32, compilation, threads."""
    checks: dict[str, Any] = {"peak_memory_mib": round(found["peak_memory_mib"])}
    if num_minibatches := getattr(run.model, "num_minibatches", None):
        rows = run.datamodule.transitions_per_rollout
        checks["num_minibatches"] = f"{num_minibatches} of {counted(rows // num_minibatches, 'row')}"
        checks["minibatches_that_divide"] = [divisor for divisor in divisors(rows) if divisor <= 128]
    if device.type == "cuda" and torch.get_float32_matmul_precision() == "highest":
        checks["tf32"] = "off: torch.set_float32_matmul_precision('high') would turn it on"
    if names := found.get("could_be_compiled"):
        checks["compile"] = f"{', '.join(names)} eager; callbacks.Compile would compile that (not tried here)"
    if threads := found.get("threads_ms"):
        checks["threads"] = {number: round(milliseconds, 3) for number, milliseconds in threads.items()}
    return checks


def bottleneck(found: Mapping[str, Any]) -> str:
    """Return the largest part of an iteration; for collection, the larger of environment and inference."""
    seconds = shares(found)
    largest = max(seconds, key=seconds.__getitem__)
    if largest != "collect":
        return largest
    inference = found["inference"]["mean_ms"] / 1e3
    return "collect (environment)" if found["environment"]["step_s"] >= inference else "collect (inference)"


def candidate_changes(place: str, found: Mapping[str, Any], run: UnstartedRun) -> Iterator[tuple[str, str]]:
    """Yield settings that may speed up a part, as flag and value; a measurement decides."""
    data, model = run.datamodule, run.model
    if place == "collect (environment)" and found["backend"] == "sync":
        yield "--data.backend", "vector"
    if place == "collect (environment)" and (workers := found["workers"]) > 1:
        for fewer in sorted({-(-workers // 4), -(-workers // 2)}):
            yield "--data.num_workers", str(fewer)
    if data.collects_online and model.supports_policy_lag and not data.concurrent_phases:
        yield "--data.policy_lag", "1"
    num_minibatches = getattr(model, "num_minibatches", 1)
    if place == "update" and num_minibatches > 1:
        yield "--model.num_minibatches", str(num_minibatches // divisors(num_minibatches)[1])
    if place == "update" and run.trainer.strategy.root_device.type == "cuda" and run.trainer.precision == "32-true":
        yield "--trainer.precision", "bf16-mixed"
    yield (
        ("--data.num_envs", str(2 * data.num_envs))
        if data.collects_online
        else ("--data.batch_size", str(2 * data.batch_size))
    )


def measure_change(flag: str, value: str, words: list[str]) -> dict[str, Any]:
    """Measure a run with one more setting; `refused` if it is invalid."""
    setting = f"{flag} {value}"
    try:
        return {
            "setting": setting,
            "env_steps_per_s": measure(build_run([*words, flag, value]), "update")["env_steps_per_s"],
        }
    except ConfigurationError as refusal:
        return {"setting": setting, "refused": str(refusal)}


def report_changes(changes: Sequence[Mapping[str, Any]], first: float, again: float) -> Iterator[str]:
    """Yield lines on the effect of each change, relative to the run without it, measured before and after."""
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
