"""Callbacks that monitor and adjust a run: one Lightning `Callback` per file, attached by its `class_path` in a config.

A callback depends on Lightning and `datamodules.core`, never on a concrete algorithm.
To add one, write a file in this folder (or anywhere importable), give every setting a default in its `__init__`, test
that each setting has an effect, add its name to `EXPORTS`, and name it under `trainer.callbacks` in a YAML. If its
`on_train_batch_*` has the same effect with several iterations per batch (`data.iterations_per_batch`), set the class
attribute `acts_per_iteration = False`; other callbacks are refused in that case.
"""

from typing import TYPE_CHECKING

from datamodules.core.exports import lazy_exports

EXPORTS = {
    "Compile": "callbacks.performance.compile",
    "ExecutionSummary": "callbacks.performance.execution_summary",
    "GPUMonitor": "callbacks.performance.gpu_monitor",
    "Heartbeat": "callbacks.performance.heartbeat",
    "SystemMonitor": "callbacks.performance.system_monitor",
    "TrainingProgress": "callbacks.performance.progress_bar",
    "ThreadTuner": "callbacks.performance.thread_tuner",
    "Throughput": "callbacks.performance.throughput",
    "EntropyAlarm": "callbacks.analysis.entropy_alarm",
    "GradientStatistics": "callbacks.analysis.gradient_statistics",
    "TorchProfiler": "callbacks.analysis.torch_profiler",
    "WeightAnalysis": "callbacks.analysis.weight_analysis",
    "RunCheckpoint": "callbacks.run_control.checkpoint",
    "DivergenceGuard": "callbacks.run_control.divergence_guard",
    "EpisodeVideo": "callbacks.video.episode_video",
    "DynamicsFigures": "callbacks.figures.dynamics_figures",
    "TradingReport": "callbacks.figures.trading_report",
    "SelfPlay": "callbacks.opponents.self_play",
    "StageCurriculum": "callbacks.opponents.stage_curriculum",
    "OptionCollapseMonitor": "callbacks.options.collapse_alarm",
    "OptionFigures": "callbacks.options.option_figures",
    "RegimeInformation": "callbacks.options.regime_information",
}
"""The exported classes and their modules; the imports below repeat them for type checkers."""

if TYPE_CHECKING:
    from callbacks.analysis.entropy_alarm import EntropyAlarm as EntropyAlarm
    from callbacks.analysis.gradient_statistics import GradientStatistics as GradientStatistics
    from callbacks.analysis.torch_profiler import TorchProfiler as TorchProfiler
    from callbacks.analysis.weight_analysis import WeightAnalysis as WeightAnalysis
    from callbacks.figures.dynamics_figures import DynamicsFigures as DynamicsFigures
    from callbacks.figures.trading_report import TradingReport as TradingReport
    from callbacks.opponents.self_play import SelfPlay as SelfPlay
    from callbacks.opponents.stage_curriculum import StageCurriculum as StageCurriculum
    from callbacks.options.collapse_alarm import OptionCollapseMonitor as OptionCollapseMonitor
    from callbacks.options.option_figures import OptionFigures as OptionFigures
    from callbacks.options.regime_information import RegimeInformation as RegimeInformation
    from callbacks.performance.compile import Compile as Compile
    from callbacks.performance.execution_summary import ExecutionSummary as ExecutionSummary
    from callbacks.performance.gpu_monitor import GPUMonitor as GPUMonitor
    from callbacks.performance.heartbeat import Heartbeat as Heartbeat
    from callbacks.performance.progress_bar import TrainingProgress as TrainingProgress
    from callbacks.performance.system_monitor import SystemMonitor as SystemMonitor
    from callbacks.performance.thread_tuner import ThreadTuner as ThreadTuner
    from callbacks.performance.throughput import Throughput as Throughput
    from callbacks.run_control.checkpoint import RunCheckpoint as RunCheckpoint
    from callbacks.run_control.divergence_guard import DivergenceGuard as DivergenceGuard
    from callbacks.video.episode_video import EpisodeVideo as EpisodeVideo
else:
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
