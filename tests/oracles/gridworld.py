"""The grid world restated with lists and loops, one environment at a time."""

from typing import Any

import numpy as np

MOVES = {0: (0, 0), 1: (-1, 0), 2: (1, 0), 3: (0, -1), 4: (0, 1)}


class SlowGridWorld:
    """One environment on a map of names: free, wall, or (kind, number of the object).

    Args:
        cells: names of the cells, a list of rows with a frame of walls.   agents: (row, column) of every agent.
        stock: hearts in stock by the number of the object.
        rules: altar_cost, capacity, cooldown, time_limit, ore_reward, battery_reward, team_reward.
    """

    def __init__(self, cells: list[list[Any]], agents: list[tuple[int, int]], stock: dict[int, int], **rules: Any):
        self.cells, self.agents, self.stock, self.rules = cells, list(agents), dict(stock), rules
        self.busy_until: dict[int, int] = {}
        self.ore = [0] * len(agents)
        self.battery = [0] * len(agents)
        self.hearts = [0] * len(agents)
        self.time = 0

    def step(self, actions: list[int]) -> tuple[list[float], bool]:
        """Let the agents act, the one whose turn it is first; return their rewards and whether time is over."""
        rewards, number = [0.0] * len(actions), len(actions)
        held, taken = set(self.agents), set()
        for place in range(number):
            agent = (self.time + place) % number
            down, right = MOVES[actions[agent]]
            row, column = self.agents[agent]
            target = (row + down, column + right)
            if target == (row, column) or target in taken:
                continue
            content = self.cells[target[0]][target[1]]
            if content == "free" and target not in held:
                self.agents[agent] = target
                taken.add(target)
            elif isinstance(content, tuple):
                paid = self.use(agent, *content)
                if paid is not None:
                    taken.add(target)
                    rewards[agent] += paid
        self.time += 1
        share = self.rules["team_reward"]
        mean = sum(rewards) / number
        return [(1 - share) * own + share * mean for own in rewards], self.time >= self.rules["time_limit"]

    def use(self, agent: int, kind: str, number: int) -> float | None:
        """Use an object; return the reward, or None if nothing happens."""
        if self.busy_until.get(number, 0) > self.time:
            return None
        paid = None
        if kind == "mine" and self.ore[agent] < self.rules["capacity"]:
            self.ore[agent] += 1
            paid = self.rules["ore_reward"]
        elif kind == "generator" and self.ore[agent] > 0 and self.battery[agent] < self.rules["capacity"]:
            self.ore[agent] -= 1
            self.battery[agent] += 1
            paid = self.rules["battery_reward"]
        elif kind == "altar" and self.stock[number] > 0:
            self.stock[number] -= 1
            paid = 1.0
        elif kind == "altar" and self.battery[agent] >= self.rules["altar_cost"]:
            self.battery[agent] -= self.rules["altar_cost"]
            paid = 1.0
        if paid is not None:
            self.busy_until[number] = self.time + 1 + self.rules["cooldown"]
            self.hearts[agent] += kind == "altar"
        return paid

    def observation(self, agent: int, view: int) -> np.ndarray:
        """Return what an agent sees, uint8 `[9, view, view]`."""
        planes = np.zeros((9, view, view), np.uint8)
        row, column = self.agents[agent]
        for y in range(view):
            for x in range(view):
                place = (row + y - view // 2, column + x - view // 2)
                inside = 0 <= place[0] < len(self.cells) and 0 <= place[1] < len(self.cells)
                content = self.cells[place[0]][place[1]] if inside else "wall"
                if content == "wall":
                    planes[0, y, x] = 255
                elif content != "free":
                    kind, number = content
                    planes[1 + ("mine", "generator", "altar").index(kind), y, x] = 255
                    planes[4, y, x] = 255 * (self.busy_until.get(number, 0) > self.time)
                    planes[5, y, x] = 255 * (self.stock.get(number, 0) > 0)
                if any(other == place for other in self.agents[:agent] + self.agents[agent + 1 :]):
                    planes[6, y, x] = 255
        planes[7] = self.ore[agent] * 255 // self.rules["capacity"]
        planes[8] = self.battery[agent] * 255 // self.rules["capacity"]
        return planes
