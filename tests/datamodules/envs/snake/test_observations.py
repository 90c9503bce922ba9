import torch

from datamodules.envs.snake.env import Snake
from tests.oracles.snake_rules import place_food, start


def test_features_are_the_nineteen_of_the_definition():
    snake = Snake(observation="features")
    state = place_food(snake, start(snake), 7, 1)  # head at (3, 3), tail at (1, 3)
    expected = [0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0.4, -0.2, 0.03, 0.3, 0.3, 0.1, 0.3]
    assert torch.allclose(snake.observation(state), torch.tensor([expected]), atol=1e-7)


def test_planes_show_head_remaining_life_and_food():
    snake = Snake(dim=4, start_length=2, distance_to_border=1)
    head, body, food = snake.observation(place_food(snake, start(snake), 3, 3))[0]
    assert (head.nonzero().tolist(), food.nonzero().tolist()) == ([[1, 1]], [[3, 3]])
    assert body[1].tolist() == [128, 255, 0, 0]
    assert body.sum() == 128 + 255


def test_grid_shows_body_head_and_food_as_numbers():
    snake = Snake(dim=4, start_length=2, distance_to_border=1, observation="grid")
    obs = snake.observation(place_food(snake, start(snake), 3, 3))
    assert obs.tolist() == [[0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]]


def test_renders_a_picture_of_sixteen_pixels_a_cell():
    snake = Snake(dim=7, distance_to_border=2)
    picture = snake.render(place_food(snake, start(snake), 6, 6), 0, "rgb_array")
    assert picture.shape == (112, 112, 3) and picture.dtype == torch.uint8
    assert len({tuple(picture[16 * y + 8, 16 * x + 8].tolist()) for x, y in ((0, 0), (1, 2), (2, 2), (6, 6))}) == 4


def test_planes_are_bytes_that_lose_no_cell_of_a_long_snake():
    snake = Snake(dim=12, start_length=5, distance_to_border=5)
    planes = snake.observation(place_food(snake, start(snake), 0, 0))
    assert planes.dtype == torch.uint8
    assert planes[0, 1, 5].tolist() == [0, 51, 102, 153, 204, 255, 0, 0, 0, 0, 0, 0]
    assert [plane.max().item() for plane in planes[0]] == [255, 255, 255]
