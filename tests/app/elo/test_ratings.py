import pytest

from app.elo.ratings import Game, Record, elo_ratings, expected_score, record


def test_400_points_are_ten_times_the_score() -> None:
    assert expected_score(1900, 1500) == pytest.approx(10 / 11)
    assert expected_score(1500, 1900) == pytest.approx(1 / 11)
    assert expected_score(1500, 1500) == 0.5


def test_a_win_between_equals_moves_half_of_the_k_factor() -> None:
    assert elo_ratings("ab", [Game("a", "b", 1.0)], 32) == {"a": 1516, "b": 1484}
    assert elo_ratings("ab", [Game("a", "b", 0.5)], 32) == {"a": 1500, "b": 1500}
    assert elo_ratings("ab", [Game("a", "b", 0.0)], 10) == {"a": 1495, "b": 1505}


def test_points_are_only_moved_between_players() -> None:
    games = [Game("a", "b", 1.0), Game("b", "c", 0.5), Game("c", "a", 0.0)] * 50

    ratings = elo_ratings("abc", games, 32)

    assert sum(ratings.values()) == pytest.approx(3 * 1500)
    assert ratings["a"] > ratings["b"] and ratings["a"] > ratings["c"]


def test_a_record_counts_the_games_of_both_sides() -> None:
    games = [Game("a", "b", 1.0), Game("b", "a", 1.0), Game("b", "a", 0.5), Game("b", "c", 0.0)]

    assert record("a", games) == Record(won=1, drawn=1, lost=1)
    assert record("c", games) == Record(won=1, drawn=0, lost=0)
