"""Train small seeded runs and print a hash of each: `python -m tests.regression.fingerprint [RUN ...]`.

A hash covers parameters, buffers and optimizer states in the order of their registration (never by name, so that a
renaming keeps it) and all logged values. `tests.regression.compare` runs two commits on one machine; hashes of
different machines differ, because their BLAS kernels do.
"""

import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from gymnasium.spaces import MultiDiscrete

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.base import EnvDataModule
from datamodules.rollout import RolloutDataModule
from modules.base.algorithm import Algorithm
from modules.dqn.pqn import PQN
from modules.networks import LSTM, MLP
from modules.networks.heads.q_value import C51Head, QHead
from modules.sac.curiosity import Curiosity
from tests.modules.active_dynamics import test_latent_runs as latent
from tests.modules.sac_options import test_sac_options_runs as options
from tests.oracles.sac import box_data, choice_data, small_sac
from tests.support.counting_env import Counting
from tests.support.ddp_worker import train
from tests.support.dynamics_fixtures import explorer, spring_data
from tests.support.replay_fixtures import replay_data, small_dqn
from tests.support.small_runs import cartpole_data, small_ppo, snake_data, trainer
from tests.support.two_ranks import TwoRanks

Made = tuple[Algorithm, EnvDataModule]


class Choices(Counting):
    """`Counting` with two choices an action."""

    def __init__(self) -> None:
        super().__init__(length=5, action_space=MultiDiscrete([2, 3]))


def drift_data() -> RolloutDataModule:
    return RolloutDataModule(
        "tests.oracles.sac.Drift", num_envs=8, rollout_length=8, total_env_steps=640, eval_episodes=2
    )


def of(data: EnvDataModule, make: Callable[..., Algorithm], **settings: Any) -> Made:
    return make(data, **settings), data


def pqn(data: EnvDataModule) -> Algorithm:
    return PQN(data.spaces, update_epochs=2, num_minibatches=4, epsilon_decay_steps=500)


def scripted_options() -> Made:
    data = options.trading_data()
    return options.trader(data), data


narrow = partial(MLP, hidden=(32,))
RUNS: dict[str, Callable[[], Made]] = {
    "ppo_discrete": lambda: of(cartpole_data(), small_ppo),
    "ppo_masked": lambda: of(snake_data(), small_ppo, target_kl=0.01),
    "ppo_box": lambda: of(drift_data(), small_ppo),
    "ppo_multidiscrete": lambda: of(cartpole_data(env=f"{__name__}.Choices"), small_ppo),
    "ppo_recurrent": lambda: of(cartpole_data(), small_ppo, network=partial(LSTM, hidden=16), share_torso=True),
    "ppo_shared": lambda: of(snake_data(), small_ppo, network=narrow, share_torso=True),
    "ppo_stale": lambda: of(snake_data(policy_lag=1), small_ppo),
    "dqn": lambda: of(replay_data(n_step=1, priority_alpha=0.0), small_dqn),
    "dqn_prioritised": lambda: of(replay_data(n_step=3), small_dqn, head=partial(QHead, dueling=True)),
    "dqn_c51": lambda: of(replay_data(), small_dqn, head=C51Head),
    "pqn": lambda: of(snake_data(), pqn),
    "sac_box": lambda: of(box_data(), small_sac),
    "sac_discrete": lambda: of(choice_data(), small_sac),
    "sac_curiosity": lambda: of(box_data(n_step=1), small_sac, curiosity=Curiosity),
    "options_learned": lambda: of(options.rooms(), options.small),
    "options_scripted": scripted_options,
    "dynamics_regression": lambda: of(spring_data(total_env_steps=96), explorer),
    "dynamics_gradient": lambda: of(spring_data(total_env_steps=96, num_updates=2, batch_size=4), latent.learner),
    "dynamics_stored": lambda: of(latent.stored_springs(), latent.learner),
}
"""Makes the algorithm and the data of a run."""


def digest(model: Algorithm) -> str:
    """Hash parameters, buffers, optimizer states and logged values, in the order in which they were made."""
    found = hashlib.sha256()
    for tensor in [*model.parameters(), *model.buffers(), *model.optim.tensors]:
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    logged = [value for name, value in model.last_logged.items() if not name.startswith("time/")]
    found.update(np.asarray(logged, np.float64).tobytes())
    return f"{found.hexdigest()[:16]} {model.env_steps} env steps, {len(logged)} values"


def fit(name: str, root: Path, *callbacks: RunCheckpoint, **settings: Any) -> str:
    """Train one run from seed 1 and return its digest."""
    lightning.seed_everything(1, verbose=False)
    model, data = RUNS[name]()
    ckpt_path = settings.pop("ckpt_path", None)
    accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    run = trainer(root, *callbacks, val_check_interval=4, accelerator=accelerator, **settings)
    run.fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    return digest(model)


def resumed(name: str, root: Path) -> str:
    """Train five iterations, then resume from the checkpoint to the end."""
    fit(name, root / "part", RunCheckpoint(None), max_steps=5)
    (last,) = (root / "part").rglob("last.ckpt")
    return fit(name, root / "rest", ckpt_path=last)


def ranks(root: Path) -> str:
    """Train PPO on two CPU ranks and return a hash of what rank 0 saw."""
    with TwoRanks() as ranks:
        ranks.run(train, root)
    seen = json.loads((root / "rank0.json").read_text())
    values = [value for line in seen for name, value in sorted(line.items()) if name not in ("weights", "latest")]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


def main() -> None:
    """Print one JSON object: a digest for each run named, or for all of them."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = sys.argv[1:] or [*RUNS, "ppo_resumed", "ppo_two_ranks"]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            root = Path(folder, name)
            if name == "ppo_resumed":
                found[name] = resumed("ppo_masked", root)
            elif name == "ppo_two_ranks":
                found[name] = ranks(root)
            else:
                found[name] = fit(name, root)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
