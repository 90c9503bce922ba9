"""Several seeds of PPO in one program: the members of a population (`PPOPopulation`)."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import Optimizer

from datamodules.core.errors import ConfigurationError
from datamodules.core.exports import class_path
from datamodules.core.pytree import tree_map
from datamodules.core.seeding import derive_generator
from datamodules.core.types import MetricVector, Obs, PolicyInput, PolicyOutput, SpaceSpec, State
from modules.functional.policy_gradient import explained_variance
from modules.ppo.batch import NormalizedAdvantage, PPOBatch, PPOLoss
from modules.ppo.member_metrics import MemberEvaluations, MemberMetricLogger, means_over_members, split_by_member
from modules.ppo.ppo import METRICS, PPO

SINGLE_AGENT = (
    "callbacks.analysis",
    "callbacks.figures",
    "callbacks.opponents",
    "callbacks.options",
    "callbacks.video",
)
"""Packages of callbacks that read the networks of a single agent."""


class PPOPopulation(PPO):
    """Train one PPO agent for each seed, all of them in one program, in on-device environments.

    Every parameter has the members as its first dimension, and the methods of PPO that read parameters are vmapped
    over it. The optimizer is elementwise, gradients are clipped and advantages normalised for each member. A member has
    `data.num_envs` environments, and the initial weights and random numbers of a run of PPO with its seed: its weights
    are those of that run, up to rounding. Environment steps are those of one member.

    Args:
        spaces: observation and action space.
        seeds: seed of each member.
        ppo: arguments of `PPO`, the same for all members.

    Raises: ConfigurationError for settings that need more than one vmapped computation for all members.

    Attributes:
        num_members: number of seeds.   saved_member: the member that the next checkpoint is of.

    Source: Lu et al. 2022, arXiv:2210.05639, train seeds in one program by vmapping over them.
    """

    action_types = ("discrete", "multidiscrete", "binary")  # type: ignore[assignment]  # fewer than those of PPO

    def __init__(self, spaces: SpaceSpec, seeds: list[int], **ppo: Any):
        super().__init__(spaces, **ppo)
        if len({*seeds}) < max(1, len(seeds)) or min(seeds) < 0:
            raise ConfigurationError(f"model.seeds is {seeds}; give each member a seed of its own, of at least 0.")
        self.seeds, self.num_members, self.saved_member = list(seeds), len(seeds), 0
        check_vmappable(self)
        stack_parameters_(self, make_members(spaces, seeds, ppo))
        self.metric_logger = MemberMetricLogger(self.seeds)
        self.evaluation_episodes = MemberEvaluations(self.seeds)  # type: ignore[assignment]
        self.member_loggers: list[TensorBoardLogger] = []

    def setup(self, stage: str) -> None:
        """Check the data, the Trainer and its callbacks."""
        super().setup(stage)
        if stage != "fit":
            raise ConfigurationError(
                "A population is only trained: test a member's checkpoint, in the run folder under its seed."
            )
        trainer, callbacks = self.trainer, cast(Any, self.trainer).callbacks
        single = [type(each) for each in callbacks if type(each).__module__.startswith(SINGLE_AGENT)]
        single += [type(each) for each in callbacks if isinstance(each, EarlyStopping | ModelCheckpoint)]
        for what, present in {
            type(self.data).__name__: not getattr(self.data, "supports_population", False),
            "data.policy_lag 1": getattr(self.data, "policy_lag", 0) > 0,
            "several devices": self.data.world_size > 1,
            f"trainer.precision {trainer.precision}": trainer.precision != "32-true",
            f"the callback {single[0].__name__ if single else ''}": bool(single),
        }.items():
            if present:
                refuse(f"with {what}")

    def on_fit_start(self) -> None:
        """Create the members' generators."""
        self.action_generators, self.minibatch_generators = (
            [derive_generator(seed, 0, stream, self.device) for seed in self.seeds]
            for stream in ("action", "minibatch")
        )
        if self.trainer.loggers:
            folder = str(self.trainer.log_dir)
            self.member_loggers = [
                TensorBoardLogger(folder, "", f"seed_{seed}", default_hp_metric=False) for seed in self.seeds
            ]
        super().on_fit_start()
        if not self.optim.flat:
            refuse("with an optimizer that is not elementwise")

    def forward(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call a method; `vmapped` does so with the parameters of one member."""
        return method(self, *args)

    def vmapped(self, method: Callable[..., Any], *args: Any, dim: int = 0) -> Any:
        """Call a method for every member, the members being dimension `dim` of arguments and results.

        Args:
            method: takes this module with the parameters of one member, then `args`, in which every leaf is a tensor.
        """

        def call(parameters: dict[str, Tensor], *args: Any) -> Any:
            return functional_call(self, parameters, (method, *args))

        in_dims = (0, *(dim for _ in args))
        return vmap(call, in_dims=in_dims, out_dims=dim)(dict(self.named_parameters()), *args)

    def by_member(self, rows: Any) -> Any:
        """Split rows `[members x N, ...]`, those of one member after those of another, into `[members, N, ...]`."""
        return tree_map(lambda part: part.unflatten(0, (self.num_members, -1)), rows)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the noise of a rollout `[T, rows]` by the members' generators, and of an evaluation `[rows]` by one."""
        if len(shape) == 1:
            return super().noise(shape, generator)
        part = (shape[0], shape[1] // self.num_members)
        return torch.cat([self.actor.noise(part, each) for each in self.action_generators], 1)

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Return the actions of every member's policy for its rows."""
        arguments = inputs._asdict() | {"noise": None if greedy else noise}
        tensors = {name: self.by_member(value) for name, value in arguments.items() if value is not None}

        def act(member: PPO, tensors: dict[str, Any]) -> PolicyOutput:
            member_inputs = {name: value for name, value in tensors.items() if name != "noise"}
            return PPO.act(member, PolicyInput(**member_inputs), tensors.get("noise"), greedy)[0]

        return tree_map(lambda column: column.flatten(0, 1), self.vmapped(act, tensors)), {}

    def value(self, obs: Obs, state: State | None = None) -> Tensor:
        """Return v(s) `[N]` of the observations of vector steps, one step after another."""
        steps = (-1, self.num_members, self.data.num_envs)
        obs = tree_map(lambda part: part.unflatten(0, steps), obs)

        def value(member: PPO, obs: Obs) -> Tensor:
            rows = tree_map(lambda part: part.flatten(0, 1), obs)
            return PPO.value(member, rows).unflatten(0, (-1, steps[2]))

        return self.vmapped(value, obs, dim=1).flatten()

    def update(self, batch: PPOBatch) -> MetricVector:
        """Train `update_epochs` epochs on the batch; return the means of the metrics, `[metrics, members]`."""
        total = torch.zeros(len(METRICS), self.num_members, device=self.device)
        for _ in range(self.update_epochs):
            total += self.phases["update"](batch, self.draw_order(batch.size))[0]
            self.updates += self.num_minibatches
        return MetricVector(METRICS, total / self.update_epochs)

    def draw_order(self, size: int, probability: Tensor | None = None) -> Tensor:
        """Return the order of a batch in which each minibatch has the transitions of member after member."""
        members, envs = self.num_members, self.data.num_envs
        transitions, number = size // members, self.num_minibatches  # of each member
        if number == 1 or self.minibatch_order == "strided":  # as in `PPOBatch.minibatches`
            strided = torch.arange(transitions, device=self.device).view(-1, number).T.flip(0)
            orders = strided.unsqueeze(1).expand(-1, members, -1)
        else:
            permutations = [
                torch.randperm(transitions, generator=each, device=self.device) for each in self.minibatch_generators
            ]
            orders = torch.stack([order.view(number, -1) for order in permutations], 1)
        step, env = orders // envs, orders % envs
        member = torch.arange(members, device=self.device).view(1, -1, 1)
        return ((step * members + member) * envs + env).flatten()

    def train_epoch(self, batch: PPOBatch, order: Tensor | None) -> tuple[Tensor, None]:
        """Take one optimizer step on each minibatch; return the means of the metrics `[metrics, members]`, and None."""
        metrics = [self.train_minibatch(each)[0] for each in batch.minibatches(self.num_minibatches, order)]
        columns = (each.view(-1, self.num_members, self.data.num_envs) for each in (batch.value, batch.target))
        explained = vmap(explained_variance, in_dims=1)(*columns)
        return torch.cat([torch.stack(metrics).mean(0), explained.unsqueeze(0)]), None

    def loss(self, batch: PPOBatch, normalized: NormalizedAdvantage | None = None) -> PPOLoss:
        """Return the sum of the members' losses of a minibatch, and their metrics `[5, members]`."""
        columns = {name: self.by_member(column) for name, column in batch._asdict().items() if column is not None}

        def loss(member: PPO, columns: dict[str, Any]) -> PPOLoss:
            return PPO.loss(member, batch._replace(**columns))

        losses, metrics, value = self.vmapped(loss, columns)
        return PPOLoss(losses.sum(), metrics.T, value.flatten())

    def step(self, loss: Tensor, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """Take one optimizer step, each member's gradient clipped by its own norm; return the norms `[members]`."""
        flat = self.optim.flat[optimizer]
        flat.copy_grads_(torch.autograd.grad(loss, flat.parameters, allow_unused=True))
        norms = [torch.linalg.vector_norm(each.flatten(1), dim=1) for each in flat.grad_views]
        norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)
        excess = (norm / max_grad_norm).clamp(min=1)
        for gradient in flat.grad_views:
            gradient.div_(excess.view(-1, *[1] * (gradient.dim() - 1)))
        self.optim.step_from_flat_grad(optimizer, math.inf)
        return norm

    def end_iteration(self, collected: Any, metrics: MetricVector | None) -> None:
        """Count the environment steps of one member; log every `log_every_n_steps`."""
        super().end_iteration(collected._replace(env_steps=collected.env_steps // self.num_members), metrics)

    def log_values(self, values: dict[str, float], env_steps: int | None = None) -> None:
        """Log the means over the members, and each member's values to its own logger."""
        members = split_by_member(values, self.seeds)
        super().log_values(means_over_members(members), env_steps)
        for logger, member_values in zip(self.member_loggers, members.values(), strict=False):
            logger.log_metrics(member_values, step=self.env_steps if env_steps is None else env_steps)

    def on_fit_end(self) -> None:
        """Write what the members' loggers hold."""
        super().on_fit_end()
        for logger in self.member_loggers:
            logger.finalize("success")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make it the checkpoint of one member, of the weights that a run of PPO with its seed would save."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["hyper_parameters"] |= {"_class_path": class_path(PPO)}
        unused = ("ranks", "optimizers", type(self.data).__qualname__)
        for content, names in ((checkpoint["hyper_parameters"], ("seeds",)), (checkpoint, unused)):
            for name in names:
                content.pop(name, None)
        weights = checkpoint["state_dict"].items()
        checkpoint["state_dict"] = {name: value[self.saved_member].clone() for name, value in weights}


def make_members(spaces: SpaceSpec, seeds: Sequence[int], ppo: dict[str, Any]) -> list[PPO]:
    """Create PPO with the initial weights of a run with each seed; the random state of this process does not change."""
    members, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)  # several threads take a hundred times as long where they exceed the free cores
    try:
        with torch.random.fork_rng(devices=[]):
            for seed in seeds:
                torch.manual_seed(seed)
                members.append(PPO(spaces, **ppo))
    finally:
        torch.set_num_threads(threads)
    return members


def stack_parameters_(model: PPO, members: Sequence[PPO]) -> None:
    """Replace the values of every parameter by those of all members, `[members, ...]`."""
    values = [dict(member.named_parameters()) for member in members]
    for name, parameter in model.named_parameters():
        parameter.data = torch.stack([each[name].detach() for each in values])


def check_vmappable(model: PPO) -> None:
    """Check that the members' computations are one computation with other parameters.

    Raises: ConfigurationError otherwise.
    """
    options = model.large_batch
    for what, present in {
        "a recurrent network": model.recurrent,
        "several agents": model.spaces["num_agents"] > 1,
        "model.normalize_obs": model.obs_normalizer is not None,
        "model.normalize_reward": model.reward_scaler is not None,
        "model.reward_centering": model.reward_centerer is not None,
        "model.auxiliary_losses": bool(model.auxiliary_losses),
        "model.target_kl": model.target_kl is not None,
        "model.advantage vtrace": options.advantage == "vtrace",
        "model.priority_alpha": options.priority_alpha > 0,
        "model.num_microbatches": options.num_microbatches > 1,
        "model.refresh_values": options.refresh_values,
        "a network with buffers": any(True for _ in model.buffers()),
        "a network with dropout": any(isinstance(each, _DropoutNd) for each in model.modules()),
    }.items():
        if present:
            refuse(f"with {what}")


def refuse(what: str) -> NoReturn:
    """Raise ConfigurationError: populations cannot be trained in this way."""
    raise ConfigurationError(f"A population cannot be trained {what}: change that, or train its seeds one by one.")
