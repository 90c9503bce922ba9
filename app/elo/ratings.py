"""Elo ratings by maximum likelihood from the results of games."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MEAN_RATING = 1500.0
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


class Rating(NamedTuple):
    """Elo rating, and the half-width of its 95 % interval, both in points."""

    rating: float
    interval: float


def expected_score(rating: float, other: float) -> float:
    """Return the expected score against another player, `1 / (1 + 10 ** ((other - rating) / 400))`.

    Source: Elo 1978, "The Rating of Chessplayers, Past and Present", section 8.4.
    """
    return 1 / (1 + 10 ** ((other - rating) / SCALE))


def elo_ratings(players: Sequence[str], games: Sequence[Game]) -> dict[str, Rating]:
    """Return the ratings under which the results are most likely; their mean is `MEAN_RATING`.

    The order of the games does not matter. A draw counts as half a win, and every pair is given one more draw, so that
    a player who wins every game has a finite rating. Intervals are those of the likelihood's curvature; they are too
    wide if many games are drawn.

    Source: Bradley and Terry 1952, "Rank Analysis of Incomplete Block Designs", by Newton's method.
    """
    place = {name: number for number, name in enumerate(players)}
    scores = np.full((len(players), len(players)), 0.5)
    for first, second, score in games:
        scores[place[first], place[second]] += score
        scores[place[second], place[first]] += 1 - score
    np.fill_diagonal(scores, 0)
    played, strength = scores + scores.T, np.zeros(len(players))
    for _ in range(100):
        expected = 1 / (1 + np.exp(strength[None] - strength[:, None]))
        information = -played * expected * (1 - expected)
        np.fill_diagonal(information, -information.sum(1))
        covariance = np.linalg.pinv(information, hermitian=True)
        strength = strength + np.clip(covariance @ (scores - played * expected).sum(1), -1, 1)
    points = SCALE / np.log(10)
    intervals = 1.96 * points * np.sqrt(np.diag(covariance))
    return {
        name: Rating(float(MEAN_RATING + points * (strength[i] - strength.mean())), float(intervals[i]))
        for name, i in place.items()
    }


def record(player: str, games: Sequence[Game]) -> Record:
    """Return how many games a player won, drew and lost."""
    scores = [score if player == first else 1 - score for first, second, score in games if player in (first, second)]
    return Record(scores.count(1.0), scores.count(0.5), scores.count(0.0))
