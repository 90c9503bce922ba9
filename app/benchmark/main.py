"""`python -m app benchmark`: measure the training speed of a config and its parts, and compare it with others."""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import torch

from app.child_processes import child_environ, child_process, exits_with_children
from app.cli.config_args import find_config, require_config
from app.cli.error_messages import PlainParser, exit_with_error
from app.peers.base import UNREACHABLE_STEPS
from app.peers.ppo import PEERS
from app.timing import PARTS, machine, spread, versions
from datamodules.core.errors import nearest
from datamodules.core.files.printable import counted, printable

FORCED_SETTINGS = {
    "trainer.limit_val_batches": 0,
    "trainer.num_sanity_val_steps": 0,
    "trainer.num_nodes": 1,
    "data.total_env_steps": UNREACHABLE_STEPS,
}
"""Settings of a timed run: no evaluation, one machine, no end; schedules stay at their initial value."""

ONE_DEVICE = "trainer.devices=1"

MAX_SPREAD = 0.2
"""Largest spread of a ratio over the repeats with which it is printed."""

TOO_BUSY = "no ratio: it differs too much between the repeats; use an idle machine, more --repeats or --max-spread"
ONE_REPEAT = "one repeat has no spread: no ratio; use more --repeats or --max-spread inf"


class BenchmarkWorker:
    """Process that trains on request, in its own empty folder (see `app.benchmark.worker`).

    Args:
        name: name in the output.
        peer: peer that trains; None for this application.
        words: command line of `fit`.
        threads: number of threads of torch and of its libraries.
        folder: working directory.
        stack: its end ends the process.

    Attributes:
        start_up: seconds from the start of the process to the end of its first iteration that learns.
        trained, bare: one measurement per repeat.
    """

    def __init__(self, name: str, peer: str | None, words: Sequence[str], threads: int, folder: Path, stack: ExitStack):
        self.name, self.peer = name, peer
        self.trained: list[dict[str, Any]] = []
        self.bare: list[dict[str, Any]] = []
        self._log: IO[str] = stack.enter_context((folder / "log.txt").open("w+", encoding="utf-8"))
        environ = child_environ() | {"OMP_NUM_THREADS": str(threads)}
        began = time.perf_counter()
        command = [sys.executable, "-m", "app.benchmark.worker", *([peer] if peer else []), "fit", *words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log}
        self._process = stack.enter_context(child_process(command, environ, cwd=folder, text=True, **pipes))
        self._answer()
        self.start_up = time.perf_counter() - began

    def ask(self, order: str) -> dict[str, Any]:
        """Send a command to the process and wait for its answer."""
        assert self._process.stdin is not None
        print(order, file=self._process.stdin, flush=True)
        return self._answer()

    def repeat(self, seconds: float) -> None:
        """Measure once: training, and for this application also the phases without the Trainer."""
        self.trained.append(self.ask(f"train {seconds}"))
        if self.peer is None:
            self.bare.append(self.ask(f"bare {seconds}"))

    def speeds(self) -> list[float]:
        """Return the environment steps per second of every repeat."""
        return [repeat["env_steps"] / repeat["seconds"] for repeat in self.trained]

    def per_cpu_second(self) -> float:
        """Return the environment steps per second of processor time, which other processes hardly affect."""
        return statistics.median(repeat["env_steps"] / repeat["cpu_seconds"] for repeat in self.trained)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return json.loads(line)
        code = self._process.wait()
        self._log.seek(0)
        said = self._log.read().strip().splitlines()
        if code == 2 and said:
            exit_with_error(said[-1])
        raise SystemExit(printable("\n".join([*said[-20:], f"{self.name} ended with exit code {code}: see above."])))


def main() -> None:
    """Time the contestants and print the results; the last line is JSON.

    Raises:
        SystemExit: with code 2 and one sentence for invalid input, 128 + its number after a stop signal.
    """
    options = parsed(sys.argv[2:])
    print(
        f"{counted(options.repeats, 'repeat')} of {options.seconds:g} s, interleaved, after a warm-up;"
        f" {counted(options.threads, 'thread')}."
    )
    print("Evaluation is switched off while timing; schedules stay at their start, exploring is at its end.")
    for setting in options.set:
        print(f"Changed: {setting}")
    with exits_with_children():
        result = compared(options)
    text = json.dumps(result)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(printable(table(result)))
    print(text)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the verb's options."""
    parser = PlainParser(prog="python -m app benchmark", description=__doc__, allow_abbrev=False)
    parser.add_argument("-c", "--config", action="append", required=True, help="the experiment; several merge")
    against = f"another config, or {' or '.join(PEERS)}, trained on the same task"
    parser.add_argument("--against", nargs="+", action="extend", default=[], metavar="WHAT", help=against)
    parser.add_argument("--repeats", type=int, default=5, help="measurements of each contestant (5)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a measurement (5)")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="torch threads of every contestant"
    )
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="change settings")
    parser.add_argument(
        "--max-spread", type=float, default=MAX_SPREAD, metavar="SHARE",
        help=f"print no ratio whose values in the repeats differ by more than this share ({MAX_SPREAD}); inf: always",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, help="write the JSON object to this file too")
    return parser


def parsed(words: list[str]) -> argparse.Namespace:
    """Parse and check the options after the verb.

    Raises:
        SystemExit: with code 2 and one sentence if they are invalid.
    """
    parser = make_parser()
    options, rest = parser.parse_known_args(words)
    if rest:
        parser.error(f"{' '.join(rest)} is not an option: change settings with --set, such as --set data.num_envs=64")
    for name, least in (("repeats", 1), ("threads", 1)):
        if getattr(options, name) < least:
            parser.error(f"--{name} is {getattr(options, name)}; it must be at least {least}")
    if not options.max_spread > 0:
        parser.error(f"--max-spread is {options.max_spread:g}; it must be above 0")
    if not 0 < options.seconds < float("inf"):
        parser.error(f"--seconds is {options.seconds:g}; it must be above 0")
    for setting in options.set:
        if not setting.partition("=")[1] or setting.startswith("-"):
            parser.error(f"--set {setting} is not a setting: write key=value, such as data.num_envs=64")
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"--json {options.json} cannot be written: there is no folder {options.json.parent}")
    if uses_several_devices(options.set) and (peers := [each for each in options.against if each in PEERS]):
        parser.error(f"the peer {peers[0]} trains on one device: leave out trainer.devices or --against {peers[0]}")
    options.against = [resolve_peer(name) for name in dict.fromkeys(options.against)]
    return options


def resolve_peer(name: str) -> str:
    """Return a peer's name unchanged, or the path of a config.

    Raises:
        SystemExit: with code 2 and one sentence if it is neither, or not installed.
    """
    if name in PEERS:
        if find_spec(PEERS[name].package) is None:
            exit_with_error(f"The peer `{name}` is not installed: pip install -e '.[peers]' in the project's folder.")
        return name
    if not name.endswith((".yaml", ".yml")):
        exit_with_error(f"`--against {name}` is neither a config nor a peer: {nearest(name, PEERS)}")
    return require_config(find_config(name))


def compared(options: argparse.Namespace) -> dict[str, Any]:
    """Run the benchmark; return its results as plain values, the first contestant's at the top level."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leyden-benchmark-")))
        contestants = []
        for index, (name, peer, configs, settings) in enumerate(benchmark_entries(options)):
            home = folder / str(index)
            home.mkdir()
            contestant = BenchmarkWorker(name, peer, command_line(configs, settings), options.threads, home, stack)
            contestant.ask(f"train {options.seconds / 2}")
            contestants.append(contestant)
        for number in range(options.repeats):
            for contestant in contestants:
                contestant.repeat(options.seconds)
            speeds = "  ".join(f"{each.name} {each.speeds()[-1]:,.0f}" for each in contestants)
            print(f"repeat {number + 1}: env steps/s  {speeds}", flush=True)
        return outcome(contestants, options)


def benchmark_entries(options: argparse.Namespace) -> list[tuple[str, str | None, list[str], list[str]]]:
    """Return name, peer, configs and settings of every contestant, ours first; a peer uses the configs of ours.

    A benchmark of several devices is also compared with one device.
    """
    name = " + ".join(Path(config).name for config in options.config)
    entries: list[tuple[str, str | None, list[str], list[str]]] = [(name, None, options.config, options.set)]
    if uses_several_devices(options.set):
        entries.append(("one device", None, options.config, [*options.set, ONE_DEVICE]))
    for other in options.against:
        is_peer = other in PEERS
        configs = options.config if is_peer else [other]
        entries.append((other if is_peer else Path(other).name, other if is_peer else None, configs, options.set))
    return entries


def uses_several_devices(settings: Sequence[str]) -> bool:
    """Return whether the settings ask for more than one device."""
    return any(setting.startswith("trainer.devices=") and setting != ONE_DEVICE for setting in settings)


def command_line(configs: Sequence[str], settings: Sequence[str]) -> list[str]:
    """Return the arguments of `fit`; later ones win."""
    words = [word for config in configs for word in ("--config", str(Path(config).absolute()))]
    words += [f"--{setting}" for setting in (ONE_DEVICE, *settings)]
    return words + [f"--{key}={value}" for key, value in FORCED_SETTINGS.items()]


def outcome(contestants: list[BenchmarkWorker], options: argparse.Namespace) -> dict[str, Any]:
    """Return the measurements: medians over the repeats, seconds per iteration."""
    ours, *others = contestants
    facts = ours.ask("facts")
    fitted = [repeat["seconds"] / repeat["iterations"] for repeat in ours.trained]
    bare = [repeat["seconds"] / repeat["iterations"] for repeat in ours.bare]
    parts = {
        f"{name}_s": statistics.median(repeat["phases"][name] / repeat["iterations"] for repeat in ours.bare)
        for name in ours.bare[0]["phases"]
    }
    result = {
        "config": ours.name,
        "settings": options.set,
        "env_steps_per_s": statistics.median(ours.speeds()),
        "spread": known_spread(ours.speeds()),
        "iteration_s": statistics.median(fitted),
        **parts,
        "bare_s": statistics.median(bare),
        "other_s": max(0.0, statistics.median(whole - part for whole, part in zip(fitted, bare, strict=True))),
        "env_steps_per_cpu_s": ours.per_cpu_second(),
        "start_up_s": ours.start_up,
        **facts,
        "torch": torch.__version__,
        "threads": options.threads,
        "repeats": options.repeats,
        "seconds": options.seconds,
        "machine": machine(),
        "versions": versions(),
    }
    if others:
        peers = {each.name: statistics.median(each.speeds()) for each in others}
        result |= {"peers": peers, "peers_spread": {each.name: known_spread(each.speeds()) for each in others}}
        result["ratios"] = {each.name: ratio(ours, each, options.max_spread) for each in others}
        result["ratio"] = result["ratios"][max(peers, key=lambda name: peers[name])]
        result["peers_per_cpu_s"] = {each.name: each.per_cpu_second() for each in others}
        result["peers_memory_mib"] = {each.name: each.ask("facts")["peak_memory_mib"] for each in others}
    return result


def known_spread(values: Sequence[float]) -> float | None:
    """Return the spread of the repeats' values; None for one repeat, whose spread is unknown."""
    return spread(values) if len(values) > 1 else None


def ratio(ours: BenchmarkWorker, other: BenchmarkWorker, max_spread: float) -> float | None:
    """Return the ratio of the median speeds; None if its values in the repeats differ by more than `max_spread`.

    The spread of one repeat is unknown: its ratio is returned only if `max_spread` is infinite.
    """
    uneven = known_spread([one / another for one, another in zip(ours.speeds(), other.speeds(), strict=True)])
    if (math.inf if uneven is None else uneven) > max_spread:
        return None
    return statistics.median(ours.speeds()) / statistics.median(other.speeds())


def table(result: dict[str, Any]) -> str:
    """Format the results for a terminal."""
    name = result["config"]
    rows = [(name, speed(result["env_steps_per_s"], result["spread"], result["env_steps_per_cpu_s"]))]
    for peer, steps in result.get("peers", {}).items():
        measured = speed(steps, result["peers_spread"][peer], result["peers_per_cpu_s"][peer])
        rows.append((peer, f"{measured}; {comparison(result, peer)}"))
    for part in ("iteration", *PARTS):
        if (seconds := result.get(f"{part}_s")) is not None:
            share = seconds / result["iteration_s"]
            rows.append((part, f"{seconds * 1e3:.3f} ms an iteration, {share:.1%}"))
    if "all_reduce_s" in result:
        seconds, share = result["all_reduce_s"], result["all_reduce_s"] / result["iteration_s"]
        rows.append(("all-reduce", f"{seconds * 1e3:.3f} ms an iteration, {share:.1%}: gradients, measured alone"))
        rows.append(("ranks", f"{result['ranks']}; env steps/s of all together"))
    if result["num_agents"] > 1:
        steps = result["env_steps_per_s"] * result["num_agents"]
        rows.append(("agent steps", f"{steps:,.0f} agent steps/s, {result['num_agents']} agents an environment"))
    if result["num_members"] > 1:
        steps, members = result["env_steps_per_s"] * result["num_members"], result["num_members"]
        rows.append(("population", f"{steps:,.0f} env steps/s of {members} members together"))
    rows += [("memory", f"{result['peak_memory_mib']:,.0f} MiB at the peak")]
    rows += [("start", f"{result['start_up_s']:.1f} s to the first update, first calls {result['compile_s']:.1f} s")]
    rows += list(result["execution"].items())
    host = result["machine"]
    if host["load_per_core"] > 1:
        rows += [("note", "the machine is busy with other work: compare only measurements of this run")]
    rows += [("machine", f"{host['cpu']}, {counted(host['cores'], 'core')}, load {host['load_per_core']} a core")]
    rows += [("versions", ", ".join(f"{package} {number}" for package, number in result["versions"].items()))]
    width = max(len(label) for label, _ in rows) + 2
    return "\n".join(["", *(f"{label:<{width}}{text}" for label, text in rows), ""])


def comparison(result: dict[str, Any], peer: str) -> str:
    """Format the ratio of the speeds, or say why there is none."""
    found = result["ratios"][peer]
    if found is None:
        return ONE_REPEAT if result["repeats"] == 1 else TOO_BUSY
    return f"{result['config']} is {found:{'.2f' if found >= 1 else '.3g'}} times as fast"


def speed(median: float, uneven: float | None, per_cpu_second: float) -> str:
    """Format one contestant's speed; a spread that is unknown is left out."""
    spread_text = "" if uneven is None else f"spread {uneven:.1%}, "
    return f"{median:,.0f} env steps/s, {spread_text}{per_cpu_second:,.0f} a second of CPU time"
