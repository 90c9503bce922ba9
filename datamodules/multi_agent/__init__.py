"""Environments of several agents, each agent a row of the vector environment.

`parallel_vector_env` steps PettingZoo's parallel environments; `vector_adapter` makes a VectorEnv of these and of any
Gymnasium vector environment with `num_agents`; `tensor_vector_env` does so for on-device environments. `append_obs` and
`policy_groups` wrap a VectorEnv: the first appends agent id, last action and last reward to observations, the second
lets other policies play some of the agents. To add another source of environments, make it a
`gymnasium.vector.VectorEnv` with `num_agents`, as `vector_adapter` describes.
"""
