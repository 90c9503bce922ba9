import torch

from modules.functional.options import choice_noise, next_option


def noise(uniform: list[float], options: int = 2) -> torch.Tensor:
    """No preference among options, and the given uniforms."""
    return torch.cat([torch.zeros(len(uniform), options), torch.tensor(uniform).unsqueeze(1)], 1)


def test_an_option_goes_on_until_it_ends_or_the_episode_does():
    option, age = torch.tensor([0, 0, 0]), torch.tensor([3, 3, 3])
    logits, beta = torch.tensor([[0.0, 1.0]]).expand(3, 2), torch.full((3, 2), 0.5)

    choice = next_option(option, age, torch.tensor([False, False, True]), logits, beta, noise([0.6, 0.4, 0.6]))

    assert choice.option.tolist() == [0, 1, 1]
    assert choice.age.tolist() == [4, 1, 1]
    assert choice.started.tolist() == [False, True, True]


def test_durations_bind_the_option_that_runs():
    option, age, episode_start = (
        torch.tensor([0, 0, 1, 1]),
        torch.tensor([1, 2, 2, 4]),
        torch.zeros(4, dtype=torch.bool),
    )
    logits, beta = torch.zeros(4, 2), torch.tensor([[1.0, 0.0]]).expand(4, 2)
    bounds = {"min_duration": torch.tensor([2, 1]), "max_duration": torch.tensor([0, 4])}

    choice = next_option(option, age, episode_start, logits, beta, noise([0.5] * 4), **bounds)

    assert choice.started.tolist() == [False, True, False, True]


def test_greedy_takes_the_likeliest_and_ends_what_rather_ends_than_not():
    option, age, episode_start = torch.tensor([1, 1]), torch.tensor([1, 1]), torch.zeros(2, dtype=torch.bool)
    logits, beta = torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([[0.9, 0.4], [0.1, 0.6]])

    choice = next_option(option, age, episode_start, logits, beta, None)

    assert choice.option.tolist() == [1, 0]


def test_draws_follow_the_master_and_the_terminations():
    rows, generator = 20_000, torch.Generator().manual_seed(3)
    option, age, episode_start = (
        torch.zeros(rows, dtype=torch.int64),
        torch.ones(rows, dtype=torch.int64),
        torch.zeros(rows),
    )
    logits, beta = torch.tensor([[0.1, 0.2, 0.7]]).log().expand(rows, 3), torch.full((rows, 3), 0.3)

    choice = next_option(option, age, episode_start.bool(), logits, beta, choice_noise((rows,), 3, generator))

    shares = torch.bincount(choice.option[choice.started], minlength=3) / choice.started.sum()
    assert abs(choice.started.float().mean() - 0.3) < 0.015
    assert torch.allclose(shares, torch.tensor([0.1, 0.2, 0.7]), atol=0.02)


def test_one_row_at_a_time_gives_what_the_batch_gives():
    generator = torch.Generator().manual_seed(0)
    option, age = torch.randint(3, (16,), generator=generator), torch.randint(1, 9, (16,), generator=generator)
    episode_start, logits = torch.rand(16, generator=generator) < 0.2, torch.randn(16, 3, generator=generator)
    beta, draws = torch.rand(16, 3, generator=generator), choice_noise((16,), 3, generator)
    columns = (option, age, episode_start, logits, beta, draws)

    together = next_option(*columns)
    alone = [next_option(*(column[row : row + 1] for column in columns)) for row in range(16)]

    for column, rows in zip(together, zip(*alone, strict=True), strict=True):
        assert torch.equal(column, torch.cat(rows))
