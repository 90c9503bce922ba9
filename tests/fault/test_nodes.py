"""Two nodes on one machine, started as torchrun and SLURM start them: one run, saved once."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]

NODES = range(2)
FIT = [
    "-m", "app", "fit", "--config", "ppo_fast.yaml", "--trainer.accelerator", "cpu", "--trainer.strategy", "ddp",
    "--trainer.num_nodes", "2", "--data.num_envs", "8", "--data.rollout_length", "16", "--data.total_env_steps", "1024",
    "--data.eval_episodes", "2", "--trainer.num_sanity_val_steps", "0", "--model.network.hidden", "[16]",
]  # fmt: skip


def free_port() -> int:
    """Return a port that no program listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def torchrun(node: int, port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command of one node."""
    place = ["--nnodes", "2", "--node_rank", str(node), "--master_addr", "127.0.0.1", "--master_port", str(port)]
    return [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "1", *place, *FIT], {}


def slurm(node: int, port: int) -> tuple[list[str], dict[str, str]]:
    """Return the command of one node, and the variables that srun sets."""
    variables = {"NTASKS": 2, "NTASKS_PER_NODE": 1, "NNODES": 2, "NODEID": node, "PROCID": node, "LOCALID": 0}
    variables |= {"JOB_ID": 1, "JOB_NAME": "train", "NODELIST": "127.0.0.1", "JOB_NODELIST": "127.0.0.1"}
    named = {f"SLURM_{name}": str(value) for name, value in variables.items()}
    return [sys.executable, *FIT], {**named, "MASTER_PORT": str(port)}


@pytest.mark.parametrize("launcher", [torchrun, slurm])
def test_two_nodes_train_one_run(launcher, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    root, port, processes = Path(__file__).parents[2], free_port(), []
    for node in NODES:
        command, variables = launcher(node, port)
        environ = {**os.environ, **variables, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        with (tmp_path / f"node{node}.txt").open("w") as log:
            processes.append(subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=log, stderr=log))

    codes = [process.wait(timeout=110) for process in processes]

    outputs = [(tmp_path / f"node{node}.txt").read_text() for node in NODES]
    assert codes == [0, 0], outputs[0][-1500:] + outputs[1][-1500:]
    (last,) = tmp_path.glob("runs/*/*/checkpoints/last.ckpt.json")
    assert {entry["env_steps"] for entry in json.loads(last.read_text())} == {1024}
    assert "replay: " in outputs[0] and "replay: " not in outputs[1]
