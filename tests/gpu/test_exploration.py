"""Planning on a GPU: captured as one graph it equals the eager plan, is fast enough, and many agents cost little."""

import time

import pytest
import torch
from torch import Tensor

from datamodules.joint import Joint
from modules.exploration.acquisitions import InformationGain, Knowledge, OutsideBox
from modules.exploration.planners import CEM
from modules.exploration.policies import Belief, Planned
from modules.networks.latent import RBF
from modules.observed_model import ObservedModel

pytestmark = pytest.mark.gpu
GPU = torch.device("cuda")


class Decisions:
    """Decisions of some agents with an RBF grid of 11 x 11, N=256, H=15."""

    def __init__(self, agents: int):
        torch.manual_seed(0)
        high = torch.full((2,), 1.0, device=GPU)
        model = ObservedModel(RBF()).to(GPU).requires_grad_(False)
        model.dynamics.weight.normal_(std=0.1)
        self.knowledge = Knowledge(model, torch.eye(122, device=GPU), torch.tensor(0.05, device=GPU), -high, high)
        box = OutsideBox([-2.0, -2.0], [2.0, 2.0])
        self.planned = Planned(CEM(candidates=256, elites=25), [InformationGain(), box]).to(GPU)
        self.state = self.planned.initial_state(agents, 2)
        self.belief = Belief(torch.rand(agents, 2, device=GPU), torch.zeros(agents, 2, device=GPU))
        self.noise = torch.randn(agents, self.planned.noise_size(2), device=GPU)
        self.joint = Joint(self.decide, GPU, name="plan")

    def decide(self, mean: Tensor, plan: Tensor, noise: Tensor) -> Tensor:
        belief = self.belief._replace(mean=mean)
        return self.planned(self.knowledge, belief, {"plan": plan}, noise)[0]

    def __call__(self, mode: str) -> Tensor:
        self.joint.mode = mode  # type: ignore[assignment]
        return self.joint(self.belief.mean, self.state["plan"], self.noise)

    def milliseconds(self, repeats: int = 20) -> float:
        self("graph")
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(repeats):
            self("graph")
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - began) / repeats


@torch.no_grad()
def test_a_captured_plan_equals_the_eager_one() -> None:
    eager, captured = Decisions(4)("off"), Decisions(4)
    action = captured("graph")

    assert captured.joint.in_force == "one CUDA graph"
    torch.testing.assert_close(action, eager, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_a_plan_takes_three_milliseconds_and_thirty_two_agents_three_times_that() -> None:
    one, many = Decisions(1).milliseconds(), Decisions(32).milliseconds()

    assert one < 3 and many < 3 * one, f"one agent {one:.2f} ms, 32 agents {many:.2f} ms"
