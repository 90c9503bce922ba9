"""Check an environment: Gymnasium's checker, Leyden's requirements, random episodes, backends and their speed."""

import contextlib
import io
import json
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
from gymnasium.utils.env_checker import check_env

from app.cli.import_policy import trusted
from app.envs.listing import describe_spaces
from app.envs.speed import RandomEpisodes, measure_speed, play_randomly
from datamodules.core.errors import ConfigurationError
from datamodules.envs.functional_torch_env import FunctionalTorchEnv
from datamodules.rendering.offscreen import render_offscreen
from datamodules.vector.make_env import env_backends, probe_spaces
from datamodules.vector.resolve_env import ResolvedEnv, resolve_env

Say = Callable[[str], None]

NUM_ENVS, SECONDS, PLAYED_STEPS, PLAYED_SECONDS = 16, 1.0, 500, 5.0
"""Environments and seconds of a speed test; vector steps and seconds of random play."""

WORTHWHILE = 1.2
"""Least ratio of speeds for which another backend than that of `auto` is advised."""

WINDOW = "human"
"""Render mode that opens a window, which is not checked."""

COLOUR = re.compile(r"\x1b\[\d+m|^WARN: ")
ADVICE = re.compile(r"We recommend using|Not able to test alternative render modes|is different from the unwrapped")
"""Warnings of the checker about how it was called."""


def check_environment(env: str, kwargs: dict[str, Any], say: Say) -> bool:
    """Check an environment and say the results; return whether nothing has to be fixed.

    Args:
        env: a Gymnasium id or a dotted path.
        kwargs: its arguments.
        say: prints a line.

    Raises: ConfigurationError if there is no such environment.
    """
    source, to_fix, consider = resolve_env(env), [], []
    say(env)
    try:
        say(f"  spaces     {describe_spaces(probe_spaces(env, kwargs))}")
        say("  contract   kept: a reset and a step return what training reads")
    except Exception as error:
        to_fix.append(f"{_text(error)}")
        say("  contract   broken")
    errors, warned = gymnasium_complaints(source, env, kwargs)
    judged = source.spec is not None or source.tensor_env is not None
    verdict = "fails" if errors else "warns" if warned else "passes" if judged else "is for environments of one agent"
    say(f"  gymnasium  check_env {verdict}")
    to_fix += [each for each in errors if not any(each in known for known in to_fix)]
    consider += warned
    if not to_fix:
        for part, text, is_error in played(env, kwargs):
            (to_fix if is_error else consider).append(text) if part != "episodes" else say(f"  episodes   {text}")
        consider += list(speeds(env, kwargs, say))
    for title, texts in (("To fix:", to_fix), ("To consider:", consider)):
        if texts:
            say("\n".join([title, *(f"  {number}. {text}" for number, text in enumerate(texts, 1))]))
    if not to_fix:
        given = f" --data.env_kwargs '{json.dumps(kwargs)}'" if kwargs else ""
        trust = "".join(f" --trust {name}" for name in trusted())
        say(f"Train: python -m app fit --config ppo_cartpole.yaml --data.env {env} --data.backend auto{given}{trust}")
    return not to_fix


def gymnasium_complaints(source: ResolvedEnv, env: str, kwargs: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the error, if there is one, and the warnings of Gymnasium's checker; both empty for other interfaces."""
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    errors: list[str] = []
    render_offscreen()
    with warnings.catch_warnings(record=True) as caught, quiet[0], quiet[1]:
        warnings.simplefilter("always")
        try:
            if source.spec is not None:
                one = gym.make(source.spec, disable_env_checker=True, **kwargs)
                bare, modes = one.unwrapped, one.metadata.get("render_modes", [])
                bare.metadata = {**bare.metadata, "render_modes": [mode for mode in modes if mode != WINDOW]}
                check_env(bare)
            elif source.tensor_env is not None and source.tensor_env(**kwargs).spaces["num_agents"] == 1:
                one = FunctionalTorchEnv(env, **kwargs)
                check_env(one, skip_render_check=True)
            else:
                return [], []
            one.close()
        except Exception as error:
            errors.append(f"Gymnasium's check_env: {_text(error)}")
    texts = dict.fromkeys(" ".join(COLOUR.sub("", str(each.message)).split()) for each in caught)
    own = [text.removeprefix("WARN: ") for text in texts if not ADVICE.search(text)]
    return errors, [f"Gymnasium's check_env: {text}" for text in own]


def played(env: str, kwargs: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Play random actions; yield the kind of each result, its text, and whether it has to be fixed."""
    try:
        seen = play_randomly(env, kwargs, NUM_ENVS, PLAYED_STEPS, PLAYED_SECONDS)
    except Exception as error:
        yield "error", f"Random actions: {_text(error)}", True
        return
    yield "episodes", _episodes(seen), False
    if not seen.finite:
        yield "error", "Rewards or observations are not finite: return finite numbers only.", True
    if not seen.ended:
        limit = "--data.wrappers '[{class_path: TimeLimit, init_args: {max_episode_steps: 1000}}]'"
        yield (
            "advice",
            f"No episode ended within {seen.steps} steps: a time limit lets it be evaluated, {limit}.",
            False,
        )
    if not seen.rewarded:
        yield "advice", "Every reward was 0: random exploration finds nothing to learn from.", False


def _episodes(seen: RandomEpisodes) -> str:
    if not seen.ended:
        return f"none ended in {seen.steps:,} random steps"
    means = f"mean return {seen.mean_return:.4g}, mean length {seen.mean_length:.4g}"
    return f"{seen.ended:,} in {seen.steps:,} random steps: {means}"


def speeds(env: str, kwargs: dict[str, Any], say: Say) -> Iterator[str]:
    """Measure the speed of every backend and say it; yield advice."""
    measured: dict[str, float] = {}
    first, *_ = backends = env_backends(env, NUM_ENVS)
    for backend in backends:
        try:
            measured[backend] = measure_speed(env, kwargs, backend, NUM_ENVS, SECONDS)
        except Exception as error:
            yield f"The backend {backend} cannot be used: {_text(error)}"
    shown = ", ".join(f"{name} {speed:,.0f}" for name, speed in measured.items())
    say(f"  speed      {shown} env steps/s ({NUM_ENVS} environments, random actions; auto is {first})")
    best = max(measured, key=measured.__getitem__, default=first)
    if measured.get(best, 0.0) > WORTHWHILE * measured.get(first, 0.0):
        yield f"The backend {best} is the fastest here: --data.backend {best}."


def _text(error: Exception) -> str:
    """Return an error on one line, with its type unless it is Leyden's."""
    said = " ".join(COLOUR.sub("", str(error)).split()) or "no message"
    return said if isinstance(error, ConfigurationError) else f"{type(error).__name__}: {said}"
