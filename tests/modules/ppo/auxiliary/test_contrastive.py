"""InfoNCE in PPO: positives are later steps of the same row and episode, negatives are neither step nor positive."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from datamodules.core.errors import ConfigurationError
from modules.networks import MLP
from modules.ppo.auxiliary.base import ForwardPass
from modules.ppo.auxiliary.contrastive import InfoNCELoss
from modules.ppo.ppo import PPO
from tests.modules.ppo.test_ppo_recurrent import LSTM_16, model_and_rollouts
from tests.support.auxiliary_runs import RECURRENT
from tests.support.small_runs import small_ppo, snake_data, trainer

COUNTING = "tests.support.counting_env.CountingTensors"


class Table(torch.nn.Module):
    """A network that looks its features up."""

    def __init__(self, features: dict[tuple[float, ...], torch.Tensor]):
        super().__init__()
        self.features = features

    def forward(self, obs: torch.Tensor, *_: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return torch.stack([self.features[tuple(row)] for row in obs.tolist()]), {}


class Rows:
    """A data module, as far as the loss reads it."""

    def __init__(self, rollout_length: int):
        self.rollout_length = rollout_length


def plain_model_and_rollout(env: str, horizon: int) -> tuple[Any, Any]:
    model, (_, rollout) = model_and_rollouts(env, 2, horizon=horizon, network=partial(MLP, hidden=(8,)))
    return model, rollout


def test_positives_of_transitions_are_later_steps_of_their_row_and_episode() -> None:
    model, rollout = plain_model_and_rollout("CartPole-v1", 64)
    assert rollout.episode_start[1:].any() and not rollout.valid.all()
    loss, rows = InfoNCELoss(gamma=0.9), rollout.reward.shape[1]
    columns = drawn(model, loss, rollout)

    episode = rollout.episode_start.cumsum(0)
    step, positive = columns["step"], columns["positive"]
    counted = columns["later"] > 0
    assert torch.equal(counted.view(64, rows), followed(rollout))
    for one, other in zip(step[counted].tolist(), positive[counted].tolist(), strict=True):
        (t, row), (later, other_row) = divmod(one, rows), divmod(other, rows)
        assert row == other_row and later > t
        assert episode[t, row] == episode[later, row] and rollout.valid[later, row]
    obs = rollout.obs[:-1].flatten(0, 1)
    torch.testing.assert_close(columns["positive_obs"][counted], obs[positive[counted]])


def test_positives_of_transitions_in_segments_are_in_the_segment() -> None:
    model, rollout = plain_model_and_rollout("CartPole-v1", 64)
    rows, loss = rollout.reward.shape[1], InfoNCELoss()

    def cut(column: torch.Tensor) -> torch.Tensor:
        return column.unflatten(0, (4, 16, rows)).transpose(0, 1).flatten(1, 2)

    columns = drawn(model, loss, rollout, cut)

    counted = columns["later"] > 0
    time, positive_time = columns["step"][counted] // (4 * rows), columns["positive"][counted] // (4 * rows)
    assert columns["later"].shape == (16, 4 * rows) and bool((positive_time > time).all())
    assert torch.equal(columns["positive"][counted] % (4 * rows), columns["step"][counted] % (4 * rows))
    obs = cut(rollout.obs[:-1].flatten(0, 1)).flatten(0, 1)
    torch.testing.assert_close(columns["positive_obs"][counted], obs[columns["positive"][counted]])


def followed(rollout: Any) -> torch.Tensor:
    """Whether the next step belongs to the same episode."""
    goes_on = ~(rollout.episode_start | ~rollout.valid)
    return torch.cat([goes_on[1:], torch.zeros_like(goes_on[:1])])


def drawn(model: PPO, loss: InfoNCELoss, rollout: Any, cut: Any = None) -> Any:
    """The columns of a whole rollout, or of its segments."""
    model.trainer = trainer(None)  # type: ignore[arg-type]
    model.trainer.datamodule = Rows(len(rollout.reward))  # type: ignore[attr-defined]
    model.minibatch_generator = torch.Generator().manual_seed(1)
    batch = model.prepare(rollout)._replace(extras={loss.name: {}})
    if not model.recurrent:
        boundary = loss.prepare(model, rollout)["boundary"].flatten()
        batch = batch._replace(extras={loss.name: {"boundary": boundary}})
        batch = batch if cut is None else batch.map(cut)
    return loss.draw(model, batch)


def test_positives_of_sequences_are_later_steps_of_their_row_and_episode() -> None:
    model, (_, rollout) = model_and_rollouts("CartPole-v1", 2, horizon=64, network=LSTM_16)
    batch, loss = model.prepare(rollout), InfoNCELoss(num_negatives=8)
    noise, rows = torch.rand(64 * 8, 9), 8

    later, step, positive, negative = loss._indices(batch, noise)

    episode, counted = rollout.episode_start.cumsum(0).flatten(), later > 0
    goes_on = followed(rollout).flatten() & rollout.valid.flatten()
    assert torch.equal(counted & rollout.valid.flatten(), goes_on)
    one, other = step[goes_on], positive[goes_on]
    assert bool((other > one).all()) and torch.equal(one % rows, other % rows)
    assert torch.equal(episode[one], episode[other])
    assert torch.equal(negative[:, :4] % rows, (step % rows).unsqueeze(1).expand(-1, 4)), "half are of the same row"
    assert len((negative[:, 4:] % rows).unique()) == rows and int(negative.max()) < 64 * rows


@pytest.mark.parametrize("recurrent", [False, True])
def test_a_step_and_its_positive_are_no_negatives_of_it(recurrent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    network = LSTM_16 if recurrent else partial(MLP, hidden=(8,))
    model, (_, rollout) = model_and_rollouts(COUNTING, 2, horizon=4, rows=2, network=network, length=100)
    loss, seen = InfoNCELoss(num_negatives=64), {}
    original = __import__("modules.ppo.auxiliary.contrastive", fromlist=["info_nce"]).info_nce

    def spy(anchor: Any, positive: Any, negative: Any, excluded: Any, **kwargs: Any) -> Any:
        same = (negative == anchor.unsqueeze(1)).all(-1) | (negative == positive.unsqueeze(1)).all(-1)
        seen["exact"] = bool((excluded | ~same)[:6].all()) and bool((~excluded).any(1)[:6].all())
        return original(anchor, positive, negative, excluded, **kwargs)

    monkeypatch.setattr("modules.ppo.auxiliary.contrastive.info_nce", spy)
    columns = drawn(model, loss, rollout)
    batch = model.prepare(rollout)._replace(extras={loss.name: columns})
    features = torch.randn(*batch.advantage.shape, 5)
    if not recurrent:
        table = dict(zip(map(tuple, batch.obs.tolist()), features, strict=True))
        model.network = Table(table)

    loss.loss(model, batch, ForwardPass(features, None, None))  # type: ignore[arg-type]

    assert seen["exact"]


def test_steps_without_a_later_one_give_no_loss_and_finite_gradients() -> None:
    model, (rollout,) = model_and_rollouts(COUNTING, 1, horizon=1, network=LSTM_16)
    loss = InfoNCELoss()
    batch = model.prepare(rollout)._replace(extras={loss.name: drawn(model, loss, rollout)})
    features = model.torso_features(batch)[0]

    term, (nce, _) = loss.loss(model, batch, ForwardPass(features, None, None))  # type: ignore[arg-type]

    (gradient,) = torch.autograd.grad(term, model.network.recurrent[0].weight)
    assert float(term.detach()) == float(nce.detach()) == 0 and bool(gradient.isfinite().all())


def test_features_of_an_episode_that_are_alike_are_told_from_those_of_others() -> None:
    model, (_, rollout) = model_and_rollouts(COUNTING, 2, horizon=8, network=LSTM_16, length=100)
    loss = InfoNCELoss(temperature=0.05, num_negatives=2, logsumexp_coef=0.0)
    batch = model.prepare(rollout)._replace(extras={loss.name: drawn(model, loss, rollout)})
    of_row, random = torch.eye(8).expand(8, 8, 8), torch.randn(8, 8, 8)

    alike, unlike = (loss.loss(model, batch, ForwardPass(f, None, None))[1] for f in (of_row, random))  # type: ignore[arg-type]

    assert float(alike[0]) < float(unlike[0])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"num_microbatches": 2}, r"whole minibatch: set model\.num_microbatches to 1"),
        ({"advantage": "vtrace"}, r"single transitions: set model\.advantage to gae"),
        (
            {"priority_alpha": 0.8, **RECURRENT},
            r"priority_alpha is 0\.8, .* several times.*: set model\.priority_alpha",
        ),
    ],
)
def test_minibatches_that_it_cannot_compare_are_refused(
    tmp_path: Path, settings: dict[str, Any], sentence: str
) -> None:
    data = snake_data()
    model = small_ppo(data, auxiliary_losses=[InfoNCELoss()], **settings)
    with pytest.raises(ConfigurationError, match=sentence):
        trainer(tmp_path).fit(model, datamodule=data)
