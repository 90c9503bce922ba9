"""The Elo system: ratings from the results of games."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

START_RATING = 1500.0
SCALE = 400.0
"""Difference of ratings at which the stronger player is expected to score ten times as much as the weaker."""


class Game(NamedTuple):
    """Two players, and the score of the first: 1 for a win, 0.5 for a draw, 0 for a loss."""

    first: str
    second: str
    score: float


class Record(NamedTuple):
    """Games of a player: won, drawn and lost."""

    won: int
    drawn: int
    lost: int


def expected_score(rating: float, other: float) -> float:
    """Return the expected score against another player, `1 / (1 + 10 ** ((other - rating) / 400))`.

    Source: Elo 1978, "The Rating of Chessplayers, Past and Present", section 8.4.
    """
    return 1 / (1 + 10 ** ((other - rating) / SCALE))


def elo_ratings(players: Sequence[str], games: Iterable[Game], k_factor: float) -> dict[str, float]:
    """Return the ratings after the games in their order, from `START_RATING`.

    Args:
        k_factor: points that a player moves for each point of score above the expected one.
    """
    ratings = dict.fromkeys(players, START_RATING)
    for first, second, score in games:
        moved = k_factor * (score - expected_score(ratings[first], ratings[second]))
        ratings[first] += moved
        ratings[second] -= moved
    return ratings


def record(player: str, games: Iterable[Game]) -> Record:
    """Return how many games a player won, drew and lost."""
    scores = [score if player == first else 1 - score for first, second, score in games if player in (first, second)]
    return Record(scores.count(1.0), scores.count(0.5), scores.count(0.0))
