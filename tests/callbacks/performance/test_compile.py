"""Compile: every mode works, phases that cannot be compiled run eagerly with a warning, results stay the same."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch import Callback

from callbacks.performance.compile import Compile
from datamodules.rollout import RolloutDataModule
from modules.networks import MLP
from modules.ppo.ppo import PPO
from tests.support.small_runs import Told, cartpole_data, small_ppo, trainer

ELU = partial(MLP, activation="elu")
"""A network whose gradients autograd makes, so that the update has a part to compile."""
ON_DEVICE: dict[str, Any] = {"env": "CartPoleDevice-v1", "backend": "auto", "total_env_steps": 192}
"""Environments of tensors, whose steps are compiled with the policy."""


def run(root: Path, *callbacks: Callback, data: RolloutDataModule | None = None, network: Any = ELU) -> PPO:
    lightning.seed_everything(1, verbose=False)
    data = data or cartpole_data(total_env_steps=128)
    model = small_ppo(data, network=network)
    trainer(root, *callbacks).fit(model, datamodule=data)
    return model


def difference(one: PPO, other: PPO) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@pytest.mark.timeout(600)  # the C++ compiler takes minutes on a machine with other work
def test_a_compiled_run_equals_an_eager_one(tmp_path: Path) -> None:
    told = {"off": Told(), "default": Told()}
    eager, compiled = (
        run(tmp_path, Compile(mode), told[mode], data=cartpole_data(total_env_steps=128)) for mode in told
    )
    assert "update eager" in told["off"].forms["phases"]
    assert "update compiled" in told["default"].forms["phases"]
    assert difference(eager, compiled) < 1e-4


@pytest.mark.timeout(600)  # the C++ compiler takes minutes on a machine with other work
def test_a_compiled_run_that_collects_ahead_equals_an_eager_one(tmp_path: Path) -> None:
    told = {"off": Told(), "default": Told()}
    eager, compiled = (
        run(tmp_path, Compile(mode), told[mode], data=cartpole_data(**ON_DEVICE, policy_lag=1), network=MLP)
        for mode in told
    )
    assert "collect compiled" in told["default"].forms["phases"]
    assert difference(eager, compiled) < 1e-4


def test_a_cpu_compiles_neither_written_out_gradients_nor_acting_for_environments_that_are_not_tensors(
    tmp_path: Path,
) -> None:
    told = Told()
    run(tmp_path, Compile("default"), told, network=MLP)
    assert told.manual_backward
    assert told.forms["phases"] == "collect eager, prepare eager, update eager"
    assert told.forms["acting"] == "4 rows a policy call, eager"


class CompileActing(Callback):
    """Compiles the halves' acting, as `Compile` does on a GPU."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        for each in trainer.datamodule.collector.policy_runners:
            each.phase.mode, each.phase.backend = "default", "aot_eager"


def test_a_compiled_pool_of_more_steps_than_may_be_compiled_anew_equals_an_eager_one(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"backend": "pool", "num_envs": 4, "rollout_length": 16, "total_env_steps": 128}
    eager, compiled = (
        run(tmp_path, each, data=cartpole_data(**settings), network=MLP) for each in (Compile("off"), CompileActing())
    )
    assert difference(eager, compiled) < 1e-5


def test_auto_is_eager_without_a_gpu_and_graph_says_that_it_needs_one(tmp_path: Path) -> None:
    auto = run(tmp_path, Compile())
    assert {phase.execution_mode for phase in auto.phases.values()} == {"eager"}


def test_what_cannot_be_compiled_goes_on_eagerly_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(self: PPO, batch: Any) -> Any:
        print("seen", float(batch.advantage.sum()))  # looks at a value: no compiler takes that
        return original(self, batch)

    original = PPO.loss
    monkeypatch.setattr(PPO, "loss", loss)
    with pytest.warns(UserWarning, match="update cannot be compiled .* the run continues without it"):
        model = run(tmp_path, Compile("default", backend="eager"))
    assert model.phases["update"].execution_mode == "eager" and model.global_step == 2


class Failing(Callback):
    """Notes the current precision, and may end the run with an error."""

    def __init__(self, fails: bool):
        self.fails, self.precisions = fails, list[str]()

    def on_train_batch_end(self, *_: Any) -> None:
        self.precisions.append(torch.get_float32_matmul_precision())
        if self.fails:
            raise RuntimeError("It was to fail.")


@pytest.mark.parametrize("fails", [False, True])
def test_float32_matmul_precision_is_set_for_the_run_only(tmp_path: Path, fails: bool) -> None:
    before, failing = torch.get_float32_matmul_precision(), Failing(fails)
    with pytest.raises(RuntimeError, match="It was to fail") if fails else nullcontext():
        run(tmp_path, Compile("off", float32_matmul_precision="high"), failing)
    assert {*failing.precisions} == {"high"} and torch.get_float32_matmul_precision() == before


class Keeping(Callback):
    """Keeps the module, and the phases' parts that are compiled after an iteration."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.module, self.phase = pl_module, pl_module.phases["update"]
        self.compiled, self.backend = "loss" in vars(pl_module), self.phase.backend


@pytest.mark.parametrize("fails", [False, True])
def test_compiled_functions_do_not_outlive_the_run(tmp_path: Path, fails: bool) -> None:
    keeping = Keeping()
    with pytest.raises(RuntimeError, match="It was to fail") if fails else nullcontext():
        run(tmp_path, Compile("default", backend="eager"), keeping, Failing(fails))
    assert keeping.compiled and keeping.backend == "eager"
    assert "loss" not in vars(keeping.module)


def test_the_backend_of_the_compiler_is_the_one_asked_for(tmp_path: Path) -> None:
    graphs: list[Any] = []

    @torch._dynamo.register_backend(name="noting")
    def noting(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    run(tmp_path, Compile("default", backend="noting"))

    assert graphs
