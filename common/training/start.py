"""Start a training of a configuration on the ranks of the launcher: from the command, from Python, and in a sweep."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Sequence
from functools import partial

import torch

from common.config import ConfigError, Override
from common.distributed.device import keep_freed_memory
from common.distributed.dist import connect
from common.settings.run import RunConfig
from common.stop import STOP
from common.training.benchmark import Benchmark
from common.training.job import InstancesJob, check_ranks
from common.training.resolve import resolve_config
from common.training.run import TRAINING_ERRORS, Instance, Start, Training
from common.training.tracking.trackers import check_installed


def configured(benchmark: Benchmark, given: str, overrides: Sequence[Override]) -> RunConfig:
    """Return the configuration of a name or file with overrides; ConfigError if no run can have it."""
    return resolve_config(benchmark.config, given, overrides, partial(check_network, benchmark))


def check_network(benchmark: Benchmark, config: RunConfig) -> None:
    """Raise ConfigError for a network that cannot be made, or whose weights are larger than this machine's memory."""
    smaller = "smaller sizes in section model"
    if hasattr(config.data, "sample_shape"):
        smaller += " or data.sample_shape"
    try:
        with torch.device("meta"):
            parameters = list(benchmark.predictor.network(config).parameters())
    except (RuntimeError, TypeError, OverflowError, MemoryError) as error:  # beyond what torch can count, or numpy hold
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"this network cannot be made ({reason}); expected {smaller}") from error
    needed, memory = sum(one.nbytes for one in parameters), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ConfigError(
            f"the weights of this network would need {needed / 1e9:,.0f} GB, and this machine has {memory / 1e9:,.0f} "
            f"GB; expected {smaller}"
        )


def train(benchmark: Benchmark, config: RunConfig, start: Start) -> int:
    """Train on all ranks; return the exit status of `common.ending`. The caller listens to signals (`STOP`)."""
    check_installed(config.track)
    if getattr(config.data, "pipeline", None) == "dali":  # before anything is made
        importlib.import_module("common.data.dali")
    with contextlib.ExitStack() as connected:
        with STOP.interrupting():
            dist = connected.enter_context(connect(config.dist, TRAINING_ERRORS))
        if dist.device.type == "cpu":
            keep_freed_memory(config.dist.sharing)
        check_ranks(config, dist.world_size, start.resume)
        if config.instances.count > 1:
            return InstancesJob(benchmark, config, dist, start).run()
        number = config.instances.first
        return Training(benchmark, config, dist, start, None if number is None else Instance(number)).run()
