"""Exploration policies of dynamics learning: model-free excitation, and planners that maximise an acquisition.

policies      `ZeroAction`, `RandomAction`, `HeldRandomAction`, `StepInput`, `ChirpInput`, `PlannedExploration`
planners      `RandomShooting`, `CEM`, `ICEM`, `MPPI`: sampling-based search over action sequences, batched over agents
acquisitions  value of each imagined step: `InformationGain`, `Disagreement`, `OptimisticGain`, `Fisher`, ..., and costs
observation_box  `ObservationBox`: where to explore, in the units of the observations
warm_up       `WarmUp`: the first steps, in which another policy acts

To add one: a class that satisfies `Exploration`, `Planner` or `Acquisition` in the file of its kind, its name in
`EXPORTS`, and a test; a config names it by its `class_path`, also from outside this package. Actions are scaled to [-1,
1] of the environment's range. Random numbers are passed as an argument, standard normal, so that everything can be
compiled and captured.
"""

from typing import TYPE_CHECKING

from datamodules.core.exports import lazy_exports

EXPORTS = {
    "ChirpInput": "modules.exploration.policies",
    "HeldRandomAction": "modules.exploration.policies",
    "PlannedExploration": "modules.exploration.policies",
    "RandomAction": "modules.exploration.policies",
    "StepInput": "modules.exploration.policies",
    "ZeroAction": "modules.exploration.policies",
    "CEM": "modules.exploration.planners",
    "ICEM": "modules.exploration.planners",
    "MPPI": "modules.exploration.planners",
    "RandomShooting": "modules.exploration.planners",
    "ActionCost": "modules.exploration.acquisitions",
    "Disagreement": "modules.exploration.acquisitions",
    "Distillation": "modules.exploration.acquisitions",
    "EmbeddingGain": "modules.exploration.acquisitions",
    "Fisher": "modules.exploration.acquisitions",
    "InformationGain": "modules.exploration.acquisitions",
    "OptimisticGain": "modules.exploration.acquisitions",
    "OutsideBox": "modules.exploration.acquisitions",
    "OutsideObservationBox": "modules.exploration.acquisitions",
    "ObservationBox": "modules.exploration.observation_box",
    "WarmUp": "modules.exploration.warm_up",
}
"""The exported classes and their modules; the imports below repeat them for type checkers."""

if TYPE_CHECKING:
    from modules.exploration.acquisitions import ActionCost as ActionCost
    from modules.exploration.acquisitions import Disagreement as Disagreement
    from modules.exploration.acquisitions import Distillation as Distillation
    from modules.exploration.acquisitions import EmbeddingGain as EmbeddingGain
    from modules.exploration.acquisitions import Fisher as Fisher
    from modules.exploration.acquisitions import InformationGain as InformationGain
    from modules.exploration.acquisitions import OptimisticGain as OptimisticGain
    from modules.exploration.acquisitions import OutsideBox as OutsideBox
    from modules.exploration.acquisitions import OutsideObservationBox as OutsideObservationBox
    from modules.exploration.observation_box import ObservationBox as ObservationBox
    from modules.exploration.planners import CEM as CEM
    from modules.exploration.planners import ICEM as ICEM
    from modules.exploration.planners import MPPI as MPPI
    from modules.exploration.planners import RandomShooting as RandomShooting
    from modules.exploration.policies import ChirpInput as ChirpInput
    from modules.exploration.policies import HeldRandomAction as HeldRandomAction
    from modules.exploration.policies import PlannedExploration as PlannedExploration
    from modules.exploration.policies import RandomAction as RandomAction
    from modules.exploration.policies import StepInput as StepInput
    from modules.exploration.policies import ZeroAction as ZeroAction
    from modules.exploration.warm_up import WarmUp as WarmUp
else:
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
