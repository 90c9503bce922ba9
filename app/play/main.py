"""`python -m app play`: play episodes of a checkpoint as a video or in a window, each action beside its frame."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from app.agent.checkpoint_option import add_ckpt_path, load_agent_and_data
from app.cli.error_messages import PlainParser, exit_with_error
from app.play.window import Window
from callbacks.run_control.checkpoint import run_folder
from callbacks.video.encoding import VideoWriter, require_mp4, video_writer
from callbacks.video.overlay import draw_frame
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.printable import counted
from datamodules.rendering.episode import RenderedStep
from modules.base.algorithm import Algorithm


def main() -> None:
    """Play the episodes.

    Raises:
        SystemExit: with code 2 and one sentence for invalid input.
    """
    options = make_parser().parse_args(sys.argv[2:])
    if options.episodes < 1 or (options.max_steps is not None and options.max_steps < 1):
        exit_with_error("`--episodes` and `--max_steps` must be at least 1.")
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    try:
        if not options.window:
            check_videos(options.video or ())
        play(options)
    except ConfigurationError as error:
        exit_with_error(str(error))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the verb's options."""
    parser = PlainParser("python -m app play", description="Watch episodes of a trained agent.")
    add_ckpt_path(parser)
    parser.add_argument(
        "--video",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="write .mp4 or .gif files (RUN/videos/play.mp4; play.gif where the packages of MP4 are missing)",
    )
    parser.add_argument("--window", action="store_true", help="show the episodes in a window instead")
    parser.add_argument("--episodes", type=int, default=1, help="episodes to play (1)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first episode; each next one adds 1 (1)")
    parser.add_argument("--sample", action="store_true", help="sample actions, instead of the most likely ones")
    parser.add_argument("--max_steps", type=int, help="cut episodes after this number of steps")
    return parser


def check_videos(videos: Sequence[Path]) -> None:
    """Check that videos of these names can be written; this needs no checkpoint.

    Raises:
        ConfigurationError: for another ending than .mp4 and .gif, and for an MP4 without the packages that it needs.
    """
    for video in videos:
        if video.suffix == ".mp4":
            require_mp4()
        else:
            video_writer(video, fps=1)  # checks the ending, and writes nothing yet


def default_video(run: Path) -> Path:
    """Return the video of a run without `--video`: an MP4, or a GIF with a printed reason if MP4 cannot be written."""
    try:
        require_mp4()
    except ConfigurationError:
        print(
            "The video is a GIF, because an MP4 needs imageio and imageio-ffmpeg: pip install -e '.[video]' in the"
            " project's folder.",
            flush=True,
        )
        return run / "videos" / "play.gif"
    return run / "videos" / "play.mp4"


def play(options: argparse.Namespace) -> None:
    """Play the episodes of the options, and print what came out of each.

    Raises:
        ConfigurationError: for a checkpoint, an environment or a video that cannot be used.
    """
    agent, data = load_agent_and_data(options.ckpt_path)
    assert agent.path is not None
    videos = [] if options.window else options.video or [default_video(run_folder(agent.path, "."))]
    data.eval_max_steps = options.max_steps or data.eval_max_steps
    sinks: list[VideoWriter] = []
    for number in range(options.episodes):
        greedy = False if options.sample else None
        for step in data.rendered_episode(agent.module, options.seed + number, greedy):
            if not sinks:
                sinks = [Window(step.fps)] if options.window else [video_writer(each, step.fps) for each in videos]
            frame = draw_frame(step, details_of(agent.module, step))
            for sink in sinks:
                sink.add(frame)
        print(f"episode {number + 1}: {counted(step.step, 'step')}, return {step.episode_return:.6g}", flush=True)
    for sink in sinks:
        sink.close()
    if videos:
        print(f"Video: {', '.join(map(str, videos))}")


@torch.no_grad()
def details_of(module: Algorithm, step: RenderedStep) -> dict[str, Any]:
    """Return what the algorithm says of a decision; nothing in the last state."""
    return {} if step.output is None else module.action_details(step.inputs, step.output, step.state)
