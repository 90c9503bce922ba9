"""Run `python -m MODULE` in a fork of the process of the tests, which has imported torch and Lightning already."""

import gc
import importlib
import logging
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from multiprocessing import forkserver, resource_tracker
from typing import Any

FIRST_FD, LAST_FD = 3, 4096
"""Range of file descriptors that a new program does not inherit."""


class ForkedPopen(subprocess.Popen):
    """A `subprocess.Popen` that forks for commands of the form `[..., sys.executable, ..., "-m", module, *words]`.

    The function that is called before `exec` runs the module and ends the process. Pipes, working directory, session
    and exit code are those of `Popen`; what precedes `-m`, such as `nice` or an option, has no effect. With a
    GPU the program is started: CUDA cannot be used in a fork.
    """

    def __init__(self, args: Any, *more: Any, **settings: Any):
        if isinstance(args, list) and sys.executable in args and "-m" in args and not has_gpu():
            module, *words = args[args.index("-m") + 1 :]
            sys.stdout.flush(), sys.stderr.flush()  # the fork would write what they hold once more
            settings["preexec_fn"] = partial(run_module, module, words, settings.get("env"))
        super().__init__(args, *more, **settings)


def has_gpu() -> bool:
    """Return whether torch finds a GPU."""
    import torch  # not at the top, which every worker imports

    return torch.cuda.is_available()


def run_module(module: str, words: Sequence[str], environ: Mapping[str, str] | None) -> None:
    """Run a module as a new interpreter would, and end the process with its exit code."""
    code = 1
    try:
        begin_program(environ)
        sys.argv = [module, *words]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def begin_program(environ: Mapping[str, str] | None) -> None:
    """Set environment variables, files and signals to those of a program that has just started."""
    gc.freeze()  # objects of the tests stay: a finalizer would close a descriptor that has another file
    os.closerange(FIRST_FD, LAST_FD)
    for helper in (forkserver._forkserver, resource_tracker._resource_tracker):
        vars(helper).update(vars(type(helper)()))  # the descriptors of those of the tests are closed
    tempfile.tempdir = None  # that of the program's environment variables
    if environ is not None:
        os.environ.clear()
        os.environ.update(environ)
    sys.path[:0] = [os.getcwd()]
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(fd, mode, closefd=False) for fd, mode in enumerate("rww"))
    logging.getLogger().handlers.clear()  # pytest's
    importlib.reload(warnings)  # pytest records them
    for handler in (each for name in ("pytorch", "fabric") for each in logging.getLogger(f"lightning.{name}").handlers):
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stderr)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
