"""Export a `Decision` as ONNX or as a program of `torch.export`, and run such a file."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from app.export.decision import Named
from datamodules.core.errors import ConfigurationError

FORMATS = {"onnx": "policy.onnx", "torch-export": "policy.pt2"}
"""File name by format."""

Runner = Callable[[Named], Named]
"""An exported decision: inputs and outputs by name, as those of `app.export.decision.Decision`."""


def export(decision: nn.Module, example: Named, kind: str, path: Path) -> Runner:
    """Write a decision for any number of rows, and return the function that runs the written file.

    Args:
        example: inputs of at least two rows.

    Raises:
        ConfigurationError: without the packages of the format, and for a module that cannot be traced.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = torch.export.Dim("batch", min=1)
    shapes = ({name: {0: rows} for name in example},)
    with quiet(), torch.no_grad():
        try:
            program = torch.export.export(decision, (example,), dynamic_shapes=shapes)
        except Exception as error:
            first = str(error).strip().split("\n")[0]
            raise ConfigurationError(
                f"The decision cannot be traced ({type(error).__name__}: {first}): write the network's forward without"
                " branches on values of tensors, and with x.shape[0] instead of len(x)."
            ) from error
        outputs = [*decision(example)]
        return _onnx(program, [*example], outputs, path) if kind == "onnx" else _torch_export(program, path)


def _torch_export(program: torch.export.ExportedProgram, path: Path) -> Runner:
    torch.export.save(program, path)
    return torch.export.load(path).module()


def _onnx(program: torch.export.ExportedProgram, inputs: list[str], outputs: list[str], path: Path) -> Runner:
    try:
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            f"ONNX needs onnx, onnxscript and onnxruntime ({error}): pip install -e '.[export]' in the project's"
            " folder, or choose --format torch-export."
        ) from error
    torch.onnx.export(program, f=path, input_names=inputs, output_names=outputs, external_data=False, verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    taken = [each.name for each in session.get_inputs()]

    def run(named: Named) -> Named:
        feeds = {name: named[name].numpy() for name in taken}
        return {name: as_tensor(value) for name, value in zip(outputs, session.run(outputs, feeds), strict=True)}

    return run


def as_tensor(value: object) -> Tensor:
    """Return an output of a session as a tensor."""
    return torch.from_numpy(np.asarray(value))


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the exporters' messages, which need no action."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.export", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
