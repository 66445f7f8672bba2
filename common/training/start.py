"""Start a training of a configuration on the ranks of the launcher: from the command, from Python, and in a sweep."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence

from common.config import Override, load, sources
from common.distributed.device import keep_freed_memory
from common.distributed.dist import connect
from common.named_configs import find_config
from common.settings.run import RunConfig
from common.stop import STOP
from common.training.benchmark import Benchmark
from common.training.combinations import check_combinations, check_network
from common.training.division import check_division
from common.training.job import InstancesJob, check_ranks
from common.training.run import TRAINING_ERRORS, Instance, Start, Training
from common.training.tracking.choice import check_installed


def configured(benchmark: Benchmark, given: str, overrides: Sequence[Override]) -> RunConfig:
    """Return the configuration of a name or file with overrides; ConfigError if no run can have it."""
    file = find_config(benchmark.name, given)

    def check(config: RunConfig) -> None:
        check_combinations(config, overrides)
        check_network(benchmark, config)

    config = load(benchmark.config, file, overrides, check)
    check_division(benchmark, config, sources(file, overrides))
    return config


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
