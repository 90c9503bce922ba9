"""How an agent chooses what to try: policies that need no model, and planners that ask one what would be learned.

policies      `Random`, `Held`, `Off`, `Step`, `Sinusoid`, and `Planned`, which lets a planner choose
planners      `RandomShooting`, `CEM`, `ICEM`, `MPPI`: search over sequences of actions, for many agents at once
acquisitions  what a path is worth: `InformationGain`, `Disagreement`, `Optimistic`, `Fisher` ..., costs and penalties

To add one: a class that satisfies `Exploration`, `Planner` or `Acquisition` in the file of its kind, and a test; a
config names it by its `class_path`, and your own need not live here. Actions are in [-1, 1] of the environment's range
in here. Randomness comes in as an argument, standard normal, so that everything can be compiled and captured.
"""

from modules.exploration.policies import Held, Off, Planned, Random, Sinusoid, Step

__all__ = ["Held", "Off", "Planned", "Random", "Sinusoid", "Step"]
