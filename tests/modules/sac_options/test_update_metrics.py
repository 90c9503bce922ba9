import pytest
import torch

from modules.sac_options.update_metrics import FIXED, metric_names, update_metrics


def measured(log_master: torch.Tensor) -> dict[str, float]:
    """By name, of two options in two states."""
    scalars = [torch.tensor(float(number)) for number in range(6)]
    q, entropy = torch.tensor([[1.0, 2.0], [3.0, -6.0]]), torch.tensor([[0.5, 1.5], [1.0, 1.0]])
    beta, advantage = torch.tensor([[0.1, 0.2], [0.3, 0.6]]), torch.tensor([[1.0, -1.0], [2.0, 4.0]])
    numbers = update_metrics(scalars, q, entropy, log_master, torch.tensor(7.0), beta, advantage)
    return dict(zip(metric_names(2)[:-2], numbers.tolist(), strict=True))


def test_every_number_has_its_name():
    found = measured(torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log())

    assert [found[name] for name in FIXED[:6]] == [0, 1, 2, 3, 4, 5]
    assert (found["q_mean"], found["q_min"], found["entropy"]) == (0.0, -6.0, 1.0)
    assert found["option/advantage_std"] == pytest.approx(torch.tensor([1.0, -1, 2, 4]).std().item())
    assert (found["option/advantage_positive"], found["option/divergence_mean"]) == (0.75, 7.0)
    assert [found[f"option/beta_{option}"] for option in (0, 1)] == pytest.approx([0.2, 0.4])
    assert [found[f"option/q_{option}"] for option in (0, 1)] == [2.0, -2.0]


@pytest.mark.parametrize(("sharp", "information"), [(True, 1.0), (False, 0.0)])
def test_the_choice_tells_the_state_as_far_as_it_depends_on_it(sharp: bool, information: float):
    chance = torch.eye(2) * (1 - 2e-7) + 1e-7 if sharp else torch.full((2, 2), 0.5)

    found = measured(chance.log())

    assert found["option/mutual_information"] == pytest.approx(information * torch.tensor(2.0).log().item(), abs=1e-5)
    assert found["option/marginal_entropy"] == pytest.approx(torch.tensor(2.0).log().item())
