"""What the suite is as a library: one import for code of your own. docs/guide/library.md has examples.

Beside it each benchmark has, named alike: `settings.Config`, `data.dataset.Dataset`, `model.build_model`, and in
`train` its problem, `BENCHMARK`, `run` and `load`. All of this is public; docs/guide/api.md says what that means.
"""

from common.config import ConfigError
from common.data.split import DatasetError, Split
from common.ending import Ending
from common.errors import UsageError
from common.own_code import register_optimizer, register_problem
from common.settings.optim import OptimConfig
from common.settings.run import RunConfig
from common.training.benchmark import Benchmark, Predictor, SampleProblem
from common.training.callbacks import Callback, Epoch, RunStart, StepRecord
from common.training.predictions import PredictionReport
from common.training.resolve import resolve_config
from common.training.trainer import BusyError, Run, Trainer
from common.training.weights import load_network

__all__ = [
    "Benchmark",
    "BusyError",
    "Callback",
    "ConfigError",
    "DatasetError",
    "Ending",
    "Epoch",
    "OptimConfig",
    "PredictionReport",
    "Predictor",
    "Run",
    "RunConfig",
    "RunStart",
    "SampleProblem",
    "Split",
    "StepRecord",
    "Trainer",
    "UsageError",
    "load_network",
    "register_optimizer",
    "register_problem",
    "resolve_config",
]
