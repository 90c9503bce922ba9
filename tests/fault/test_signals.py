"""One or two stop signals at random moments of a small fit: its exit code tells, and `last` loads and goes on."""

import os
import random
import sys
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

import pytest

from app.__main__ import main
from datamodules.core.files.run_checkpoints import load_checkpoint
from datamodules.core.signals import STOP_SIGNALS
from tests.fault import print_count
from tests.fault.test_kill import wait_for

SIGNALS = 10
SETTINGS = {
    "data.total_env_steps": "1e8", "data.num_envs": "4", "data.rollout_length": "16", "data.eval_episodes": "4",
    "trainer.val_check_interval": "3", "trainer.accelerator": "cpu",
}  # fmt: skip


def fit(folder: Path, said: Path, *words: str) -> None:
    """Run the program in this process, in a folder, and write what it says into a file."""
    os.chdir(folder)
    output = os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1), os.dup2(output, 2)
    sys.argv = ["app", "fit", "--config", "ppo_cartpole.yaml", *words]
    sys.argv += [f"--{key}={value}" for key, value in SETTINGS.items()]
    main()


def exit_code(folder: Path, said: Path, numbers: Sequence[int], draw: random.Random, *words: str) -> int | None:
    """Start a fit, send it signals at random moments, and return its exit code as a shell does; None if it goes on.

    A quarter of the signals come from the first moment on, the others after training has begun.
    """
    child = get_context("fork").Process(target=fit, args=(folder, said, *words))
    child.start()
    wait_for(said)
    deadline = time.monotonic() + 60 * (draw.random() > 0.25)
    while "Execution:" not in said.read_text(errors="replace") and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(draw.uniform(0, 2))
    for number in numbers:
        os.kill(child.pid or 0, number)
        time.sleep(draw.uniform(0, 0.1))
    child.join(60)
    code = child.exitcode
    child.kill()
    return 128 - code if code is not None and code < 0 else code


def last_iteration(folder: Path) -> int:
    """The iteration of the newest run's last checkpoint, which loads; 0 if there is none."""
    found = {int(path.parent.parent.name.removeprefix("version_")): path for path in folder.rglob("last.ckpt")}
    return load_checkpoint(found[max(found)])["global_step"] if found else 0


@pytest.mark.fault
@pytest.mark.parametrize("count", [1, 2])
def test_signals_at_random_moments_end_the_program_and_last_loads(count: int, tmp_path: Path) -> None:
    held, stopped, iteration, draw = 0, 0, 0, random.Random(count)

    for case in range(SIGNALS):
        said, numbers = tmp_path / f"said-{case}", [draw.choice(STOP_SIGNALS) for _ in range(count)]
        code = exit_code(tmp_path, said, numbers, draw, *(["--ckpt_path", "last"] if iteration else []))
        before, iteration = iteration, last_iteration(tmp_path)
        saved = "Stopped by SIG" in said.read_text(errors="replace")
        stopped += saved
        right = code in [128 + number for number in numbers] and iteration >= before + saved
        held += right
        if not right:
            print(f"\ncase {case}: {numbers} ended with {code}, iterations {before} and {iteration}")
            print(said.read_text(errors="replace")[-2000:])

    shown = f"{count} {' or '.join(number.name for number in STOP_SIGNALS)} at random moments, {stopped} saved"
    print_count(shown, held, SIGNALS)
    assert held == SIGNALS
