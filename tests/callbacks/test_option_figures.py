import numpy as np

from callbacks.option_figures import BAND, COLOURS, HEIGHT, bars, summed_since, timeline


def test_a_running_sum_begins_anew_with_every_episode():
    total = summed_since(np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, False, True, False]))

    assert total.tolist() == [1.0, 3.0, 3.0, 7.0]


def test_the_band_shows_the_option_darker_where_it_begins_and_a_line_where_an_episode_does():
    option, begun = np.array([0, 0, 1, 1]), np.array([True, False, True, False])
    reset = np.array([True, False, False, False])

    picture = timeline(option, begun, reset, np.array([0.0, 1.0, 2.0, 3.0]))

    assert picture.shape == (HEIGHT + BAND, 8, 3) and picture.dtype == np.uint8
    assert (picture[-1, ::2] == [[255] * 3, COLOURS[0], COLOURS[1] // 2, COLOURS[1]]).all()


def test_the_curve_rises_to_the_top_and_a_flat_one_is_drawn_too():
    option, off = np.zeros(3, int), np.zeros(3, bool)

    rising, flat = timeline(option, off, off, np.array([0.0, 1.0, 2.0])), timeline(option, off, off, np.ones(3))

    assert (rising[0, 4] == COLOURS[0]).all() and (rising[HEIGHT - 2, 0] == COLOURS[0]).all()
    assert (flat[HEIGHT - 2, 2] == COLOURS[0]).all()


def test_bars_are_as_high_as_the_shares():
    picture = bars(np.array([1.0, 0.0]))

    assert (picture[0, 20] == COLOURS[0]).all()
    assert (picture[: HEIGHT // 2 - 1, 60] == 24).all()
