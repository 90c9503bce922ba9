"""Environments that run on the device: one file each, pure batched functions of a state (a `TensorEnv`).

To add one: write its class in a file of its own, with nothing imported from the other environments, and register it
below under an id. `python -m app fit --data.env YourId-v0` then runs it on the device, `gymnasium.make` and
`gymnasium.make_vec` run it anywhere else, and the contract tests find it by themselves. `snake_board` and
`snake_rewards` belong to `snake`, `vector_fields` to `dynamical`, and `as_gymnasium` holds the two adapters.
`cartpole_positions`, `cartpole_force` and `atari` are ordinary Gymnasium environments.
"""

import gymnasium

gymnasium.register(
    "Snake-v0",
    entry_point="datamodules.envs.functional_torch_env:SingleEnv",
    vector_entry_point="datamodules.envs.functional_torch_env:BatchEnv",
    kwargs={"tensor_env": "datamodules.envs.snake.env.Snake"},
)
gymnasium.register(
    "Trading-v0",
    entry_point="datamodules.envs.functional_torch_env:SingleEnv",
    vector_entry_point="datamodules.envs.functional_torch_env:BatchEnv",
    kwargs={"tensor_env": "datamodules.trading.env.Trading"},
)
gymnasium.register(
    "FourRooms-v0",
    entry_point="datamodules.envs.functional_torch_env:SingleEnv",
    vector_entry_point="datamodules.envs.functional_torch_env:BatchEnv",
    kwargs={"tensor_env": "datamodules.envs.four_rooms.FourRooms"},
)
gymnasium.register(
    "FetchAndDeliver-v0",
    entry_point="datamodules.envs.functional_torch_env:SingleEnv",
    vector_entry_point="datamodules.envs.functional_torch_env:BatchEnv",
    kwargs={"tensor_env": "datamodules.envs.four_rooms.FetchAndDeliver"},
)
gymnasium.register("CartPolePositions-v0", entry_point="datamodules.envs.cartpole:CartPolePositions")
gymnasium.register("CartPoleForce-v0", entry_point="datamodules.envs.cartpole:CartPoleForce", max_episode_steps=200)
gymnasium.register("AtariPong-v0", entry_point="datamodules.envs.atari:Atari", kwargs={"game": "ALE/Pong-v5"})

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
    gymnasium.register(
        _id,
        entry_point="datamodules.envs.functional_torch_env:SingleEnv",
        vector_entry_point="datamodules.envs.functional_torch_env:BatchEnv",
        kwargs={"tensor_env": "datamodules.envs.dynamical_systems.env.Dynamical", "system": _system},
    )
