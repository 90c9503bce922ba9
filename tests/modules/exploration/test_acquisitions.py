"""Acquisitions: shapes and signs for all, and what each one says on paths where the answer is known."""

import pytest
import torch

from modules.exploration.acquisitions import (
    Acquisition,
    ActionCost,
    Disagreement,
    Distillation,
    EmbeddingGain,
    Fisher,
    ImaginedTrajectories,
    InformationGain,
    OptimisticGain,
    OutsideBox,
)
from modules.exploration.policies import Belief, imagine
from tests.support.dynamics_fixtures import knowledge

INFORMATIVE = [
    InformationGain(),
    Disagreement(),
    OptimisticGain(),
    Fisher("d"),
    Fisher("a"),
    EmbeddingGain("weight", 1.0),
    Distillation(2),
]


def paths(candidates: int = 3, steps: int = 4) -> ImaginedTrajectories:
    random = torch.Generator().manual_seed(0)
    actions = torch.rand(2, candidates, steps, 2, generator=random) * 2 - 1
    return imagine(knowledge(), Belief(torch.zeros(2, 2), torch.full((2, 2), 0.01)), actions)


@pytest.mark.parametrize("acquisition", INFORMATIVE, ids=lambda each: type(each).__name__)
@torch.no_grad()
def test_every_step_of_every_candidate_has_a_worth_that_is_not_negative(acquisition: Acquisition) -> None:
    worth = acquisition(knowledge(), paths())

    assert worth.shape == (2, 3, 4) and worth.isfinite().all() and (worth >= -1e-5).all()


@torch.no_grad()
def test_the_embedding_of_all_weights_is_what_fisher_sees() -> None:
    embedding, fisher = EmbeddingGain("weight", prior=1.0), Fisher("d")

    torch.testing.assert_close(embedding(knowledge(), paths()), fisher(knowledge(), paths()), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("acquisition", [InformationGain(), Fisher("d"), Fisher("a")], ids=["gain", "d", "a"])
@torch.no_grad()
def test_what_is_known_teaches_nothing(acquisition: Acquisition) -> None:
    assert acquisition(knowledge(prior=1e-9), paths()).max() < 1e-4 * acquisition(knowledge(), paths()).max()


def test_an_ensemble_differs_where_its_members_do() -> None:
    """The members of this one differ by |z| dt either way."""
    imagined_paths = paths()

    variance = knowledge().model.dynamics.variance
    expected = (0.1 * imagined_paths.latent[..., :-1, :]).square() / variance

    torch.testing.assert_close(Disagreement()(knowledge(), imagined_paths), expected.mean(-1))
    torch.testing.assert_close(OptimisticGain()(knowledge(), imagined_paths), expected.log1p().sum(-1))


def test_distillation_falls_where_it_has_learned() -> None:
    torch.manual_seed(0)
    novelty, here, there = Distillation(2), torch.rand(256, 2), torch.rand(256, 2) + 3
    optimizer = torch.optim.Adam(novelty.predictor.parameters(), lr=1e-2)
    before = novelty.error(torch.stack([here, there])).mean(-1)

    for _ in range(100):
        optimizer.zero_grad()
        novelty.error(here).mean().backward()
        optimizer.step()

    after = novelty.error(torch.stack([here, there])).mean(-1)
    assert after[0] < 0.05 * before[0] and after[1] > 5 * after[0]


def test_leaving_the_box_and_acting_cost() -> None:
    way = torch.tensor([[0.0, 0.0], [1.5, 0.0], [0.5, -3.0]]).view(1, 1, 3, 2)
    seen = ImaginedTrajectories(
        way, way, way[..., 1:, :], torch.tensor([[1.0, 0.5], [0.0, 0.0]]).view(1, 1, 2, 2), torch.zeros(1, 2)
    )

    assert OutsideBox([-1.0, -4.0], [1.0, 4.0])(knowledge(), seen).tolist() == [[[-1.0, 0.0]]]
    assert ActionCost()(knowledge(), seen).tolist() == [[[-1.25, 0.0]]]


def test_an_unknown_criterion_is_refused() -> None:
    with pytest.raises(ValueError, match="criterion is 'e'; use a or d"):
        Fisher("e")
