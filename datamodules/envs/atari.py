"""Atari games with the preprocessing of the DQN papers; requires the extra `atari`."""

from importlib.util import find_spec
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformReward

from datamodules.core.errors import ConfigurationError

NEEDED = {"ale_py": "the games", "cv2": "scaling their frames"}


class Atari(gym.Wrapper):
    """Atari game with observations of the newest four grey frames of 84x84 bytes, stacked: uint8 `[4, 84, 84]`.

    An action is repeated for four frames, the last two of which are merged by their maximum; an episode begins with up
    to thirty no-op frames and ends with the game, not with a life; rewards are clipped to their sign.

    Args:
        game: id registered by ale_py.
        kwargs: arguments of the game, including `render_mode`.

    Raises: ConfigurationError if ale_py or OpenCV is not installed.

    Source: Mnih et al. 2015, doi:10.1038/nature14236, Methods; whole games as in Machado et al. 2018,
    arXiv:1709.06009, section 4.1, but without sticky actions.
    """

    def __init__(self, game: str = "ALE/Pong-v5", **kwargs: Any) -> None:
        for module, purpose in NEEDED.items():
            if find_spec(module) is None:
                raise ConfigurationError(
                    f"{game} needs {module} for {purpose}: pip install -e '.[atari]' in the project's folder."
                )
        env = gym.make(f"ale_py:{game}", frameskip=1, repeat_action_probability=0.0, disable_env_checker=True, **kwargs)
        env = FrameStackObservation(AtariPreprocessing(env), 4)
        super().__init__(TransformReward(env, sign))


def sign(reward: Any) -> float:
    """Return -1, 0 or 1."""
    return float(reward > 0) - float(reward < 0)
