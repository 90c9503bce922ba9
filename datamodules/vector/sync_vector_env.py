"""SerialVectorEnv: step Gymnasium environments one after the other in this process."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate

from datamodules.env_interface.env_errors import require_shape
from datamodules.env_interface.obs_parts import assign_rows, map_parts, obs_shape
from datamodules.env_interface.processes import MakeEnv

Infos = dict[str, Any]


def _collect_info(infos: Infos, info: Infos, row: int, num_envs: int) -> Infos:
    """Add one environment's info: last observations as objects, masks as rows of an all-True array.

    Last observations are copied, because the reset that follows may write into the same array.
    """
    if "final_obs" in info:
        infos.setdefault("final_obs", np.full(num_envs, None, dtype=object))[row] = map_parts(
            np.array, info["final_obs"]
        )
    if "broken" in info:
        infos.setdefault("broken", np.zeros(num_envs, dtype=np.bool_))[row] = True
    if "action_mask" in info:
        mask = np.asarray(info["action_mask"], dtype=np.bool_).ravel()
        infos.setdefault("action_mask", np.ones((num_envs, mask.size), dtype=np.bool_))[row] = mask
    return infos


class SerialVectorEnv(SyncVectorEnv):
    """Gymnasium's SyncVectorEnv with same-step autoreset."""

    def __init__(self, makers: Sequence[MakeEnv], autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP):
        super().__init__(makers, copy=False, autoreset_mode=autoreset_mode)
        self._obs_shape = obs_shape(self.single_observation_space)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Infos]:
        """Step as Gymnasium does, without a mode check per environment and without stacking arrays written in place."""
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            return super().step(actions)
        infos: Infos = {}
        shape = self._obs_shape
        for row, (env, action) in enumerate(zip(self.envs, iterate(self.action_space, actions), strict=True)):
            obs, self._rewards[row], terminated, truncated, info = env.step(action)
            require_shape(obs, shape, "an observation")
            if terminated or truncated:
                _collect_info(infos, {"final_obs": obs}, row, self.num_envs)
                obs, info = env.reset()
                require_shape(obs, shape, "an observation")
            if info:
                _collect_info(infos, info, row, self.num_envs)
            assign_rows(self._observations, row, obs)
            self._terminations[row], self._truncations[row] = terminated, truncated
        return self._observations, self._rewards, self._terminations, self._truncations, infos

    def _add_info(self, vector_infos: Infos, env_info: Infos, env_num: int) -> Infos:
        return _collect_info(vector_infos, env_info, env_num, self.num_envs) if env_info else vector_infos
