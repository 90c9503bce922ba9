import itertools
import math

import numpy as np
import pytest

from app.elo.ratings import Game, Record, elo_ratings, expected_score, record


def test_400_points_are_ten_times_the_score() -> None:
    assert expected_score(1900, 1500) == pytest.approx(10 / 11)
    assert expected_score(1500, 1900) == pytest.approx(1 / 11)
    assert expected_score(1500, 1500) == 0.5


def test_the_ratings_make_the_results_expected() -> None:
    games = (
        [Game("a", "b", 1.0)] * 7 + [Game("b", "a", 1.0)] * 2 + [Game("c", "b", 0.5)] * 5 + [Game("a", "c", 0.0)] * 3
    )

    ratings = {name: rating.rating for name, rating in elo_ratings("abc", games).items()}

    def expected(name: str, others: dict[str, int]) -> float:
        return sum(number * expected_score(ratings[name], ratings[other]) for other, number in others.items())

    assert expected("a", {"b": 10, "c": 4}) == pytest.approx(7 + 0.5 + 0.5)  # its score, and a draw with each
    assert expected("b", {"a": 10, "c": 6}) == pytest.approx(2 + 2.5 + 0.5 + 0.5)
    assert sum(ratings.values()) == pytest.approx(3 * 1500)


def test_the_order_of_the_games_does_not_matter() -> None:
    games = [Game("a", "b", 1.0), Game("b", "c", 1.0), Game("c", "a", 0.5)] * 5

    assert elo_ratings("abc", games[::-1])["a"].rating == pytest.approx(elo_ratings("abc", games)["a"].rating)


def test_a_player_who_wins_every_game_has_a_finite_rating() -> None:
    ratings = elo_ratings("ab", [Game("a", "b", 1.0)] * 100)

    assert ratings["a"].rating - ratings["b"].rating == pytest.approx(400 * math.log10(100.5 / 0.5))


def test_intervals_cover_the_ratings_of_simulated_players() -> None:
    generator, truth, covered = np.random.default_rng(1), {"a": 1600.0, "b": 1500.0, "c": 1400.0}, 0
    for _ in range(100):
        games = [
            Game(first, second, float(generator.random() < expected_score(truth[first], truth[second])))
            for first, second in itertools.permutations("abc", 2)
            for _ in range(50)
        ]
        ratings = elo_ratings("abc", games)
        covered += sum(abs(ratings[name].rating - truth[name]) < ratings[name].interval for name in "abc")

    assert 0.92 < covered / 300 < 0.98


def test_a_record_counts_the_games_of_both_sides() -> None:
    games = [Game("a", "b", 1.0), Game("b", "a", 1.0), Game("b", "a", 0.5), Game("b", "c", 0.0)]

    assert record("a", games) == Record(won=1, drawn=1, lost=1)
    assert record("c", games) == Record(won=1, drawn=0, lost=0)
