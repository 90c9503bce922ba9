"""On a GPU: NaN from an environment is named although nothing waits for the rollout it came in."""

from pathlib import Path

import pytest

from callbacks.run_control.divergence_guard import DivergenceGuard
from datamodules.core.types import NonFiniteError
from datamodules.rollout import RolloutDataModule
from tests.support.small_runs import small_ppo, trainer

pytestmark = pytest.mark.gpu
ENV = "tests.datamodules.collect.test_finite_check.SpoilingTensors"


@pytest.mark.parametrize("iterations", [1, 10])
def test_the_environment_is_named(tmp_path: Path, iterations: int) -> None:
    data = RolloutDataModule(ENV, num_envs=4, rollout_length=4, total_env_steps=16 * iterations, eval_episodes=4)

    with pytest.raises(NonFiniteError, match="SpoilingTensors returned the reward nan in environment 2, in step 2 "):
        trainer(tmp_path, DivergenceGuard(), accelerator="cuda").fit(small_ppo(data), data)
