"""Learning: algorithms (one package each), pure functions (`functional`) and networks (`networks`).

`modules.base.algorithm` has the single base class: counters, metrics, the iteration. To add an algorithm, subclass
`Algorithm` in its own package, implement `act`, `prepare` and `update`, add its name to `ALGORITHMS` with the import
below and to the algorithms' import contract in pyproject.toml, and give it a config in `configs/`. Algorithms never
import one another.
"""

from typing import TYPE_CHECKING

from datamodules.core.exports import lazy_exports

ALGORITHMS = {
    "PPO": "modules.ppo.ppo",
    "DQN": "modules.dqn.dqn",
    "PQN": "modules.dqn.pqn",
    "SAC": "modules.sac.sac",
    "SACBC": "modules.sac.sac_bc",
    "SACOptions": "modules.sac_options.sac_options",
    "ActiveDynamics": "modules.active_dynamics.active_dynamics",
}
"""The algorithms and their modules."""

EXPORTS = ALGORITHMS | {
    "OptionController": "modules.sac_options.controller",
    "CheckpointOption": "modules.sac_options.checkpoint_option",
    "CheckpointPolicy": "modules.opponents.checkpoint_policy",
    "CheckpointPool": "modules.opponents.checkpoint_pool",
    "UniformPolicy": "modules.opponents.uniform_policy",
    "Curiosity": "modules.sac.curiosity",
    "BehaviorCloningLoss": "modules.ppo.auxiliary.behavior_cloning",
    "InfoNCELoss": "modules.ppo.auxiliary.contrastive",
    "KickstartLoss": "modules.ppo.auxiliary.kickstart",
    "L2InitLoss": "modules.ppo.auxiliary.l2_init",
    "FullyObservedModel": "modules.active_dynamics.observed_model",
    "LatentModel": "modules.active_dynamics.latent_model",
}
"""The exported classes and their modules; the imports below repeat them for type checkers."""

if TYPE_CHECKING:
    from modules.active_dynamics.active_dynamics import ActiveDynamics as ActiveDynamics
    from modules.active_dynamics.latent_model import LatentModel as LatentModel
    from modules.active_dynamics.observed_model import FullyObservedModel as FullyObservedModel
    from modules.dqn.dqn import DQN as DQN
    from modules.dqn.pqn import PQN as PQN
    from modules.opponents.checkpoint_policy import CheckpointPolicy as CheckpointPolicy
    from modules.opponents.checkpoint_pool import CheckpointPool as CheckpointPool
    from modules.opponents.uniform_policy import UniformPolicy as UniformPolicy
    from modules.ppo.auxiliary.behavior_cloning import BehaviorCloningLoss as BehaviorCloningLoss
    from modules.ppo.auxiliary.contrastive import InfoNCELoss as InfoNCELoss
    from modules.ppo.auxiliary.kickstart import KickstartLoss as KickstartLoss
    from modules.ppo.auxiliary.l2_init import L2InitLoss as L2InitLoss
    from modules.ppo.ppo import PPO as PPO
    from modules.sac.curiosity import Curiosity as Curiosity
    from modules.sac.sac import SAC as SAC
    from modules.sac.sac_bc import SACBC as SACBC
    from modules.sac_options.checkpoint_option import CheckpointOption as CheckpointOption
    from modules.sac_options.controller import OptionController as OptionController
    from modules.sac_options.sac_options import SACOptions as SACOptions
else:
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
