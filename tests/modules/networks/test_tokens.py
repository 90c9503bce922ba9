"""TokenEncoder against a loop over tokens."""

import numpy as np
import pytest
import torch
from torch import Tensor

from modules.networks.base import no_episode_start
from modules.networks.tokens import TokenEncoder

NUMBERS, CATEGORIES = (3, 7), {5: 4}


def slow_planes(tokens: Tensor, view: int) -> np.ndarray:
    """Planes of the tokens of one agent."""
    planes = np.zeros((6, view, view), np.float32)
    for place, feature, value in tokens.tolist():
        row, column = (view // 2, view // 2) if place == 254 else divmod(place, 16)
        if place == 255 or row >= view or column >= view:
            continue
        if feature in NUMBERS:
            planes[NUMBERS.index(feature), row, column] = value * 0.1
        elif feature in CATEGORIES and value < CATEGORIES[feature]:
            planes[2 + value, row, column] = 1.0
    return planes


def random_tokens(rows: int) -> Tensor:
    places = torch.stack([torch.randperm(200)[:40] for _ in range(rows)])
    tokens = torch.stack([places, torch.randint(9, (rows, 40)), torch.randint(6, (rows, 40))], 2)
    tokens[:, :2, 0], tokens[:, :2, 1] = 254, torch.tensor(NUMBERS)
    tokens[:, -5:] = 255
    return tokens.to(torch.uint8)


@pytest.mark.parametrize("view", [5, 11, 15])
def test_planes_hold_numbers_and_categories_at_the_places_of_the_tokens(view: int) -> None:
    encoder = TokenEncoder((40, 3), NUMBERS, CATEGORIES, view=view)
    tokens = random_tokens(8)
    planes = encoder.preprocess(tokens)
    assert planes.dtype == torch.float32
    for row in range(8):
        np.testing.assert_allclose(planes[row].numpy(), slow_planes(tokens[row], view), rtol=1e-6)


def test_features_depend_on_named_features_only_and_have_gradients() -> None:
    encoder = TokenEncoder((40, 3), NUMBERS, CATEGORIES, hidden=(16,), layer_norm=True)
    tokens = random_tokens(4)
    other = tokens.clone()
    other[tokens[..., 1] == 8, 2] = 99
    features, changed = (encoder(each, {}, no_episode_start(each))[0] for each in (tokens, other))
    assert features.shape == (4, encoder.features) == (4, 16)
    assert torch.equal(features, changed)
    features.sum().backward()
    assert all(weights.grad is not None for weights in encoder.parameters())


def test_an_exported_encoder_takes_any_number_of_rows() -> None:
    encoder = TokenEncoder((40, 3), NUMBERS, CATEGORIES, hidden=(16,)).eval()
    tokens = random_tokens(2)
    arguments, rows = (tokens, {}, no_episode_start(tokens)), torch.export.Dim("rows", min=2)
    exported = torch.export.export(encoder, arguments, dynamic_shapes=({0: rows}, {}, {0: rows}), strict=False)
    more = random_tokens(5)
    found, expected = (each(more, {}, no_episode_start(more))[0] for each in (exported.module(), encoder))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("shape", "settings", "sentence"),
    [
        ((9, 11, 11), {"numbers": [1]}, r"not \(tokens, 3\)"),
        ((40, 3), {}, "name the features"),
        ((40, 3), {"numbers": [1], "view": 17}, "view is 17"),
    ],
)
def test_what_does_not_fit_is_one_sentence(shape: tuple[int, ...], settings: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TokenEncoder(shape, **settings)
