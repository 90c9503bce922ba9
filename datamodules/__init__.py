"""Where data comes from: environments, the loop that collects, and the datasets that yield what was collected.

`types` holds the words everything else speaks. `vector.make_envs` turns any environment into one interface of tensors
(`gymnasium_env` on the host, `device_env` on the device, `spaces` for what they show and take, `workers` for processes
of their own, `envpool_envs` for EnvPool's). Nothing here knows an algorithm: a policy enters as an argument.

To add an environment, write one file in `envs/`; to add a source of data, write one file here with a dataset that
collects in `__iter__` and a `LightningDataModule` that makes its environments.
"""
