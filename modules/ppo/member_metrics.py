"""Metrics of the members of a population, by tags that end with the member's seed: `eval/return_mean/seed_3`."""

import re
import statistics
from collections.abc import Mapping, Sequence

from torch import nn

from datamodules.core.types import EpisodeBatch
from modules.base.episode_metrics import EvaluationStats, TrainingEpisodeStats
from modules.base.metric_logger import MetricLogger

MEMBER_TAG = re.compile(r"(.+)/seed_(\d+)")


class MemberMetricLogger(MetricLogger):
    """MetricLogger of metrics `[names, members]`, which it returns by the tags of the members."""

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__()
        self.members = {seed: TrainingEpisodeStats() for seed in seeds}

    def by_tag(self, names: Sequence[str], means: list[float], totals: list[float]) -> dict[str, float]:
        """Return the values of all members by tag."""
        number = len(self.members)
        values: dict[str, float] = {}
        for index, (seed, episodes) in enumerate(self.members.items()):
            episodes.names = self.episodes.names
            member = self.tagged(names, means[index::number], episodes.means(totals[index::number]))
            values |= {f"{tag}/seed_{seed}": value for tag, value in member.items()}
        return values

    def by_agent(self, log: Mapping[str, float]) -> dict[str, Mapping[str, float]]:
        """Return the values of every member."""
        members = split_by_member(log, list(self.members))
        return {f"seed {seed}": member for seed, member in members.items()}


class MemberEvaluations(nn.Module):
    """EvaluationStats of every member, from batches that hold the episodes of member after member."""

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__()
        self.seeds, self.each = list(seeds), [EvaluationStats() for _ in seeds]

    @property
    def is_complete(self) -> bool:
        """Return whether the last evaluation was completed."""
        return all(each.is_complete for each in self.each)

    def update(self, episodes: EpisodeBatch) -> None:
        """Add whole episodes, the same number of every member; an empty batch marks an interrupted evaluation."""
        size = len(episodes.episode_return) // len(self.seeds)
        for index, each in enumerate(self.each):
            rows = slice(index * size, (index + 1) * size)
            info = {name: value[rows] for name, value in episodes.info.items()}
            each.update(EpisodeBatch(episodes.episode_return[rows], episodes.length[rows], info, []))

    def compute(self) -> dict[str, float]:
        """Return the statistics of every member by name and seed; empty if the evaluation was interrupted."""
        statistics_by_seed = zip(self.seeds, [each.compute() for each in self.each], strict=True)
        return {f"{name}/seed_{seed}": value for seed, member in statistics_by_seed for name, value in member.items()}

    def reset(self) -> None:
        """Remove the episodes."""
        for each in self.each:
            each.reset()


def split_by_member(values: Mapping[str, float], seeds: Sequence[int]) -> dict[int, dict[str, float]]:
    """Return the values of every member, and those without a seed, by seed and by their tags without it."""
    members: dict[int, dict[str, float]] = {seed: {} for seed in seeds}
    shared = {}
    for tag, value in values.items():
        if match := MEMBER_TAG.fullmatch(tag):
            members[int(match[2])][match[1]] = value
        else:
            shared[tag] = value
    return {seed: shared | member for seed, member in members.items()}


def means_over_members(members: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """Return the mean over the members of every value that a member has, by tag."""
    groups: dict[str, list[float]] = {}
    for member in members.values():
        for tag, value in member.items():
            groups.setdefault(tag, []).append(value)
    return {tag: statistics.fmean(group) for tag, group in groups.items()}
