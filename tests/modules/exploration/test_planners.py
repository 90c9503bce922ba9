"""Planners find what is best, in any number of agents at once, with the noise they are given."""

import pytest
import torch
from torch import Tensor

from modules.exploration.planners import CEM, ICEM, MPPI, Planner, RandomShooting, autoregressive, power_law, shift_plan

PLANNERS = [RandomShooting(horizon=4, candidates=256), CEM(horizon=4), ICEM(horizon=4), MPPI(horizon=4, iterations=3)]
every_planner = pytest.mark.parametrize("planner", PLANNERS, ids=[type(planner).__name__ for planner in PLANNERS])
TARGET = torch.tensor([[0.7, -0.5], [-0.2, 0.4], [0.0, 0.9]])


def closeness(actions: Tensor) -> Tensor:
    """Each agent wants a constant action of its own."""
    return -(actions - TARGET[: len(actions), None, None]).square().sum((-1, -2))


def noise(planner: Planner, agents: int, seed: int) -> Tensor:
    return torch.randn(agents, planner.noise_size(2), generator=torch.Generator().manual_seed(seed))


@every_planner
def test_the_plan_comes_close_to_the_best_and_closer_with_every_step(planner: Planner) -> None:
    state, distances = planner.initial_state(3, 2), []

    for step in range(6):
        plan, state = planner(closeness, state, noise(planner, 3, step))
        distances.append(float((plan - TARGET[:, None]).square().mean()))

    assert plan.shape == (3, 4, 2) and plan.abs().max() <= 1
    nothing = float(TARGET.square().mean())
    assert distances[-1] < (0.6 if isinstance(planner, RandomShooting) else 0.1) * nothing


@every_planner
def test_agents_in_parallel_plan_as_each_would_alone(planner: Planner) -> None:
    draws = noise(planner, 3, seed=1)

    together, state = planner(closeness, planner.initial_state(3, 2), draws)

    alone, own = planner(closeness, planner.initial_state(1, 2), draws[:1])
    torch.testing.assert_close(together[:1], alone)
    torch.testing.assert_close({name: leaf[:1] for name, leaf in state.items()}, own)


@pytest.mark.parametrize("planner", PLANNERS[:3], ids=["RandomShooting", "CEM", "ICEM"])
def test_a_score_that_is_no_number_never_wins(planner: Planner) -> None:
    def score(actions: Tensor) -> Tensor:
        good = closeness(actions)
        return torch.where(actions[:, :, 0, 0] > 0, torch.nan, good)

    plan, _ = planner(score, planner.initial_state(1, 2), noise(planner, 1, 0))

    assert plan.isfinite().all() and plan[0, 0, 0] <= 0.0


def test_a_plan_is_shifted_and_its_last_action_held() -> None:
    plan = torch.arange(3.0).view(1, 3, 1)

    assert shift_plan(plan)[0, :, 0].tolist() == [1, 2, 2]


def test_the_warm_start_is_the_last_plan() -> None:
    planner = CEM(horizon=3, candidates=8, elites=2, momentum=1.0, std=1e-9)

    plan, _ = planner(closeness, {"plan": torch.tensor([[[0.1], [0.2], [0.3]]])}, torch.randn(1, planner.noise_size(1)))

    torch.testing.assert_close(plan, torch.tensor([[[0.2], [0.3], [0.3]]]))


def test_icem_returns_the_best_it_has_ever_seen() -> None:
    planner, seen = ICEM(horizon=2, candidates=16, elites=4, iterations=2), []

    def score(actions: Tensor) -> Tensor:
        seen.append(closeness(actions))
        return seen[-1]

    plan, state = planner(score, planner.initial_state(1, 2), noise(planner, 1, 3))

    assert closeness(plan.unsqueeze(1)).item() == pytest.approx(max(float(values.max()) for values in seen))
    torch.testing.assert_close(state["elites"][:, 0], plan)


def test_icem_tries_the_elites_of_the_last_step_again_and_keeps_those_of_an_iteration() -> None:
    """Elites that are best win over any sample: those of the last step, shifted, then those of the first iteration."""
    planner, tried = ICEM(horizon=3, candidates=16, elites=4, keep=0.5, momentum=1.0, std=1e-9), []
    state = {"plan": torch.zeros(1, 3, 1), "elites": torch.tensor([[[[0.0], [0.9], [0.9]], [[0.0], [0.8], [0.8]]]])}

    def score(actions: Tensor) -> Tensor:
        tried.append(actions)
        return actions.sum((-1, -2))

    plan, after = planner(score, state, noise_of(planner, 1))

    torch.testing.assert_close(tried[0][0, -2:, :, 0], torch.tensor([[0.9, 0.9, 0.9], [0.8, 0.8, 0.8]]))
    torch.testing.assert_close(plan[0, :, 0], torch.full((3,), 0.9))
    torch.testing.assert_close(after["elites"][0, :, :, 0], torch.tensor([[0.9, 0.9, 0.9], [0.8, 0.8, 0.8]]))


def noise_of(planner: Planner, actions: int) -> Tensor:
    return torch.randn(1, planner.noise_size(actions), generator=torch.Generator().manual_seed(0))


def test_icem_samples_less_with_every_iteration() -> None:
    planner = ICEM(candidates=125, iterations=3, decay=1.25, elites=10)

    assert planner.counts == [125, 100, 80]
    assert planner.noise_size(2) == 305 * planner.horizon * 2


def test_correlated_noise_has_the_correlation_it_says() -> None:
    planner = CEM(horizon=12, correlation=0.8)

    covariance = planner.filter.double() @ planner.filter.double().T

    torch.testing.assert_close(covariance, autoregressive(12, 0.8), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(covariance.diagonal(offset=1), torch.full((11,), 0.8).double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("beta", "white"), [(0.0, True), (2.0, False)])
def test_coloured_noise_is_white_at_zero_and_smoother_above(beta: float, white: bool) -> None:
    covariance = power_law(16, beta)

    torch.testing.assert_close(covariance.diagonal(), torch.ones(16).double(), rtol=1e-6, atol=1e-6)
    assert torch.linalg.eigvalsh(covariance).min() > 0
    assert (abs(float(covariance[0, 1])) < 0.05) == white


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"elites": 500}, "elites is 500, more than the 128 candidates"),
        ({"horizon": 0}, "horizon is 0; it must be positive"),
        ({"correlation": 1.0}, "correlation is 1.0; it must lie in"),
    ],
)
def test_impossible_values_are_refused(settings: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        CEM(**settings)
