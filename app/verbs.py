"""The verbs of `python -m app`."""

VERBS = {
    "fit": "app.cli.main:main",
    "validate": "app.cli.main:main",
    "test": "app.cli.main:main",
    "predict": "app.cli.main:main",
    "play": "app.play.main:main",
    "envs": "app.envs.main:main",
    "export": "app.export.main:main",
    "verify": "app.verify.main:main",
    "benchmark": "app.benchmark.main:main",
    "diagnose": "app.diagnose.main:main",
    "compare": "app.compare.main:main",
    "elo": "app.elo.main:main",
    "plot": "app.plot.main:main",
    "monitor": "app.monitor.main:main",
    "docs": "app.docs:main",
}
"""Module and function of every verb."""

VERB_HELP = {
    "fit": "train an agent",
    "validate": "evaluate whole greedy episodes as during training",
    "test": "evaluate a checkpoint and print the statistics",
    "predict": "write trajectories",
    "play": "watch episodes of a checkpoint, as a video or in a window",
    "envs": "list environments, or check one and list what to fix",
    "export": "write the decision of a checkpoint as ONNX or a torch.export program, with a model card",
    "verify": "check what training relies on: determinism, resume, compile, two ranks, export",
    "benchmark": "time a config, beside another one or a peer",
    "diagnose": "find out where the time goes and what to change",
    "compare": "settings times seeds: steps to a threshold, final values, curves",
    "elo": "rate a run's checkpoints by games against one another and its opponents",
    "plot": "curves of any runs as a figure, seeds of a config as a band",
    "monitor": "watch a run and the machine in a terminal",
    "docs": "write the reference pages of the documentation",
}
"""What every verb does."""

WITHOUT_TORCH = {"plot", "monitor"}
"""The verbs that start without torch."""
