"""Beliefs: predicted, corrected by what is seen, and begun anew with every episode."""

import pytest
import torch

from modules.active_dynamics.latent_model import LatentModel
from modules.active_dynamics.state_estimator import StateEstimator
from modules.exploration.policies import Belief
from modules.networks.latent import GRUEncoder, LinearActions, LinearDecoder, LinearDynamics, MLPEncoder

NEVER, ALWAYS = torch.tensor([False]), torch.tensor([True])


def tracked(recurrent: bool = False) -> tuple[LatentModel, StateEstimator]:
    torch.manual_seed(0)
    encoder = GRUEncoder(3, 2, hidden=8, window=4) if recurrent else MLPEncoder(3, 2)
    model = LatentModel(encoder, LinearDecoder(3, 2), LinearDynamics(2, dt=0.1), LinearActions(1, 2))
    return model, StateEstimator(model, 3)


def test_a_belief_is_corrected_by_what_is_seen_as_a_kalman_filter_would() -> None:
    model, tracker = tracked()
    obs, state = torch.randn(1, 3), {"mean": torch.tensor([[4.0, -4.0]]), "variance": torch.tensor([[0.1, 9.0]])}

    belief, _ = tracker.correct(obs, state, NEVER)

    mean, variance = (part[0] for part in model.encode(obs.unsqueeze(0)))
    precision = 1 / state["variance"] + 1 / variance
    torch.testing.assert_close(belief.variance, 1 / precision)
    torch.testing.assert_close(belief.mean, (state["mean"] / state["variance"] + mean / variance) / precision)


@pytest.mark.parametrize("recurrent", [False, True])
def test_an_episode_begins_with_what_is_seen_alone(recurrent: bool) -> None:
    model, tracker = tracked(recurrent)
    state, obs = tracker.initial_state(1, torch.device("cpu")), torch.randn(3, 1, 3)
    for number, each in enumerate(obs[:2]):
        belief, kept = tracker.correct(each, state, torch.tensor([number == 0]))
        state = tracker.predict(belief, torch.zeros(1, 2)) | kept

    begun, _ = tracker.correct(obs[2], state, ALWAYS)

    expected = Belief(*(part[0] for part in model.encode(obs[2:])))
    torch.testing.assert_close(begun, expected)


def test_what_is_expected_is_a_step_of_the_dynamics_and_less_certain() -> None:
    model, tracker = tracked()
    belief, control = Belief(torch.randn(1, 2), torch.full((1, 2), 0.3)), torch.randn(1, 2)

    state = tracker.predict(belief, control)

    assert torch.equal(state["mean"], model.dynamics.step(belief.mean, control))
    torch.testing.assert_close(state["variance"], 0.3 + model.dynamics.variance.unsqueeze(0))


def test_an_encoder_that_remembers_sees_the_window_of_its_episode() -> None:
    """Of an episode longer than the window the newest rows, of a shorter one all, and never the episode before."""
    model, tracker = tracked(recurrent=True)
    obs, state = torch.randn(7, 1, 3), tracker.initial_state(1, torch.device("cpu"))

    for row in range(7):
        seen, kept = tracker._encoded(obs[row], state, torch.tensor([row in (0, 2)]))
        state = state | kept
        first = max(2 if row >= 2 else 0, row - 3)
        torch.testing.assert_close(seen.mean, model.encode(obs[first : row + 1])[0][-1])
