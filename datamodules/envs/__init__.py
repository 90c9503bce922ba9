"""On-device environments, one file or folder each: pure batched functions of a state (a `TorchFuncEnv`).

To add one, write its class in its own file, without imports of other environments, and register it below under an id.
`python -m app fit --data.env YourId-v0` then runs it on the device, `gymnasium.make` and `gymnasium.make_vec` run it in
other programs, and the contract tests find it. `functional_torch_env` holds the two Gymnasium adapters; `cartpole`
holds ordinary Gymnasium environments.
"""

import gymnasium


def _register(name: str, tensor_env: str, **kwargs: str | int) -> None:
    """Register an on-device environment under an id, for one environment and as a vector.

    Args:
        name: the id.   tensor_env: dotted path of the `TorchFuncEnv`.   kwargs: its arguments.
    """
    gymnasium.register(
        name,
        entry_point="datamodules.envs.functional_torch_env:FunctionalTorchEnv",
        vector_entry_point="datamodules.envs.functional_torch_env:FunctionalTorchVectorEnv",
        kwargs={"tensor_env": tensor_env, **kwargs},
    )


_register("Snake-v0", "datamodules.envs.snake.env.Snake")
_register("GridWorld-v0", "datamodules.envs.gridworld.env.GridWorld", num_agents=1)
_register("Trading-v0", "datamodules.trading.env.Trading")
_register("FourRooms-v0", "datamodules.envs.four_rooms.env.FourRooms")
_register("FetchAndDeliver-v0", "datamodules.envs.four_rooms.errands.FetchAndDeliver")
_register("KeyDoor-v0", "datamodules.envs.four_rooms.errands.KeyDoor")
_register("TMaze-v0", "datamodules.envs.t_maze.TMaze")
_register("Horde-v0", "datamodules.envs.horde.Horde")
gymnasium.register("MettaGrid-v0", vector_entry_point="datamodules.envs.mettagrid.vector_env:MettaGridVectorEnv")
_register("Carball-v0", "datamodules.envs.carball.env.Carball")
_register("CarballContinuous-v0", "datamodules.envs.carball.env.Carball", actions="continuous")
gymnasium.register(
    "CartPolePositions-v0",
    entry_point="datamodules.envs.cartpole:CartPolePositions",
    vector_entry_point="datamodules.envs.cartpole:CartPolePositionsVector",
    max_episode_steps=500,
)
gymnasium.register(
    "CartPoleForce-v0",
    entry_point="datamodules.envs.cartpole:CartPoleForce",
    vector_entry_point="datamodules.envs.cartpole:CartPoleForceVector",
    max_episode_steps=200,
)

for _id, _path in {
    "CartPoleDevice-v1": "cartpole.CartPole",
    "PendulumDevice-v1": "pendulum.Pendulum",
    "AcrobotDevice-v1": "acrobot.Acrobot",
    "MountainCarDevice-v0": "mountain_car.MountainCar",
    "MountainCarContinuousDevice-v0": "mountain_car.MountainCarContinuous",
}.items():
    _register(_id, f"datamodules.envs.classic_control.{_path}")

for _name, _path in {
    "Asterix": "asterix.Asterix",
    "Breakout": "breakout.Breakout",
    "Freeway": "freeway.Freeway",
    "Seaquest": "seaquest.Seaquest",
    "SpaceInvaders": "space_invaders.SpaceInvaders",
}.items():
    _register(f"MinAtar{_name}-v1", f"datamodules.envs.minatar.{_path}")

for _id, _system in {
    "Duffing-v0": "duffing",
    "VanDerPol-v0": "van_der_pol",
    "DoubleWell-v0": "double_well",
    "LimitCycle-v0": "limit_cycle",
    "DoubleLimitCycle-v0": "double_limit_cycle",
    "RingAttractor-v0": "ring_attractor",
    "Snowman-v0": "snowman",
    "MultiAttractor-v0": "multi_attractor",
    "Lorenz-v0": "lorenz",
}.items():
    _register(_id, "datamodules.envs.dynamical_systems.env.DynamicalSystemEnv", system=_system)
