"""What shortcuts are worth: both ways do the same, and only what a run does is measured."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from app.promises import REMEMBERED, Lists, Promise, compared, promised, promises, remembered, remembering, transfers
from modules.active_dynamics import ActiveDynamics
from modules.exploration.policies import Held
from modules.latent_model import LatentModel
from modules.networks.latent import LinearActions, LinearDecoder, MLPDynamics, MLPEncoder
from tests.app.conftest import Run
from tests.dynamics import explorer, spring_data
from tests.training import small_ppo, snake_data, trainer

CPU = torch.device("cpu")


class Between(Callback):
    """Calls a function after the third iteration."""

    def __init__(self, ask: Any):
        self.ask, self.answer = ask, None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 2:
            self.answer = self.ask(trainer, pl_module)


def latent(data: Any) -> ActiveDynamics:
    model = LatentModel(MLPEncoder(2), LinearDecoder(2), MLPDynamics(), LinearActions(2), samples=1, horizon=3)
    return ActiveDynamics(data.spaces, model, Held())


def asked(root: Path, ask: Any, latent_state: bool = False) -> Any:
    """The answer of `ask` between two iterations of a small run."""
    data, between = spring_data(updates=int(latent_state)), Between(ask)
    model = latent(data) if latent_state else explorer(data)
    trainer(root, between, max_steps=4).fit(model, datamodule=data)
    return between.answer


@pytest.mark.parametrize(
    ("latent_state", "names"),
    [
        (False, ["rollout copies", "transfers"]),
        (True, ["rollout copies", "transfers", "kl weights", "agent step"]),
    ],
)
def test_what_a_run_does_is_measured_both_ways(latent_state: bool, names: list[str], tmp_path: Path) -> None:
    found = asked(tmp_path, lambda run, model: promises(run, model, 0.1), latent_state)

    assert list(found) == names
    assert all(ways["naive"] > 0 and ways["ours"] > 0 for ways in found.values())


def test_other_algorithms_promised_nothing() -> None:
    assert promises(SimpleNamespace(), small_ppo(snake_data()), 0.1) == {}


def test_lists_and_ring_remember_the_same() -> None:
    random = torch.Generator().manual_seed(0)
    flags = torch.rand(3, 5, 2, generator=random) < 0.3
    rollout: Any = SimpleNamespace(
        obs=torch.randn(6, 2, 4, generator=random), action=torch.randn(5, 2, 1, generator=random),
        valid=~flags[0], terminated=flags[1], truncated=flags[2],
    )  # fmt: skip
    lists, ring = Lists(rollout), remembering(rollout)

    plain, ours = lists.remember(), remembered(ring, rollout)

    assert len(plain.joined) == REMEMBERED and 0 < plain.joined.float().mean() < 1
    assert all(torch.equal(a, b) for a, b in zip(plain, ours, strict=True))


def test_metrics_are_the_same_however_they_are_read() -> None:
    promise = transfers(7, CPU)

    assert promise.naive() == promise.ours() == [1.0, 1.0]


def test_weights_that_are_computed_anew_are_those_that_were_kept(tmp_path: Path) -> None:
    (weights,) = asked(
        tmp_path, lambda *run: [each for each in promised(*run) if each.name == "kl weights"], latent_state=True
    )

    torch.testing.assert_close(weights.naive(), weights.ours())
    assert len(weights.ours()) == 3


def test_both_ways_are_called_in_turn_and_timed() -> None:
    called: list[str] = []

    def slow() -> None:
        called.append("naive")
        time.sleep(0.01)

    taken = compared(Promise("sleep", slow, lambda: called.append("ours")), 0.05, CPU)

    assert taken["naive"] >= 0.01 > taken["ours"]
    assert called[:4] == ["naive", "ours", "naive", "ours"] and len(called) % 2 == 0


def test_benchmark_prints_them_and_puts_them_into_its_json(run: Run) -> None:
    outcome = run(
        "benchmark", "--config", "dynamics_offline.yaml", "--repeats", "1", "--seconds", "0.2", "--threads", "1",
        "--set", "data.batch_size=2", "data.sequences=2", "trainer.log_every_n_steps=1",
    )  # fmt: skip

    result = json.loads(outcome.out.splitlines()[-1])
    assert outcome.code == 0 and set(result["promises"]) == {"transfers", "kl weights"}
    assert "us naive" in outcome.out and "collect" not in outcome.out
