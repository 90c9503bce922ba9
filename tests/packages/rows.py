"""The environments of the table, with the packages that they need."""

from typing import NamedTuple

PINS: dict[str, tuple[str, ...]] = {
    "gymnasium": (),
    "box2d": ("Box2D==2.3.10",),
    "mujoco": ("mujoco==3.6.0", "imageio==2.38.1"),
    "atari": ("ale-py==0.12.1", "opencv-python-headless==5.0.0.93"),
    "minigrid": ("minigrid==3.2.0",),
    "highway-env": ("highway-env==1.12.1",),
    "gymnasium-robotics": ("gymnasium-robotics==1.4.2", "mujoco==3.6.0"),
    "flappy-bird-gymnasium": ("flappy-bird-gymnasium==0.4.0", "pygame==2.6.1"),
    "mo-gymnasium": ("mo-gymnasium==1.3.2", "pygame==2.6.1"),
    "gym-anytrading": ("gym-anytrading==2.0.0",),
    "mpe2": ("mpe2==1.1.1", "pettingzoo==1.27.0"),
    "pettingzoo": ("pettingzoo==1.27.0",),
    "envpool": ("envpool==1.2.5",),
    "minari": ("minari[create,hdf5]==0.5.4",),
}
"""The tested releases of each set of packages, beside Leyden's own requirements."""

TOOLS = ("imageio", "imageio-ffmpeg", "onnx", "onnxscript", "onnxruntime")
"""Packages of the extras `video` and `export`, in the releases of constraints.txt, for all sets."""

PPO = "--model PPO --data RolloutDataModule --data.rollout_length 16 --model.num_minibatches 2"
REPLAY = "--data ReplayDataModule --data.train_freq 16 --data.batch_size 32 --data.replay_ratio 8 --data.capacity 2000"
DQN = f"--model DQN {REPLAY} --data.learning_starts 32"
SAC = f"--model SAC {REPLAY} --data.learning_starts 32"
FRAMES = (
    "--data.env_kwargs '{frameskip: 1, repeat_action_probability: 0.0}' --data.wrappers '[AtariPreprocessing,"
    " {class_path: FrameStackObservation, init_args: {stack_size: 4}}]' --data.train_wrappers '[EpisodicLife,"
    " {class_path: ClipReward, init_args: {min_reward: -1, max_reward: 1}}]' --model.network NatureCNN"
)
LINEAR_REWARD = "'[{class_path: mo_gymnasium.wrappers.LinearReward, init_args: {weight: [0.5, 0.5]}}]'"


class Row(NamedTuple):
    """An environment: its set of packages, its name as given by `data.env`, and the options of `fit`."""

    packages: str
    env: str
    options: str = PPO


ROWS = (
    Row("gymnasium", "CartPole-v1"),
    Row("gymnasium", "Acrobot-v1", DQN),
    Row("gymnasium", "Pendulum-v1", SAC),
    Row("gymnasium", "MountainCar-v0", DQN),
    Row("gymnasium", "MountainCarContinuous-v0", SAC),
    Row("gymnasium", "FrozenLake-v1"),
    Row("gymnasium", "CliffWalking-v1", DQN),
    Row("gymnasium", "Taxi-v4"),
    Row("gymnasium", "Blackjack-v1"),
    Row("box2d", "LunarLander-v3"),
    Row("box2d", "BipedalWalker-v3", SAC),
    Row("box2d", "CarRacing-v3"),
    *(Row("mujoco", f"{name}-v5", SAC) for name in ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid")),
    Row("atari", "ALE/Pong-v5", f"{DQN} --data.frame_stack 4 {FRAMES}"),
    Row("atari", "ALE/Breakout-v5", f"{PPO} {FRAMES}"),
    Row("minigrid", "minigrid:MiniGrid-Empty-5x5-v0", f"{PPO} --trust minigrid"),
    Row("minigrid", "minigrid:MiniGrid-DoorKey-6x6-v0", f"{PPO} --trust minigrid"),
    Row("minigrid", "minigrid:MiniGrid-FourRooms-v0", f"{DQN} --trust minigrid"),
    Row("highway-env", "highway_env:highway-fast-v0", f"{DQN} --trust highway_env"),
    Row("highway-env", "highway_env:parking-v0", f"{SAC} --trust highway_env"),
    Row("gymnasium-robotics", "gymnasium_robotics:PointMaze_UMaze-v3", f"{SAC} --trust gymnasium_robotics"),
    Row("gymnasium-robotics", "gymnasium_robotics:FetchReach-v4", f"{SAC} --trust gymnasium_robotics"),
    Row("flappy-bird-gymnasium", "flappy_bird_gymnasium:FlappyBird-v0", f"{PPO} --trust flappy_bird_gymnasium"),
    Row(
        "mo-gymnasium",
        "mo_gymnasium:deep-sea-treasure-v0",
        f"{PPO} --data.wrappers {LINEAR_REWARD} --trust mo_gymnasium",
    ),
    Row("mo-gymnasium", "mo_gymnasium:resource-gathering-v0", f"{PPO} --trust mo_gymnasium"),
    Row("gym-anytrading", "gym_anytrading:stocks-v0", f"{PPO} --trust gym_anytrading"),
    Row("mpe2", "mpe2.simple_spread_v3", f"{PPO} --trust mpe2"),
    Row("pettingzoo", "pettingzoo.butterfly.knights_archers_zombies_v11", f"{PPO} --trust pettingzoo"),
    Row("envpool", "Acrobot-v1", f"{PPO} --data.backend envpool"),
    Row("envpool", "Pong-v5", f"{PPO} --data.backend envpool --model.network NatureCNN"),
    Row("minari", "CartPole-v1", f"{PPO} --data.wrappers '[minari.DataCollector]' --trust minari"),
)
