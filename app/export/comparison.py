"""Record observations and actions of an agent, and compare those of an exported policy with them."""

from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from app.export.decision import Decision, Named
from app.export.formats import Runner, export
from datamodules.base import EnvDataModule
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.printable import counted
from datamodules.core.types import PolicyInput
from modules.base.algorithm import Algorithm

TOLERANCE = 1e-5
"""Largest difference of a number, in units of the largest bound of the action."""

SINGLE_STEPS = 200
"""Observations that are also decided one by one, with the exported state carried from step to step."""


class Record(NamedTuple):
    """Decisions of an agent in its environment, in the order in which they were taken: inputs of one row each."""

    inputs: list[PolicyInput]
    episodes: int


class Difference(NamedTuple):
    """Result of a comparison.

    observations: number of them.   largest: difference of a continuous action or a state, in units of the action's
    largest bound.   other_actions: discrete actions that differ.
    """

    observations: int
    largest: float
    other_actions: int

    @property
    def holds(self) -> bool:
        """Return whether the exported decision is that of the agent."""
        return self.largest <= TOLERANCE and self.other_actions == 0


class Exported(NamedTuple):
    """An exported decision: the module, an example of its inputs, the recorded decisions, and the comparison."""

    decision: Decision
    example: Named
    record: Record
    difference: Difference


def export_and_compare(module: Algorithm, data: EnvDataModule, observations: int, kind: str, path: Path) -> Exported:
    """Record decisions of an agent, write its decision to a file, and compare the file with the agent.

    Args:
        module: the algorithm, on the CPU and in eval mode.
        data: its data, whose episodes are played.
        observations: number of recorded observations, at least 2.
        kind: format, of `app.export.formats.FORMATS`.

    Raises:
        ConfigurationError: for an agent or an environment whose decision cannot be exported.
    """
    decision = Decision(module).eval()
    recorded = record(data, decision, observations)
    decision.masked = recorded.inputs[0].action_mask is not None
    example = decision.batch(recorded.inputs[:2])
    return Exported(decision, example, recorded, compare(decision, export(decision, example, kind, path), recorded))


def record(data: EnvDataModule, decision: Decision, observations: int) -> Record:
    """Play greedy episodes until this number of observations was decided."""
    inputs: list[PolicyInput] = []
    episodes = 0
    while len(inputs) < observations:
        episode = data.rendered_episode(decision.module, seed=1 + episodes, greedy=True, images=False)
        decided = (step.inputs for step in episode if step.output is not None)
        inputs += islice(decided, observations - len(inputs))
        episodes += 1
    return Record(inputs, episodes)


@torch.no_grad()
def compare(decision: Decision, runner: Runner, record: Record) -> Difference:
    """Run an exported decision on recorded observations, all at once and one by one, and compare it with the agent's.

    One by one the exported state is carried from step to step, so that differences would add up.

    Raises:
        ConfigurationError: if the exported decision cannot be run.
    """
    rows, batch = [decision.named(each) for each in record.inputs], decision.batch(record.inputs)
    try:
        found = [difference(decision, runner(batch), decision(batch))]
        state: Named = {}
        for row in rows[:SINGLE_STEPS]:
            carried = row | {name: leaf for name, leaf in state.items() if name in row}
            outputs = runner(carried)
            found.append(difference(decision, outputs, decision(row)))
            state = {name.removeprefix("next_"): leaf for name, leaf in outputs.items()}
    except (RuntimeError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"The exported decision cannot be run on {counted(len(rows), 'observation')}: {error}."
        ) from error
    return Difference(len(rows), max(each.largest for each in found), sum(each.other_actions for each in found))


def difference(decision: Decision, outputs: Named, expected: Named) -> Difference:
    """Compare outputs of a decision."""
    scale, largest, others = decision.encoder.scale, 0.0, 0
    for name, value in expected.items():
        if value.is_floating_point():
            unit = scale if name == "action" else 1.0
            largest = max(largest, float((outputs[name] - value).abs().max()) / unit)
        else:
            others += int(_rows(outputs[name] != value).any(1).sum())
    return Difference(len(expected["action"]), largest, others)


def _rows(different: Tensor) -> Tensor:
    return different.reshape(len(different), -1)
