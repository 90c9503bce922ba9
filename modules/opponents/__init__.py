"""Policies that play agents of the training environment without learning (`data.opponents`).

To add one, write a `torch.nn.Module` whose `__init__` takes the spaces of an agent first, and which has the methods of
`datamodules.core.protocols.Policy`; name it by its dotted path, or add it to the exports of `modules`.
"""
