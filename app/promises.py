"""What shortcuts in the loop of active dynamics are worth: each beside the plain way, in the run's own process.

rollout copies   a vector step is remembered and all that is remembered looked at: clones in lists that are stacked,
                 or a ring that is allocated once
transfers        metrics reach the log: each one by itself in every iteration, or all at once when it is time
kl weights       of the evidence lower bound: computed at every update, or once
agent step       where the agent is: the whole history encoded anew, or what it expected corrected

Only what a run does is measured: weights where its model has them, the agent where it acts on an encoder.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from app.probe import synchronize
from datamodules.sequence_ring import SequenceRing
from datamodules.sequence_types import Sequences
from datamodules.types import Rollout, Scalars
from modules.active_dynamics import ActiveDynamics
from modules.functional.elbo import step_weights
from modules.statistics import RunningMeans
from modules.training_log import Reading

REMEMBERED = 1_000
"""Steps of every agent that are remembered."""


class Promise(NamedTuple):
    """Two ways to do the same."""

    name: str
    naive: Callable[[], Any]
    ours: Callable[[], Any]


@torch.no_grad()
def promises(trainer: Any, model: Any, seconds: float) -> dict[str, dict[str, float]]:
    """Median seconds of one call by promise, `naive` and `ours`; empty where the run is no active dynamics.

    The environments move on. Call it between two iterations of a fit.
    """
    if not isinstance(model, ActiveDynamics):
        return {}
    every = list(promised(trainer, model))
    return {each.name: compared(each, seconds / len(every), model.device) for each in every}


def compared(promise: Promise, seconds: float, device: torch.device) -> dict[str, float]:
    """Median seconds of both ways, called in turn; the first calls are not counted."""
    ways = {"naive": promise.naive, "ours": promise.ours}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    end = time.perf_counter() + seconds
    while len(taken["ours"]) < 2 or time.perf_counter() < end:
        for name, way in ways.items():
            synchronize(device)
            began = time.perf_counter()
            way()
            synchronize(device)
            taken[name].append(time.perf_counter() - began)
    return {name: statistics.median(times[1:]) for name, times in taken.items()}


def promised(trainer: Any, model: ActiveDynamics) -> Iterator[Promise]:
    """What is measured of a run."""
    collector = trainer.datamodule.collector
    if collector is not None:
        rollout = collector.collect()
        ring = remembering(rollout)
        yield Promise("rollout copies", Lists(rollout).remember, lambda: remembered(ring, rollout))
    yield transfers(trainer.log_every_n_steps, model.device)
    weights = getattr(model.model, "weights", None)
    if weights is not None:
        decay = float(weights[1] / weights[0]) if len(weights) > 1 else 1.0
        device = weights.device
        yield Promise("kl weights", lambda: step_weights(len(weights), decay).to(device), lambda: model.model.weights)
    if collector is not None and not model.model.observed:
        yield agent_step(model, ring.history(), collector.live)


class Lists:
    """The plain way to remember: a clone of every step, stacked when they are looked at.

    Args:
        rollout: is remembered again and again.
    """

    def __init__(self, rollout: Rollout):
        self.rollout = rollout
        self.steps: deque[tuple[torch.Tensor, ...]] = deque(maxlen=REMEMBERED)
        while len(self.steps) < REMEMBERED:
            self.append()

    def append(self) -> None:
        """Clone the steps of the rollout."""
        for obs, action, valid, ended, cut in zip(*columns(self.rollout), strict=True):
            self.steps.append((obs.clone(), action.clone(), (valid & ~(ended | cut)).clone()))

    def remember(self) -> Sequences:
        """Remember the rollout; all that is remembered."""
        self.append()
        obs, action, joined = (torch.stack(column) for column in zip(*self.steps, strict=True))
        return Sequences(torch.cat([obs, self.rollout.obs[-1:]]), action, joined)


def columns(rollout: Rollout) -> tuple[torch.Tensor, ...]:
    """What is remembered of every step."""
    return rollout.obs[:-1], rollout.action, rollout.valid, rollout.terminated, rollout.truncated


def remembering(rollout: Rollout) -> SequenceRing:
    """A ring that is full of a rollout."""
    ring = SequenceRing(REMEMBERED, 1)
    while ring.size < REMEMBERED:
        ring.store(rollout)
    return ring


def remembered(ring: SequenceRing, rollout: Rollout) -> Sequences:
    """Remember the rollout; all that is remembered."""
    ring.store(rollout)
    return ring.history()


def transfers(iterations: int, device: torch.device) -> Promise:
    """Means of the metrics of as many iterations."""
    metrics, means = Scalars(("dynamics/loss", "dynamics/grad_norm"), torch.ones(2, device=device)), RunningMeans()

    def naive() -> list[float]:
        read = [[float(value.cpu()) for value in metrics.values] for _ in range(iterations)]
        return [statistics.fmean(column) for column in zip(*read, strict=True)]

    def ours() -> list[float]:
        for _ in range(iterations):
            means.update(metrics)
        return Reading(0, means.take()).values()[0]

    return Promise("transfers", naive, ours)


def agent_step(model: ActiveDynamics, history: Sequences, live: Any) -> Promise:
    """Where the agents are, after as many steps as there are."""
    control = model.model.action_encoder(history.action[-1])
    obs, going = live.obs.flatten(1), torch.zeros_like(live.reset)

    def ours() -> Any:
        belief, _ = model.tracker.correct(obs, live.actor, going)
        return model.tracker.predict(belief, control)

    return Promise("agent step", lambda: model.encoded(history)[-1], ours)
