import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from callbacks.run_control.signal_watchdog import SignalWatchdog

ROOT = Path(__file__).resolve().parents[3]
STUCK = """
import ctypes, threading
from callbacks.run_control.signal_watchdog import SignalWatchdog
from datamodules.core.signals import exits_on_signal

with SignalWatchdog(grace=0.2), exits_on_signal():
    mutex, c = ctypes.create_string_buffer(128), ctypes.CDLL(None)
    c.pthread_mutex_lock(mutex)
    threading.Timer(0.5, lambda: print("ready", flush=True)).start()  # once the main thread is stuck
    c.pthread_mutex_lock(mutex)  # waits for itself, in C, where no handler written in Python runs
"""


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGHUP])
def test_a_second_signal_ends_a_process_whose_main_thread_is_stuck(first: signal.Signals) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", STUCK], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.send_signal(first)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)

        assert process.wait(100) == 143


def test_a_watchdog_gives_back_the_descriptor_that_signals_are_written_to() -> None:
    with SignalWatchdog(grace=60):
        inside = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(inside)

    assert inside != -1 and signal.set_wakeup_fd(-1) == -1
