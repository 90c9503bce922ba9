"""Dynamical systems: the right flow, the right noise, the right observations."""

import math
from typing import Any

import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.envs.dynamical_systems.env import DynamicalSystemEnv, normal, poisson
from datamodules.envs.dynamical_systems.vector_fields import SYSTEMS


def rolled(env: DynamicalSystemEnv, steps: int, rows: int = 64) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    states = [env.initial(torch.rand(rows, env.noise_size, generator=generator))]
    for _ in range(steps):
        action = torch.zeros(rows, len(env.axes))
        noise = torch.rand(rows, env.noise_size, generator=generator)
        states.append(env.transition(states[-1], action, noise)[0])
    return states


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_a_step_without_noise_equals_a_thousand_midpoint_steps_in_float64(system: str) -> None:
    env = DynamicalSystemEnv(system, process_noise=0.0)
    state = env.initial(torch.rand(4, env.noise_size, generator=torch.Generator().manual_seed(1)))
    action = 0.3 * torch.tensor([env.spaces["action_high"]]).repeat(4, 1)

    after = env.transition(state, action, torch.rand(4, env.noise_size))[0]["x"]

    right, control, dt = state["x"].double(), env.control(action).double(), env.dt / 1000
    for _ in range(1000):
        middle = right + dt / 2 * (env.field(right) + control)
        right = right + dt * (env.field(middle) + control)
    torch.testing.assert_close(after.double(), right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("system", sorted(SYSTEMS))
def test_states_stay_finite_float32_and_near_the_box_under_full_push(system: str) -> None:
    env = DynamicalSystemEnv(system)
    state = env.initial(torch.rand(16, env.noise_size))
    push = torch.tensor(env.spaces["action_high"]).expand(16, -1)
    for _ in range(500):
        state = env.transition(state, push, torch.rand(16, env.noise_size))[0]

    assert state["x"].dtype == torch.float32 and torch.isfinite(state["x"]).all()
    width = env.high - env.low
    assert ((state["x"] - (env.low + env.high) / 2).abs() <= 2 * width + 1e-4).all()


@pytest.mark.parametrize(("field", "at_rest"), [("duffing", (1.0, 0.0)), ("double_well", (-1.0, 0.0))])
def test_wells_are_at_rest(field: str, at_rest: tuple[float, float]) -> None:
    assert DynamicalSystemEnv(field).field(torch.tensor(at_rest)).abs().max() < 1e-6


@pytest.mark.parametrize("system", ["limit_cycle", "double_limit_cycle", "ring_attractor"])
def test_circles_attract(system: str) -> None:
    last = rolled(DynamicalSystemEnv(system, process_noise=0.0), 400)[-1]["x"]
    assert (last.norm(dim=-1) - 1).abs().max() < 0.05


def test_process_noise_has_its_standard_deviation_per_root_second() -> None:
    quiet, loud = (DynamicalSystemEnv("double_well", process_noise=noise) for noise in (0.0, 0.5))
    noise = torch.rand(20_000, loud.noise_size, generator=torch.Generator().manual_seed(0))
    state = {"x": torch.zeros(20_000, 2), "draw": noise[:, 2:], "age": torch.zeros(20_000, dtype=torch.int64)}
    action = torch.zeros(20_000, 2)
    moved = [env.transition(state, action, noise)[0]["x"] for env in (quiet, loud)]

    assert (moved[1] - moved[0]).std() == pytest.approx(0.5 * math.sqrt(loud.dt), rel=0.02)


def test_a_system_pushed_along_one_axis_takes_one_number() -> None:
    env = DynamicalSystemEnv("van_der_pol")
    assert env.spaces["action_high"] == [2.0]
    assert env.control(torch.tensor([[5.0]])).tolist() == [[0.0, 2.0]]


def test_noise_and_mean_of_a_linear_observation() -> None:
    env = DynamicalSystemEnv("duffing", observation="linear", observation_dim=30, observation_noise=0.2)
    state = env.initial(torch.rand(4000, env.noise_size, generator=torch.Generator().manual_seed(0)))
    error = env.observation(state) - env.mean(state)

    assert env.observation(state).shape == (4000, 30)
    assert error.std() == pytest.approx(0.2, rel=0.02) and abs(float(error.mean())) < 2e-3


@pytest.mark.parametrize(("observation", "linear"), [("identity", True), ("linear", True), ("mlp", False)])
@pytest.mark.parametrize("noise", ["gaussian", "poisson"])
def test_the_mean_or_its_logarithm_is_linear_in_the_state_unless_a_network_shows_it(
    observation: Any, linear: bool, noise: Any
) -> None:
    env = DynamicalSystemEnv("duffing", observation=observation, observation_dim=2, noise=noise, count=3.0)
    x = torch.rand(50, 2) * 4 - 2

    h, far, none = (env.mean({"x": scale * x}) for scale in (1.0, 2.0, 0.0))
    if noise == "poisson":
        h, far, none = (torch.log(mean / 3.0) / 0.6 for mean in (h, far, none))

    assert torch.allclose(none, torch.zeros_like(none)) and h.abs().max() > 0.1
    assert torch.allclose(far, 2 * h, atol=1e-4) == linear


@pytest.mark.parametrize("rate", [0.05, 0.3, 2.0, 5.9, 6.1, 15.0, 40.0, 300.0])
def test_poisson_counts_follow_their_distribution(rate: float) -> None:
    """Uniforms evenly spread: mean, variance and the frequency of every count that is to be expected 100 times."""
    uniform = (torch.arange(100_000) + 0.5) / 100_000
    counts = poisson(torch.full_like(uniform, rate), uniform).double()

    seen, count = torch.bincount(counts.long()), torch.arange(counts.max().int() + 1, dtype=torch.float64)
    expected = len(uniform) * torch.exp(count * math.log(rate) - rate - torch.lgamma(count + 1))
    often = expected > 100
    square = ((seen - expected).square() / expected)[often].sum()
    assert counts.mean() == pytest.approx(rate, rel=1e-3) and counts.var() == pytest.approx(rate, rel=2e-3)
    assert square < 0.1 * often.sum()  # a random sample's is around the number of counts


def test_poisson_counts_are_the_smallest_whose_distribution_function_reaches_the_uniform() -> None:
    uniform = torch.rand(50_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rate = 20 * torch.rand(50_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    count = poisson(rate, uniform)

    reached = torch.special.gammaincc(count + 1, rate) >= uniform
    before = torch.where(count > 0, torch.special.gammaincc(count.clamp(min=1e-9), rate) < uniform, True)
    right = reached & before
    assert right[rate <= 6].all() and right.double().mean() > 0.999


def test_poisson_counts_are_finite_at_both_ends_and_without_a_rate() -> None:
    ends = torch.tensor([0.0, 1.0 - 2**-24])

    assert poisson(torch.zeros(2), ends).tolist() == [0.0, 0.0]
    assert 20 < poisson(torch.full((2,), 6.0), ends)[1] < 24
    assert torch.isfinite(poisson(torch.full((2,), 1e4), ends)).all()


def test_normals_are_finite_at_both_ends_of_the_uniform() -> None:
    assert torch.isfinite(normal(torch.tensor([0.0, 1.0 - 2**-24]))).all()


def test_an_episode_is_truncated_at_its_length_only() -> None:
    env = DynamicalSystemEnv("duffing", length=3)
    state, ends = env.initial(torch.rand(2, env.noise_size)), []
    for _ in range(3):
        state, _, terminated, truncated = env.transition(state, torch.zeros(2, 2), torch.rand(2, env.noise_size))
        ends.append((terminated.any().item(), truncated.all().item()))

    assert ends == [(False, False), (False, False), (False, True)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"system": "pendulum"},
        {"observation": "cnn"},
        {"observation": "linear"},
        {"noise": "laplace"},
        {"dt": 0.0},
        {"process_noise": -1.0},
        {"count": 0.0},
        {"length": 0},
    ],
)
def test_arguments_out_of_range_are_refused_in_one_sentence(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        DynamicalSystemEnv(**wrong)
    assert next(iter(wrong)) in str(refused.value) or "system" in wrong
