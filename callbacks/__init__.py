"""What watches and adjusts a run: one Lightning `Callback` a file, attached by its `class_path` in a config.

A callback knows Lightning, `datamodules.core.types` and `datamodules.core.phase`, never a concrete algorithm. To add one, write a
file here (or anywhere importable), give every setting a default in its `__init__`, test that each setting acts, and
name it under `trainer.callbacks` in a YAML. One whose `on_train_batch_*` has the same effect when a batch holds several
iterations (`data.iterations_per_batch`) says so with the class attribute `acts_per_iteration = False`; others are
refused then.
"""
