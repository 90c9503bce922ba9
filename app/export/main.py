"""`python -m app export`: write the policy of a checkpoint as one file, and compare its actions with the agent's."""

import argparse
import json
import logging
import shutil
import sys
from pathlib import Path

import torch

from app.agent.checkpoint_option import add_ckpt_path, load_agent_and_data
from app.cli.error_messages import PlainParser, exit_with_error
from app.export.comparison import TOLERANCE, Difference, export_and_compare
from app.export.decision import sizes_of
from app.export.formats import FORMATS
from app.export.model_card import write_card
from callbacks.run_control.atomic_write import atomic_write
from callbacks.run_control.checkpoint import run_folder
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.printable import counted

OBSERVATIONS = 1_000


def main() -> None:
    """Export a checkpoint.

    Raises:
        SystemExit: with code 2 and one sentence for invalid input, 1 if the exported file decides otherwise.
    """
    options = make_parser().parse_args(sys.argv[2:])
    if options.observations < 2:
        exit_with_error("`--observations` must be at least 2.")
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    try:
        found = run(options)
    except ConfigurationError as error:
        exit_with_error(str(error))
    if not found.holds:
        raise SystemExit(1)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the verb's options."""
    parser = PlainParser("python -m app export", description="Export the decision of a trained agent.")
    add_ckpt_path(parser)
    parser.add_argument("--format", choices=[*FORMATS], default="onnx", help="format of the file (onnx)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder to write (RUN/export)")
    parser.add_argument(
        "--observations", type=int, default=OBSERVATIONS, help=f"recorded observations to compare ({OBSERVATIONS})"
    )
    return parser


def run(options: argparse.Namespace) -> Difference:
    """Export, compare, and write the model card; return the comparison.

    A file that decides otherwise than the agent is removed.

    Raises:
        ConfigurationError: for a checkpoint, an algorithm or an environment that cannot be exported.
    """
    agent, data = load_agent_and_data(options.ckpt_path)
    assert agent.path is not None
    folder = options.output or run_folder(agent.path, ".") / "export"
    path = folder / FORMATS[options.format]
    decision, example, recorded, found = export_and_compare(
        agent.module, data, options.observations, options.format, path
    )
    said = (
        f"{counted(found.observations, 'observation')} of {counted(recorded.episodes, 'episode')}: largest"
        f" difference {found.largest:.1e}"
        f" (limit {TOLERANCE:.0e}), other discrete actions {found.other_actions}"
    )
    if not found.holds:
        path.unlink()
        print(f"Not exported, because the file decides otherwise than the agent: {said}.")
        return found
    with torch.no_grad():
        outputs = decision(example)
    signature = {"inputs": sizes_of(example), "outputs": sizes_of(outputs), "comparison": found._asdict()}
    with atomic_write(folder / f"{path.name}.json") as file:
        file.write(json.dumps(signature, indent=1).encode() + b"\n")
    write_card(folder, agent, path.name, signature, said)
    config = run_folder(agent.path, ".") / "config.yaml"
    if config.is_file():
        shutil.copyfile(config, folder / "config.yaml")
    print(f"Exported {path}, compared with the agent on {said}.\nModel card: {folder / 'README.md'}")
    return found
