"""Car-ball as a `TorchFuncEnv`."""

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Literal

import torch
from torch import Tensor

from datamodules.core.arguments import check_ranges
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec, State
from datamodules.env_interface.device_constants import DeviceConstants
from datamodules.envs.carball.field import (
    BACK_WALL,
    BALL_RADIUS,
    CAR_HEIGHT,
    GOAL_HALF_WIDTH,
    MODES,
    PADS,
    PARKED,
    SIDE_WALL,
    START_BOOST,
    kickoff_table,
    pad_table,
    presence_table,
    random_start,
)
from datamodules.envs.carball.observation import OBS_SIZE, Slots, make_slots, observe, pad_order
from datamodules.envs.carball.physics import (
    TICK_SECONDS,
    Ball,
    Cars,
    Controls,
    collect_pads,
    hit_ball,
    move_ball,
    move_cars,
)
from datamodules.envs.carball.rendering import draw_field, field_text
from datamodules.envs.carball.rewards import Change, resolve_rewards, reward_terms

Mode = Literal["1v0", "1v1", "1v2", "2v2"]


class Carball:
    """Cars that hit a ball into the other team's goal; an episode ends with the goal.

    Observation: 180 numbers, see `datamodules.envs.carball.observation.SIZES`. Actions: throttle, steer, pitch, yaw and
    roll, three-way (backward or left, none, forward or right), then jump, boost and handbrake, two-way; or a Box of the
    same eight, the first five in [-1, 1], the others on above 0.5. Agents are the cars, blue's first.

    An episode terminates with a goal, after `no_touch_limit` steps without a touch, and, without walls, when the ball
    or a car leaves the field; it is truncated after `time_limit` steps. Cars do not collide with one another.

    Args:
        mode: cars of blue against cars of orange.
        stages: modes of a curriculum: cars of `mode` that a stage lacks are absent. The first one is played until
            `callbacks.StageCurriculum` sets the next. null: no curriculum.
        actions: discrete (five three-way and three two-way choices) or continuous (a Box).
        start: kickoff (ball at the centre), random (ball and cars anywhere on the ground, the ball rolling) or aerial
            (random, the ball in the air).
        rewards: weights of reward terms that differ from `datamodules.envs.carball.rewards.REWARDS`.
        team_spirit: share of a car's reward that is the mean of its team, in [0, 1].
        tick_skip: ticks of 8 ms in a step, which is integrated as a whole.
        action_repeat: steps that an action lasts, their rewards summed, up to the end of the episode. The steps are
            counted as one env step, and `no_touch_limit` and `time_limit` count env steps.
        hit_power: speed of a hit ball, in units of 1.5 times that of the car.
        walls: whether ball and cars stay within the walls.
        no_touch_limit: steps without a touch of any car after which the episode terminates; null for none.
        time_limit: steps after which an episode is truncated.

    Attributes:
        agent_teams: team of every car, 0 for blue and 1 for orange.
        stage: number of the current stage, from 0.
        alive: with `stages`, returns which cars of a state are present, bool `[E, A]`; else None.

    Raises: ConfigurationError if an argument is out of range.
    """

    obs_bounds = (-5.0, 5.0)
    episode_stat_keys = ("goals", "conceded", "touches", "aerial_touches", "boost_used")

    def __init__(
        self,
        mode: Mode = "1v0",
        stages: list[Mode] | None = None,
        actions: Literal["discrete", "continuous"] = "discrete",
        start: Literal["kickoff", "random", "aerial"] = "kickoff",
        rewards: dict[str, float] | None = None,
        team_spirit: float = 0.0,
        tick_skip: int = 8,
        action_repeat: int = 1,
        hit_power: float = 1.0,
        walls: bool = True,
        no_touch_limit: int | None = 300,
        time_limit: int = 3000,
    ) -> None:
        _check(mode, actions, start, stages or ())
        positive = {"tick_skip": tick_skip, "action_repeat": action_repeat, "time_limit": time_limit}
        _check_numbers(positive | {"no_touch_limit": no_touch_limit}, team_spirit, hit_power)
        self.start, self.rewards, self.team_spirit = start, resolve_rewards(rewards or {}), team_spirit
        self.seconds, self.ticks_per_step = TICK_SECONDS * tick_skip, tick_skip * action_repeat
        self.action_repeat, self.hit_power, self.walls = action_repeat, hit_power, walls
        self.no_touch_limit, self.min_truncation_step = no_touch_limit, time_limit
        self.blue, orange = MODES[mode]
        self.cars, self.agent_teams = self.blue + orange, (0,) * self.blue + (1,) * orange
        self.stages = tuple(stages or ())
        self.alive: Callable[[State], Tensor] | None = itemgetter("present") if self.stages else None
        self._presence = DeviceConstants(presence_table(mode, self.stages or [mode]), torch.tensor(PARKED))
        self.stage, self._stage = 0, DeviceConstants(torch.tensor(0))
        self.noise_size = 1 if start == "kickoff" else 6 + 3 * self.cars
        self.discrete = actions == "discrete"
        self.spaces = SpaceSpec(
            obs_shape=(OBS_SIZE,),
            obs_dtype="float32",
            action_type="multidiscrete" if self.discrete else "continuous",
            action_sizes=[3] * 5 + [2] * 3 if self.discrete else [],
            action_low=[] if self.discrete else [-1.0] * 5 + [0.0] * 3,
            action_high=[] if self.discrete else [1.0] * 8,
            action_start=[0] * 8 if self.discrete else [],
            num_agents=self.cars,
        )
        teams = torch.tensor([1.0] * self.blue + [-1.0] * orange)
        same = (teams[:, None] == teams).float()
        tables = (teams, same / same.sum(1, keepdim=True), kickoff_table(teams), pad_table(), pad_order(teams))
        self._tables = DeviceConstants(*tables, *make_slots(teams))

    def set_stage(self, stage: int) -> None:
        """Set the stage, from 0, of the episodes that start from then on."""
        self.stage = stage
        self._stage.fill_(stage)

    def initial(self, noise: Tensor) -> State:
        """Return initial states from uniforms `[E, noise_size]`."""
        kickoffs, rows = self._tables.on(noise.device)[2], len(noise)
        zeros = noise.new_zeros(rows, self.cars)
        if self.start == "kickoff":
            place = kickoffs.index_select(0, (noise[:, 0] * len(kickoffs)).long())
            position, yaw = torch.cat((place[..., :2], torch.full_like(place[..., :1], CAR_HEIGHT)), 2), place[..., 2]
            ball = torch.cat((noise.new_zeros(rows, 2), noise.new_full((rows, 1), BALL_RADIUS)), 1)
            ball_velocity = torch.zeros_like(ball)
        else:
            ball, ball_velocity, position, yaw = random_start(noise, self.cars, self.start == "aerial")
        present: State = {}
        if self.stages:
            (table, parked), (stage,) = self._presence.on(noise.device), self._stage.on(noise.device)
            present["present"] = table.index_select(0, stage.view(1)).expand(rows, -1).clone()
            position = torch.where(present["present"].unsqueeze(2), position, parked)
        return present | {
            "car_position": position,
            "car_velocity": torch.zeros_like(position),
            "car_rotation": torch.stack((yaw, zeros, zeros), 2),
            "boost": zeros + START_BOOST,
            "last_action": noise.new_zeros(rows, self.cars, 8),
            "ball_position": ball,
            "ball_velocity": ball_velocity,
            "pads": noise.new_zeros(rows, PADS),
            "idle_steps": zeros,
            "steps": noise.new_zeros(rows),
            "scored": noise.new_zeros(rows),
            **{name: zeros.clone() for name in ("touches", "aerial_touches", "boost_used")},
        }

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Step with actions `[E, A, 8]`, or `[E, 8]` of one car; the noise is not used."""
        controls, numbers = self._controls(action.view(len(noise), self.cars, 8))
        after, reward, terminated = self._step(state, controls)
        for _ in range(self.action_repeat - 1):
            again, more, ended = self._step(after, controls)
            reward = reward + torch.where(terminated.unsqueeze(1), 0.0, more)
            after = {
                name: torch.where(terminated.view(-1, *[1] * (leaf.dim() - 1)), leaf, again[name])
                for name, leaf in after.items()
            }
            terminated = terminated | ended
        touched = after["touches"] > state["touches"]
        idle, steps = torch.where(touched, 0.0, state["idle_steps"] + 1), state["steps"] + 1
        if self.no_touch_limit is not None:
            terminated = terminated | (idle.amin(1) >= self.no_touch_limit)
        truncated = (steps >= self.min_truncation_step) & ~terminated
        after = {**after, "last_action": numbers, "idle_steps": idle, "steps": steps}
        return after, reward if self.cars > 1 else reward[:, 0], terminated, truncated

    def _controls(self, action: Tensor) -> tuple[Controls, Tensor]:
        """Return the controls, and the action as numbers in [-1, 1] and [0, 1], `[E, A, 8]`."""
        numbers = action.float()
        if self.discrete:
            numbers = torch.cat((numbers[..., :5] - 1, numbers[..., 5:]), -1)
        throttle, steer, pitch, yaw, roll, *switches = numbers.unbind(-1)
        jump, boost, handbrake = (switch > 0.5 for switch in switches)
        return Controls(throttle, steer, pitch, yaw, roll, jump, boost, handbrake), numbers

    def _step(self, state: State, controls: Controls) -> tuple[State, Tensor, Tensor]:
        """Return the state after one step, the reward `[E, A]`, and whether a goal or leaving the field ended it."""
        teams, team_means, _, pads, *_ = self._tables.on(state["boost"].device)
        cars = Cars(state["car_position"], state["car_velocity"], state["car_rotation"], state["boost"])
        ball = Ball(state["ball_position"], state["ball_velocity"])
        moved, used = move_cars(cars, controls, self.seconds, self.walls)
        if self.stages:
            moved, used = without_absent(cars, moved, used, state["present"])
        struck, touches = hit_ball(move_ball(ball, self.seconds, self.walls), moved, self.hit_power)
        boost, timer = collect_pads(moved, state["pads"], pads, self.seconds)
        scored = goals(struck)
        ended = scored != 0 if self.walls else (scored != 0) | outside(struck, moved)
        idle = torch.where(touches, 0.0, state["idle_steps"] + 1)
        change = Change(cars, ball, moved, struck, controls, used, touches, idle, scored)
        terms = reward_terms(change, teams, self.seconds)
        reward = torch.stack([weight * terms[name] for name, weight in self.rewards.items() if weight], 0).sum(0)
        if self.team_spirit:
            reward = torch.lerp(reward, self._team_mean(reward, state, team_means), self.team_spirit)
        after = {
            **state,
            "car_position": moved.position,
            "car_velocity": moved.velocity,
            "car_rotation": moved.rotation,
            "boost": boost,
            "ball_position": struck.position,
            "ball_velocity": struck.velocity,
            "pads": timer,
            "idle_steps": torch.where(touches, 0.0, state["idle_steps"]),  # of the repeats that follow
            "scored": scored,
            "touches": state["touches"] + touches,
            "aerial_touches": state["aerial_touches"] + terms["aerial_touch"],
            "boost_used": state["boost_used"] + used,
        }
        return after, reward, ended

    def _team_mean(self, reward: Tensor, state: State, team_means: Tensor) -> Tensor:
        """Return the mean reward of each car's team, of those that are present, `[E, A]`."""
        if not self.stages:
            return reward @ team_means
        share = state["present"].float() @ team_means
        return torch.where(state["present"], reward, 0.0) @ team_means / share.clamp(min=1e-6)

    def observation(self, state: State) -> Tensor:
        """Return the observations `[E, A, 180]`, zero for absent cars, or `[E, 180]` of one car."""
        teams, _, _, _, order, *slots = self._tables.on(state["boost"].device)
        limit = self.no_touch_limit or self.min_truncation_step
        rest = {
            "idle": (state["idle_steps"] / limit).clamp(max=1),
            "time_left": 1 - state["steps"] / self.min_truncation_step,
            "last_action": state["last_action"],
            "pads": state["pads"],
        }
        cars = Cars(state["car_position"], state["car_velocity"], state["car_rotation"], state["boost"])
        ball = Ball(state["ball_position"], state["ball_velocity"])
        others = Slots(*slots)
        if self.stages:
            others = others._replace(filled=others.filled & state["present"][:, others.cars])
        obs = observe(cars, ball, rest, teams, others, order)
        obs = torch.where(state["present"].unsqueeze(2), obs, 0.0) if self.stages else obs
        return obs if self.cars > 1 else obs[:, 0]

    def info(self, state: State) -> dict[str, Tensor]:
        """Return goals of the car's team and of the other, touches, aerial touches and boost used, `[E, A]`."""
        won = state["scored"].unsqueeze(1) * self._tables.on(state["boost"].device)[0]
        values = {"goals": (won > 0).float(), "conceded": (won < 0).float()}
        values |= {name: state[name] for name in self.episode_stat_keys[2:]}
        return values if self.cars > 1 else {name: value[:, 0] for name, value in values.items()}

    def render(self, state: State, row: int, mode: str) -> Tensor | str:
        """Render one row from above: `rgb_array`, uint8 `[460, 560, 3]`, or `ansi`, 13 lines of text."""
        one = {name: leaf[row].cpu() for name, leaf in state.items()}
        return field_text(one, self.blue) if mode == "ansi" else draw_field(one, self.blue, self.seconds)


def without_absent(before: Cars, moved: Cars, used: Tensor, present: Tensor) -> tuple[Cars, Tensor]:
    """Return cars and the boost used, absent cars as they were before.

    Args:
        present: bool `[E, A]`.
    """
    car = present.unsqueeze(2)
    kept = [torch.where(present if new.dim() == 2 else car, new, old) for new, old in zip(moved, before, strict=True)]
    return Cars(*kept), torch.where(present, used, 0.0)


def goals(ball: Ball) -> Tensor:
    """Return 1 where blue has scored, -1 where orange has, and 0 elsewhere, `[E]`."""
    x, y, _ = ball.position.unbind(-1)
    return torch.where((y.abs() >= BACK_WALL) & (x.abs() < GOAL_HALF_WIDTH), y.sign(), 0.0)


def outside(ball: Ball, cars: Cars) -> Tensor:
    """Return where the ball or a car is outside of the field, bool `[E]`."""
    out = [
        (place[..., 0].abs() > SIDE_WALL) | (place[..., 1].abs() > BACK_WALL)
        for place in (ball.position, cars.position)
    ]
    return out[0] | out[1].any(1)


def _check(mode: Mode, actions: str, start: str, stages: Sequence[str]) -> None:
    """Check the named choices.

    Raises: ConfigurationError for one that does not exist, and for a stage with more cars in a team than the mode.
    """
    choices = {"mode": (mode, (*MODES,)), "actions": (actions, ("discrete", "continuous"))}
    choices |= {"start": (start, ("kickoff", "random", "aerial"))}
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            raise ConfigurationError(f"Carball has {name} {value!r}; choose from {', '.join(allowed)}.")
    for stage in stages:
        if stage not in MODES or any(cars > most for cars, most in zip(MODES[stage], MODES[mode], strict=True)):
            raise ConfigurationError(
                f"Carball has the stage {stage} in mode {mode}: choose modes with at most as many cars in each team, or"
                " a larger mode."
            )


def _check_numbers(positive: Mapping[str, int | None], team_spirit: float, hit_power: float) -> None:
    """Check the numbers.

    Raises: ConfigurationError for one out of range.
    """
    check_ranges(
        "Carball",
        *((name, value, value is None or value >= 1, "at least 1") for name, value in positive.items()),
        ("team_spirit", team_spirit, 0 <= team_spirit <= 1, "a share from 0 to 1"),
        ("hit_power", hit_power, hit_power > 0, "a power above 0"),
    )
