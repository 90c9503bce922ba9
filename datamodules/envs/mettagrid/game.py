"""The game of mines, generators and altars as a configuration of the package `mettagrid`, release 0.26."""

from typing import Any

from mettagrid.config.action_config import ActionsConfig, ChangeVibeActionConfig
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
from mettagrid.config.reward_config import inventoryReward
from mettagrid.map_builder.random_map import RandomMapBuilder

RESOURCES = ("ore", "battery", "heart")


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
    num_tokens: int = 64,
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
        ore_reward, battery_reward: rewards for each ore and each battery while it is carried: gained with it, and lost
            when it is spent.
        num_tokens: tokens of an observation; further ones are dropped.   time_limit: steps of an episode.
        map_seed: seed of the map.
    """
    objects: dict[str, Any] = {
        "wall": WallConfig(),
        "mine": GridObjectConfig(name="mine", on_use_handler=Handler(mutations=[updateActor({"ore": 1})])),
        "generator": GridObjectConfig(name="generator", on_use_handler=exchange({"ore": 1}, "battery")),
        "altar": GridObjectConfig(name="altar", on_use_handler=exchange({"battery": altar_cost}, "heart")),
    }
    rewards = {"heart": 1.0, "ore": ore_reward, "battery": battery_reward}
    limits = {name: ResourceLimitsConfig(base=capacity, max=capacity, resources=[name]) for name in ("ore", "battery")}
    number = {"mine": mines, "generator": generators, "altar": altars, "wall": walls}
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
            rewards={name: inventoryReward(name, weight=weight) for name, weight in rewards.items() if weight},
        ),
        map_builder=RandomMapBuilder.Config(
            agents=num_agents, width=size + 2, height=size + 2, border_width=1, seed=map_seed, objects=number
        ),
    )
    return MettaGridConfig(game=game)


def exchange(price: dict[str, int], good: str) -> Handler:
    """Return a handler that gives an agent one good for a price, if it can pay."""
    change = {name: -amount for name, amount in price.items()} | {good: 1}
    return Handler(filters=[actorHas(price)], mutations=[updateActor(change)])
