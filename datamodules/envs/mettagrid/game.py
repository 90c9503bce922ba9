"""The game of mines, generators and altars as a configuration of the package `mettagrid`, release 0.26."""

from typing import Any

from mettagrid.config.action_config import ActionsConfig, ChangeVibeActionConfig
from mettagrid.config.game_value import StatValue
from mettagrid.config.handler_config import Handler, actorHas, updateActor
from mettagrid.config.mettagrid_config import (
    AgentConfig,
    GameConfig,
    GridObjectConfig,
    InventoryConfig,
    MettaGridConfig,
    ResourceLimitsConfig,
    WallConfig,
)
from mettagrid.config.obs_config import GlobalObsConfig, ObsConfig
from mettagrid.config.reward_config import reward
from mettagrid.map_builder.random_map import RandomMapBuilder

RESOURCES = ("ore", "battery", "heart")
TOKENS_PER_AGENT = 8
"""Most tokens of an agent that is seen, beside its type: group, number, vibe, and one or two for each resource."""

GLOBAL_TOKENS = 4
"""Most tokens about the agent itself: last action and last reward, each in up to two."""


def game_config(
    num_agents: int = 4,
    size: int = 16,
    view: int = 11,
    mines: int = 6,
    generators: int = 4,
    altars: int = 4,
    walls: int = 25,
    altar_cost: int = 3,
    capacity: int = 10,
    ore_reward: float = 0.0,
    battery_reward: float = 0.0,
    num_tokens: int | None = None,
    time_limit: int = 400,
    map_seed: int = 0,
) -> MettaGridConfig:
    """Return the configuration of a game.

    An agent that moves into a mine gets 1 ore; into a generator, 1 battery for 1 ore; into an altar, a heart for
    `altar_cost` batteries. Every heart is a reward of 1.

    Args:
        num_agents: agents.   size: cells along one side of the map, without its frame of walls.
        view: cells along one side of the observation, odd.
        mines, generators, altars, walls: objects of each kind.   altar_cost: batteries for a heart.
        capacity: most ore, and most batteries, that an agent carries.
        ore_reward, battery_reward: rewards for mining an ore and for making a battery.
        num_tokens: tokens of an observation, with fewer than are needed the simulator fails; None: as many as there can
            be.
        time_limit: steps of an episode.
        map_seed: seed of the maps, beside that of the episodes: another one gives other maps.
    """
    objects: dict[str, Any] = {
        "wall": WallConfig(),
        "mine": GridObjectConfig(name="mine", on_use_handler=Handler(mutations=[updateActor({"ore": 1})])),
        "generator": GridObjectConfig(name="generator", on_use_handler=exchange({"ore": 1}, "battery")),
        "altar": GridObjectConfig(name="altar", on_use_handler=exchange({"battery": altar_cost}, "heart")),
    }
    weights = {"heart": 1.0, "ore": ore_reward, "battery": battery_reward}
    limits = {name: ResourceLimitsConfig(base=capacity, max=capacity, resources=[name]) for name in ("ore", "battery")}
    number = {"mine": mines, "generator": generators, "altar": altars, "wall": walls}
    num_tokens = most_tokens(view, sum(number.values()), num_agents) if num_tokens is None else num_tokens
    game = GameConfig(
        num_agents=num_agents,
        max_steps=time_limit,
        episode_truncates=True,
        resource_names=list(RESOURCES),
        objects=objects,
        obs=ObsConfig(
            width=view, height=view, num_tokens=num_tokens, global_obs=GlobalObsConfig(episode_completion_pct=False)
        ),
        actions=ActionsConfig(change_vibe=ChangeVibeActionConfig(enabled=False)),
        agent=AgentConfig(
            inventory=InventoryConfig(limits=limits),
            rewards={
                name: reward(StatValue(name=f"{name}.gained"), weight=weight)
                for name, weight in weights.items()
                if weight
            },
        ),
        map_builder=RandomMapBuilder.Config(
            agents=num_agents, width=size + 2, height=size + 2, border_width=1, seed=map_seed, objects=number
        ),
    )
    return MettaGridConfig(game=game)


def most_tokens(view: int, num_objects: int, num_agents: int) -> int:
    """Return the most tokens that an observation can need: of objects, the frame of walls, and agents."""
    return min(view * view, num_objects + 2 * view) + TOKENS_PER_AGENT * num_agents + GLOBAL_TOKENS


def exchange(price: dict[str, int], good: str) -> Handler:
    """Return a handler that gives an agent one good for a price, if it can pay."""
    change = {name: -amount for name, amount in price.items()} | {good: 1}
    return Handler(filters=[actorHas(price)], mutations=[updateActor(change)])
