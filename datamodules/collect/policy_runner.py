"""PolicyRunner: call a policy by itself, compiled or captured."""

import torch
from torch import Tensor

from datamodules.core.phase import Phase
from datamodules.core.protocols import Policy
from datamodules.core.pytree import tree_map
from datamodules.core.types import PolicyInput, PolicyOutput, State


class PolicyRunner:
    """Callable that selects actions for a group of rows.

    With on-device environments the policy is part of the captured rollout. With other environments only the computation
    between two steps can be captured; a call is then one launch on a GPU instead of dozens.

    Args:
        policy: the policy.   device: its device.

    Attributes:
        phase: the compiled or captured call; its results are overwritten by the next call.
    """

    def __init__(self, policy: Policy, device: torch.device):
        self.policy = policy
        self.phase: Phase[tuple[PolicyOutput, State]] = Phase(
            lambda *args: self.call(*args),
            device,
            name="acting",
            compile_targets=[(self, "call")] if getattr(policy, "compilable", True) else [],
            timed=False,
        )
        self._has_own_inputs = False

    def call(self, inputs: PolicyInput, noise: Tensor) -> tuple[PolicyOutput, State]:
        """Call the policy."""
        return self.policy.act(inputs, noise)

    def __call__(self, inputs: PolicyInput, noise: Tensor) -> tuple[PolicyOutput, State]:
        """Call `Policy.act` through the phase."""
        if not self._has_own_inputs:  # a graph overwrites the arguments of its first call
            self._has_own_inputs = True
            inputs, noise = tree_map(torch.clone, inputs), noise.clone()
        return self.phase(inputs, noise)
