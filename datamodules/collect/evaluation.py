"""Whole episodes for validate, test and predict."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.utils.data import IterableDataset

from datamodules.core.phase import Joint
from datamodules.core.protocols import Actor, PureVectorEnv, VectorEnv
from datamodules.core.types import Episodes, State, Step, informed, masks_of
from datamodules.env_interface.env_errors import OWN_CODE, exits_refused


class Playing(NamedTuple):
    """What goes on from one step to the next, every leaf `[B, ...]`; the tallies are `[B, quota]`.

    obs, masks, reset: what to act on.   actor, envs: states of the policy and, where made of tensors, the environments.
    return_, length, values: of the first `quota` episodes of every row.   finished: how many of them are over.
    cut: how many of them ended by the limit.
    """

    obs: Tensor
    masks: State
    reset: Tensor
    actor: State
    envs: State
    return_: Tensor
    length: Tensor
    values: State
    finished: Tensor
    cut: Tensor


class EpisodeDataset(IterableDataset):
    """Plays a fixed number of whole episodes and yields them as one batch.

    Every row plays the same number of episodes, fixed beforehand: counting whichever episodes finish first would
    favour short ones. Begins from the same seed every time, so a checkpoint evaluated twice scores the same.

    Args:
        envs: the environments; B rows.
        actor: decides.
        episodes: how many to play, at least; rounded up to a multiple of B.
        seed: for the environments and for a sampling actor.
        greedy: the policy's mode rather than a sample.
        record: keep the trajectories.
        max_steps: an episode this long is truncated there, with a warning, and the row goes on with its next one.
        cut: episodes are meant to end at `max_steps`: no warning.

    Attributes:
        interrupted: asked after every step; once it says True nothing more is played, and no episode is given.
    """

    look_every = 16
    """Steps between two looks at whether all is over, where a look would wait for a device."""

    def __init__(
        self,
        envs: VectorEnv,
        actor: Actor,
        episodes: int,
        *,
        seed: int,
        greedy: bool = True,
        record: bool = False,
        max_steps: int = 20_000,
        cut: bool = False,
    ):
        self.envs, self.actor, self.seed, self.greedy, self.record = envs, actor, seed, greedy, record
        self.pure = cast(PureVectorEnv, envs) if envs.pure else None
        self.rows = envs.num_envs * envs.spaces["agents"]
        self.quota = -(-episodes // self.rows)
        self.max_steps, self.cut = max_steps, cut
        self.interrupted: Callable[[], bool] = lambda: False
        envs.every_final = record
        envs.limit(max_steps)
        self.joint = Joint(self.advance, envs.device, name="evaluation", capturable=envs.pure)

    def __len__(self) -> int:
        """One batch."""
        return 1

    def __iter__(self) -> Iterator[Episodes]:
        """Play, and yield all episodes at once."""
        yield self.play()

    @torch.no_grad()
    def play(self) -> Episodes:
        """Play every row's quota of episodes, or none if interrupted; rows that are done wait for the others."""
        generator = torch.Generator(device=self.envs.device).manual_seed(self.seed)
        playing, tape, steps, given_up = self._start(), _Tape(), 0, False
        while not given_up and not self._over(playing, steps):
            noise = playing.reset if self.greedy else self.actor.noise((self.rows,), generator)
            env_noise = self.envs.noise(1)
            obs = playing.obs.cpu().clone() if self.record else playing.obs
            draw = playing.reset if env_noise is None else env_noise[0]
            with exits_refused(OWN_CODE):
                playing, action, step = self.joint(playing, noise, draw)
            if self.record:
                tape.add(obs, action, step)
            if not self.pure:
                playing = playing._replace(obs=playing.obs.clone())
            steps, given_up = steps + 1, self.interrupted()
        self._warn_of_cut(playing)
        begun = (playing.length.flatten() > 0) & (not given_up)
        info = {key: value.flatten()[begun] for key, value in playing.values.items()}
        trajectories = tape.episodes(self.quota) if self.record and not given_up else []
        return Episodes(playing.return_.flatten()[begun], playing.length.flatten()[begun], info, trajectories)

    def advance(self, playing: Playing, noise: Tensor, env_noise: Tensor) -> tuple[Playing, Tensor, Step]:
        """One step of every row: what goes on, the actions, and what the environments answered."""
        mask = playing.masks.get("action_mask")
        state = informed(playing.actor, playing.masks)
        decision, actor = self.actor.act(playing.obs, state, playing.reset, mask=mask, noise=noise, greedy=self.greedy)
        if self.pure:
            envs, step, last = self.pure.advance(playing.envs, decision.action, env_noise)
            if self.record:
                step = step._replace(final_obs=self.pure.observation(last))
        else:
            envs, step = playing.envs, self.envs.step(decision.action)
        reset = step.terminated | step.truncated | ~step.valid
        going_on = playing._replace(obs=step.obs, masks=masks_of(step.info), reset=reset, actor=actor, envs=envs)
        return self._tallied(going_on, step), decision.action, step

    def _tallied(self, playing: Playing, step: Step) -> Playing:
        """Add a step to the episode that every row is in, unless the row has played its quota."""
        playing = self._dropped(playing, step) if self.envs.phantoms else playing
        counted = (playing.finished < self.quota) & step.valid
        index = playing.finished.clamp(max=self.quota - 1).unsqueeze(1)
        values = {}
        for key, total in playing.values.items():
            value = step.info[key].to(torch.float64).unsqueeze(1)
            values[key] = total.scatter(1, index, torch.where(counted.unsqueeze(1), value, total.gather(1, index)))
        length = playing.length.scatter_add(1, index, counted.to(torch.int64).unsqueeze(1))
        at_limit = length.gather(1, index).squeeze(1) >= self.max_steps
        return playing._replace(
            cut=playing.cut + (counted & step.truncated & ~step.terminated & at_limit),
            return_=playing.return_.scatter_add(1, index, (step.reward * counted).to(torch.float64).unsqueeze(1)),
            length=length,
            values=values,
            finished=playing.finished + (counted & (step.terminated | step.truncated)),
        )

    def _dropped(self, playing: Playing, step: Step) -> Playing:
        """Forget an episode that an environment's failure broke; before a phantom there is none."""
        slots = torch.arange(self.quota, device=step.valid.device)
        broken = (playing.finished.unsqueeze(1) == slots) & ~step.valid.unsqueeze(1)
        values = {key: total.masked_fill(broken, 0) for key, total in playing.values.items()}
        return_, length = (total.masked_fill(broken, 0) for total in (playing.return_, playing.length))
        return playing._replace(return_=return_, length=length, values=values)

    def _start(self) -> Playing:
        obs, masks = self.envs.reset(self.seed)
        device = self.envs.device
        reset, zeros = torch.ones(self.rows, dtype=torch.bool, device=device), torch.zeros(self.rows, self.quota)
        return_ = zeros.to(device, torch.float64)
        return Playing(
            obs=obs.clone(),
            masks=masks,
            reset=reset,
            actor=self.actor.initial_state(self.rows),
            envs=self.pure.state if self.pure else {},
            return_=return_,
            length=zeros.to(device, torch.int64),
            values={key: return_.clone() for key in self.envs.episode_keys},
            finished=torch.zeros(self.rows, dtype=torch.int64, device=device),
            cut=torch.zeros(self.rows, dtype=torch.int64, device=device),
        )

    def _over(self, playing: Playing, steps: int) -> bool:
        if self.envs.device.type != "cpu" and steps % self.look_every:
            return False
        return bool((playing.finished >= self.quota).all())

    def _warn_of_cut(self, playing: Playing) -> None:
        """Say how many episodes ended by `max_steps`, unless they are meant to or the environment ends them there."""
        cut, total = int(playing.cut.sum()), self.rows * self.quota
        if cut and not self.cut and self.envs.shortest_truncation != self.max_steps:
            rank_zero_warn(
                f"{cut} of {total} evaluation episodes were cut after {self.max_steps} steps and count as they stand."
                " Give the environment a time limit, or raise data.eval_max_steps."
            )


class _Tape:
    """Everything that happened, kept on the host, cut into episodes at the end."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Tensor]] = []

    def add(self, obs: Tensor, action: Tensor, step: Step) -> None:
        ended = step.terminated | step.truncated
        last = step.obs if step.final_obs is None else torch.where(_like(ended, step.obs), step.final_obs, step.obs)
        columns = {"obs": obs, "action": action, "next": last, "reward": step.reward, "valid": step.valid}
        columns |= {"terminated": step.terminated, "truncated": step.truncated}
        self.steps.append({name: value.cpu().clone() for name, value in columns.items()})

    def episodes(self, quota: int) -> list[dict[str, Tensor]]:
        stacked = {name: torch.stack([step[name] for step in self.steps]) for name in self.steps[0]}
        found = []
        for row in range(stacked["reward"].shape[1]):
            kept = _whole(*(stacked[name][:, row] for name in ("valid", "terminated", "truncated")))
            columns = {name: value[:, row][kept] for name, value in stacked.items()}
            ends = (columns["terminated"] | columns["truncated"]).nonzero()[:quota, 0] + 1
            starts = torch.cat([torch.zeros(1, dtype=torch.int64), ends[:-1]])[: len(ends)]
            found += [_episode(columns, int(start), int(end)) for start, end in zip(starts, ends, strict=True)]
        return found


def _whole(valid: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """Valid steps `[T]` but those of episodes that an environment's failure broke: the next step is then not valid."""
    kept, ended = valid.clone(), terminated | truncated
    for t in (~valid).nonzero()[:, 0].tolist():
        before = (ended[:t] | ~valid[:t]).nonzero()[:, 0]
        kept[int(before[-1]) + 1 if len(before) else 0 : t] = False
    return kept


def _episode(columns: dict[str, Tensor], start: int, end: int) -> dict[str, Tensor]:
    episode = {name: columns[name][start:end] for name in ("action", "reward", "terminated", "truncated")}
    return {"obs": torch.cat([columns["obs"][start:end], columns["next"][end - 1 : end]])} | episode


def _like(mask: Tensor, value: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (value.dim() - 1))
