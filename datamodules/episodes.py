"""Whole episodes for validate, test and predict."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from datamodules.types import Actor, Episodes, Step, VectorEnv


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
    """

    def __init__(
        self, envs: VectorEnv, actor: Actor, episodes: int, *, seed: int, greedy: bool = True, record: bool = False
    ):
        self.envs, self.actor, self.seed, self.greedy, self.record = envs, actor, seed, greedy, record
        self.rows = envs.num_envs * envs.spaces["agents"]
        self.quota = -(-episodes // self.rows)

    def __len__(self) -> int:
        """One batch."""
        return 1

    def __iter__(self) -> Iterator[Episodes]:
        """Play, and yield all episodes at once."""
        yield self.play()

    @torch.no_grad()
    def play(self) -> Episodes:
        """Play every row's quota of episodes; rows that are done wait for the others unheeded."""
        device, rows = self.envs.device, self.rows
        generator = torch.Generator(device=device).manual_seed(self.seed)
        obs, masks = self.envs.reset(self.seed)
        state = self.actor.initial_state(rows)
        reset = torch.ones(rows, dtype=torch.bool, device=device)
        tally = _Tally(rows, self.quota, self.envs.episode_keys, device)
        tape = _Tape() if self.record else None
        while not tally.done():
            noise = None if self.greedy else self.actor.noise((rows,), generator)
            mask = masks.get("action_mask")
            decision, state = self.actor.act(obs, state, reset, mask=mask, noise=noise, greedy=self.greedy)
            if tape is not None:
                tape.add(obs, decision.action)
            step = self.envs.step(decision.action)
            if tape is not None:
                tape.add_outcome(step)
            tally.add(step)
            obs, reset = step.obs.clone(), step.terminated | step.truncated | ~step.valid
            masks = {name: value for name, value in step.info.items() if name.endswith("_mask")}
        trajectories = tape.episodes(self.quota) if tape is not None else []
        return Episodes(tally.return_.flatten(), tally.length.flatten(), tally.info(), trajectories)


class _Tally:
    """Returns, lengths and reported values of the first `quota` episodes of every row, without leaving the device."""

    check_every = 16

    def __init__(self, rows: int, quota: int, keys: tuple[str, ...], device: torch.device):
        self.return_ = torch.zeros(rows, quota, dtype=torch.float64, device=device)
        self.length = torch.zeros(rows, quota, dtype=torch.int64, device=device)
        self.values = {key: torch.zeros(rows, quota, dtype=torch.float64, device=device) for key in keys}
        self.finished = torch.zeros(rows, dtype=torch.int64, device=device)
        self.quota, self.steps = quota, 0

    def add(self, step: Step) -> None:
        index = self.finished.clamp(max=self.quota - 1).unsqueeze(1)
        counted = (self.finished < self.quota) & step.valid
        self.return_.scatter_add_(1, index, (step.reward * counted).to(torch.float64).unsqueeze(1))
        self.length.scatter_add_(1, index, counted.to(torch.int64).unsqueeze(1))
        for key, total in self.values.items():
            value = torch.where(counted, step.info[key], 0).to(torch.float64).unsqueeze(1)
            total.scatter_(1, index, torch.where(counted.unsqueeze(1), value, total.gather(1, index)))
        self.finished += counted & (step.terminated | step.truncated)
        self.steps += 1

    def done(self) -> bool:
        if self.finished.device.type != "cpu" and self.steps % self.check_every:
            return False
        return bool((self.finished >= self.quota).all())

    def info(self) -> dict[str, Tensor]:
        return {key: value.flatten() for key, value in self.values.items()}


class _Tape:
    """Everything that happened, kept on the host, cut into episodes at the end."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Tensor]] = []

    def add(self, obs: Tensor, action: Tensor) -> None:
        self.steps.append({"obs": obs.cpu().clone(), "action": action.cpu().clone()})

    def add_outcome(self, step: Step) -> None:
        last = (
            step.obs
            if step.final_obs is None
            else torch.where(_like(step.truncated, step.obs), step.final_obs, step.obs)
        )
        outcome = {
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "valid": step.valid,
        }
        self.steps[-1] |= {name: value.cpu().clone() for name, value in outcome.items()} | {"next": last.cpu().clone()}

    def episodes(self, quota: int) -> list[dict[str, Tensor]]:
        stacked = {name: torch.stack([step[name] for step in self.steps]) for name in self.steps[0]}
        found = []
        for row in range(stacked["reward"].shape[1]):
            columns = {name: value[:, row][stacked["valid"][:, row]] for name, value in stacked.items()}
            ends = (columns["terminated"] | columns["truncated"]).nonzero()[:quota, 0] + 1
            starts = torch.cat([torch.zeros(1, dtype=torch.int64), ends[:-1]])
            found += [_episode(columns, int(start), int(end)) for start, end in zip(starts, ends, strict=True)]
        return found


def _episode(columns: dict[str, Tensor], start: int, end: int) -> dict[str, Tensor]:
    episode = {name: columns[name][start:end] for name in ("action", "reward", "terminated", "truncated")}
    return {"obs": torch.cat([columns["obs"][start:end], columns["next"][end - 1 : end]])} | episode


def _like(mask: Tensor, value: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (value.dim() - 1))
