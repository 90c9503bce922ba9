import torch

from modules.functional.sampling import epsilon_greedy


def test_any_allowed_action_is_tried_equally_often_and_no_other() -> None:
    noise = torch.rand(6000, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([True, False, True]).expand(6000, 3)
    action = epsilon_greedy(torch.zeros(6000, dtype=torch.int64), 0.5, noise, mask)
    share = action.bincount(minlength=3) / 6000
    torch.testing.assert_close(share, torch.tensor([0.75, 0.0, 0.25]), rtol=0, atol=0.03)


def test_epsilon_zero_is_greedy_and_one_is_random() -> None:
    noise = torch.rand(100, 3, generator=torch.Generator().manual_seed(0))
    best = torch.ones(100, dtype=torch.int64)
    assert torch.equal(epsilon_greedy(best, 0.0, noise), best)
    assert torch.equal(epsilon_greedy(best, 1.0, noise), noise[:, :-1].argmax(-1))
