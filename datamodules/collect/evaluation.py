"""Play complete episodes for validate, test and predict."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.utils.data import IterableDataset

from datamodules.collect.agent_rows import EnvSteps, agent_mean, any_agent, merge_agents, per_agent
from datamodules.collect.finite_check import EvaluationFiniteCheck
from datamodules.core.phase import Phase
from datamodules.core.protocols import Policy, StatelessVectorEnv, VectorEnv
from datamodules.core.pytree import name_parts, tree_map
from datamodules.core.types import EpisodeBatch, Obs, PolicyInput, State, VectorStep, insert_masks, select_masks
from datamodules.env_interface.env_errors import OWN_CODE, exits_refused

MAX_AGENT_RETURNS = 16
"""Most agents whose returns are reported one by one."""


class EvaluationState(NamedTuple):
    """State carried from one step to the next; leaves are `[B, ...]`, results `[num_envs, episodes_per_env]`.

    obs, masks, episode_start: policy input.   policy_state, env_state: of the policy and of on-device envs.
    return_, length, values: of the first `episodes_per_env` episodes of every environment.
    agent_returns: of every agent by name, if there are several; `return_` is their mean.
    finished: number of finished episodes.   num_cut: number of episodes truncated by `max_steps`.
    """

    obs: Obs
    masks: State
    episode_start: Tensor
    policy_state: State
    env_state: State
    return_: Tensor
    length: Tensor
    values: State
    agent_returns: State
    finished: Tensor
    num_cut: Tensor


class EvaluationDataset(IterableDataset):
    """Dataset that plays a fixed number of complete episodes and yields them as one batch.

    Every environment plays the same number of episodes, fixed beforehand: taking the episodes that finish first would
    favour short ones. Every evaluation uses the same seed, so that evaluating a checkpoint twice gives the same result.
    With several agents, the return of an episode is the mean of its agents' returns; each agent's return is reported
    too, of up to `MAX_AGENT_RETURNS` agents.

    Args:
        envs: vector environment with B rows.
        policy: selects the actions.
        episodes: minimum number of episodes; rounded up to a multiple of the environments.
        seed: seed of the environments and of a sampling policy.
        greedy: use the mode of the policy instead of a sample.
        record: record the trajectories.
        max_steps: episodes are truncated after this number of steps, with a warning.
        cut: episodes are meant to end at `max_steps`; no warning.
        name: name of the environment in messages.

    Attributes:
        should_stop: called after every step; once it returns True, no more steps are taken and no episode is returned.
    """

    check_interval = 16
    """Steps between two checks for the end of all episodes on a GPU, where a check synchronizes."""

    def __init__(
        self,
        envs: VectorEnv,
        policy: Policy,
        episodes: int,
        *,
        seed: int,
        greedy: bool = True,
        record: bool = False,
        max_steps: int = 20_000,
        cut: bool = False,
        name: str = "The environment",
    ):
        self.envs, self.policy, self.seed, self.greedy, self.record = envs, policy, seed, greedy, record
        self.stateless_envs = cast(StatelessVectorEnv, envs) if envs.is_stateless else None
        self.num_agents = envs.spaces["num_agents"]
        self.rows = envs.num_envs * self.num_agents
        self.episodes_per_env = -(-episodes // envs.num_envs)
        self.max_steps, self.cut, self.name = max_steps, cut, name
        self.should_stop: Callable[[], bool] = lambda: False
        envs.return_all_final_obs = record
        envs.limit(max_steps)
        self.phase = Phase(self.step, envs.device, name="evaluation", capturable=envs.is_stateless)

    def __len__(self) -> int:
        """Return 1, the number of batches."""
        return 1

    def __iter__(self) -> Iterator[EpisodeBatch]:
        """Play and yield all episodes as one batch."""
        yield self.run()

    @torch.no_grad()
    def run(self) -> EpisodeBatch:
        """Play `episodes_per_env` episodes in every environment, finished or not; return none if interrupted.

        Raises: ConfigurationError for NaN and infinities from the environment; on a GPU some steps later.
        """
        finite_check = EvaluationFiniteCheck(
            self.name,
            self.num_agents,
            has_final_obs=self.record,
            autoreset_steps=self.envs.has_invalid_steps,
        )
        generator = torch.Generator(device=self.envs.device).manual_seed(self.seed)
        state, recorder, steps, interrupted = self._initial_state(), TrajectoryRecorder(), 0, False
        finite_check.add_reset(state.obs)
        finite_check.check()
        while not interrupted and not self._is_done(state, steps):
            noise = state.episode_start if self.greedy else self.policy.noise((self.rows,), generator)
            env_noise = self.envs.noise(1)
            obs = tree_map(lambda part: part.cpu().clone(), state.obs) if self.record else state.obs
            step_noise = state.episode_start if env_noise is None else env_noise[0]
            with exits_refused(OWN_CODE):
                state, action, step = self.phase(state, noise, step_noise)
            finite_check.add(action, step)
            if self.envs.device.type == "cpu" or (steps + 1) % self.check_interval == 0:
                finite_check.check(step)
            if self.record:
                recorder.add(obs, action, step)
            if not self.stateless_envs:
                state = state._replace(obs=tree_map(torch.clone, state.obs))
            steps, interrupted = steps + 1, self.should_stop()
        self._warn_of_cut(state)
        is_started = (state.length.flatten() > 0) & (not interrupted)
        info = {key: value.flatten()[is_started] for key, value in (state.values | state.agent_returns).items()}
        trajectories = recorder.episodes(self.episodes_per_env) if self.record and not interrupted else []
        return EpisodeBatch(state.return_.flatten()[is_started], state.length.flatten()[is_started], info, trajectories)

    def step(
        self, state: EvaluationState, noise: Tensor, env_noise: Tensor
    ) -> tuple[EvaluationState, Tensor, VectorStep]:
        """Step every row; return the new state, the actions, and the result of the environments."""
        mask = state.masks.get("action_mask")
        policy_state = insert_masks(state.policy_state, state.masks)
        output, policy_state = self.policy.act(
            PolicyInput(state.obs, policy_state, state.episode_start, mask), noise=noise, greedy=self.greedy
        )
        if self.stateless_envs:
            env_state, step, last = self.stateless_envs.stateless_step(state.env_state, output.action, env_noise)
            if self.record:
                step = step._replace(final_obs=self.stateless_envs.observation(last))
        else:
            env_state, step = state.env_state, self.envs.step(output.action)
        episode_start = step.terminated | step.truncated | ~step.valid
        state = state._replace(
            obs=step.obs,
            masks=select_masks(step.info),
            episode_start=episode_start,
            policy_state=policy_state,
            env_state=env_state,
        )
        return self._accumulate(state, step), output.action, step

    def _accumulate(self, state: EvaluationState, step: VectorStep) -> EvaluationState:
        """Add a step to the current episode of every environment that has not finished all its episodes."""
        merged = merge_agents(step.reward, step.terminated | step.truncated, step.valid, self.num_agents)
        state = self._without_failed_episodes(state, merged) if self.envs.has_invalid_steps else state
        counted = (state.finished < self.episodes_per_env) & merged.valid
        index = state.finished.clamp(max=self.episodes_per_env - 1).unsqueeze(1)
        values = {}
        for key, total in state.values.items():
            value = agent_mean(step.info[key], self.num_agents).to(torch.float64).unsqueeze(1)
            values[key] = total.scatter(1, index, torch.where(counted.unsqueeze(1), value, total.gather(1, index)))
        length = state.length.scatter_add(1, index, counted.to(torch.int64).unsqueeze(1))
        at_limit = length.gather(1, index).squeeze(1) >= self.max_steps
        truncated = any_agent(step.truncated & ~step.terminated, self.num_agents)
        return state._replace(
            num_cut=state.num_cut + (counted & truncated & at_limit),
            return_=state.return_.scatter_add(1, index, (merged.reward * counted).to(torch.float64).unsqueeze(1)),
            length=length,
            values=values,
            agent_returns=self._with_agent_rewards(state.agent_returns, step.reward, counted, index),
            finished=state.finished + (counted & merged.ended),
        )

    def _with_agent_rewards(self, returns: State, reward: Tensor, counted: Tensor, index: Tensor) -> State:
        """Return the agents' returns with the rewards of a step."""
        agent_rewards = per_agent(reward, self.num_agents).unbind(-1)
        return {
            key: total.scatter_add(1, index, (agent_reward * counted).to(torch.float64).unsqueeze(1))
            for (key, total), agent_reward in zip(returns.items(), agent_rewards, strict=False)
        }

    def _without_failed_episodes(self, state: EvaluationState, merged: EnvSteps) -> EvaluationState:
        """Discard the current episode of environments that failed; there is none before an autoreset step."""
        slots = torch.arange(self.episodes_per_env, device=merged.valid.device)
        failed = (state.finished.unsqueeze(1) == slots) & ~merged.valid.unsqueeze(1)
        values, agent_returns = (
            {key: total.masked_fill(failed, 0) for key, total in totals.items()}
            for totals in (state.values, state.agent_returns)
        )
        return_, length = (total.masked_fill(failed, 0) for total in (state.return_, state.length))
        return state._replace(return_=return_, length=length, values=values, agent_returns=agent_returns)

    def _initial_state(self) -> EvaluationState:
        obs, masks = self.envs.reset(self.seed)
        device = self.envs.device
        episode_start, zeros = (
            torch.ones(self.rows, dtype=torch.bool, device=device),
            torch.zeros(self.envs.num_envs, self.episodes_per_env),
        )
        return_ = zeros.to(device, torch.float64)
        return EvaluationState(
            obs=tree_map(torch.clone, obs),
            masks=masks,
            episode_start=episode_start,
            policy_state=self.policy.initial_state(self.rows),
            env_state=self.stateless_envs.state if self.stateless_envs else {},
            return_=return_,
            length=zeros.to(device, torch.int64),
            values={key: return_.clone() for key in self.envs.episode_stat_keys},
            agent_returns={f"{name}_return": return_.clone() for name in self._agent_names()},
            finished=torch.zeros(self.envs.num_envs, dtype=torch.int64, device=device),
            num_cut=torch.zeros(self.envs.num_envs, dtype=torch.int64, device=device),
        )

    def _agent_names(self) -> Sequence[str]:
        """Return the names of the agents whose returns are reported."""
        if not 1 < self.num_agents <= MAX_AGENT_RETURNS:
            return ()
        return getattr(self.envs, "agent_names", ()) or [f"agent_{number}" for number in range(self.num_agents)]

    def _is_done(self, state: EvaluationState, steps: int) -> bool:
        if self.envs.device.type != "cpu" and steps % self.check_interval:
            return False
        return bool((state.finished >= self.episodes_per_env).all())

    def _warn_of_cut(self, state: EvaluationState) -> None:
        """Warn of episodes truncated at `max_steps`, unless this is intended or the environment's own limit."""
        cut, total = int(state.num_cut.sum()), self.envs.num_envs * self.episodes_per_env
        if cut and not self.cut and self.envs.min_truncation_step != self.max_steps:
            rank_zero_warn(
                f"{cut} of {total} evaluation episodes were truncated after {self.max_steps} steps."
                " Give the environment a time limit, or raise data.eval_max_steps."
            )


class TrajectoryRecorder:
    """Recorder that stores every step on the host and splits the record into episodes."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Tensor]] = []

    def add(self, obs: Obs, action: Tensor, step: VectorStep) -> None:
        """Append one vector step."""
        ended, last = step.terminated | step.truncated, step.obs
        if step.final_obs is not None:
            last = tree_map(lambda new, end: torch.where(_like(ended, new), end, new), step.obs, step.final_obs)
        columns = name_parts("obs", obs) | name_parts("next", last)
        columns |= {"action": action, "reward": step.reward, "valid": step.valid}
        columns |= {"terminated": step.terminated, "truncated": step.truncated}
        self.steps.append({name: value.cpu().clone() for name, value in columns.items()})

    def episodes(self, episodes_per_row: int) -> list[dict[str, Tensor]]:
        """Return the trajectories of the first `episodes_per_row` episodes of every row."""
        stacked = {name: torch.stack([step[name] for step in self.steps]) for name in self.steps[0]}
        episodes = []
        for row in range(stacked["reward"].shape[1]):
            kept = _steps_of_whole_episodes(*(stacked[name][:, row] for name in ("valid", "terminated", "truncated")))
            columns = {name: value[:, row][kept] for name, value in stacked.items()}
            ends = (columns["terminated"] | columns["truncated"]).nonzero()[:episodes_per_row, 0] + 1
            starts = torch.cat([torch.zeros(1, dtype=torch.int64), ends[:-1]])[: len(ends)]
            episodes += [_episode(columns, int(start), int(end)) for start, end in zip(starts, ends, strict=True)]
        return episodes


def _steps_of_whole_episodes(valid: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """Return the valid steps `[T]` without those of episodes broken by a failure, which an invalid step follows."""
    kept, ended = valid.clone(), terminated | truncated
    for t in (~valid).nonzero()[:, 0].tolist():
        before = (ended[:t] | ~valid[:t]).nonzero()[:, 0]
        kept[int(before[-1]) + 1 if len(before) else 0 : t] = False
    return kept


def _episode(columns: dict[str, Tensor], start: int, end: int) -> dict[str, Tensor]:
    episode = {name: columns[name][start:end] for name in ("action", "reward", "terminated", "truncated")}
    after = {name: "next" + name.removeprefix("obs") for name in columns if name.partition("/")[0] == "obs"}
    obs = {name: torch.cat([columns[name][start:end], columns[last][end - 1 : end]]) for name, last in after.items()}
    return obs | episode


def _like(mask: Tensor, value: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (value.dim() - 1))
