"""The plan of a round: for each benchmark a configuration, the number of runs, overrides; and the runs of the plan.

A run is a training with a seed of its own.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from common.benchmarks import PACKAGES, list_benchmarks, require_package
from common.config import load, quote_value, section_of
from common.console import format_duration
from common.errors import UsageError
from common.files import LOG_NAME
from common.installed import CLOSED, find_config, is_name, named_configs
from common.reference import NO_TARGET
from compliance.benchmarks import require_reference
from compliance.logs.run import Run, read_run
from submission.runs.plan import RECORD, PlanError, PlannedRun, is_finished, keep_seeds
from submission.runs.processes import JobRunner
from submission.runs.progress import execute_plan


@dataclass(frozen=True, slots=True)
class Series:
    """The runs of one benchmark. config: name or path, as for its train command. overrides: section.key=value."""

    benchmark: str
    config: str
    runs: int
    overrides: tuple[str, ...] = ()

    def set(self, *overrides: str) -> Series:
        """Return the series with additional overrides, which take precedence."""
        return replace(self, overrides=(*self.overrides, *overrides))


@dataclass(frozen=True, slots=True)
class BenchmarkPlan:
    """The entry of a benchmark in round.yaml; without `config` the benchmark is not in the round.

    config: a name, or a path FILE.yaml relative to round.yaml. runs: null means as many as the rules require.
    """

    config: Path | None = None
    runs: int | None = None
    overrides: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.runs is not None and self.runs < 1:
            raise ValueError(f"runs is {self.runs}; expected at least 1")
        if self.config is None and (self.runs or self.overrides):
            raise ValueError("config is missing; expected the name of a configuration or a YAML file")


def read_plan(config: str, benchmarks: Sequence[str] = (), runs: int | None = None) -> list[Series]:
    """Return the series of a round, in the order of its benchmarks.

    config: "mini", "closed", a preset of the benchmarks that have it, or a YAML file with `config`, `runs` and
    `overrides` for each benchmark.
    benchmarks: only these; one from outside the suite has to be named, here or in the file.
    runs: per benchmark, overriding the file.
    Raises UsageError for an invalid file, or one without the benchmarks.
    """
    for name in benchmarks:
        require_package(name)
    entries = _read_entries(config, benchmarks)
    missing = [name for name in benchmarks if name not in entries]
    if missing or not entries:
        listing = ", ".join(entries) or f"none; expected lines such as `{PACKAGES[0]}: {{config: NAME}}`"
        raise UsageError(f"{config} has no {missing[0] if missing else 'benchmark'}; it has {listing}")
    return [
        Series(name, text, runs or entry.runs or require_reference(name).runs, entry.overrides)
        for name, (text, entry) in entries.items()
        if name in (benchmarks or entries)
    ]


def _read_entries(config: str, benchmarks: Sequence[str]) -> dict[str, tuple[str, BenchmarkPlan]]:
    """Return (configuration as for the train command, entry) of each benchmark of a round."""
    if is_name(config):
        name_of = {"mini": "mini", "closed": CLOSED}.get(config, config)
        names = dict.fromkeys((*PACKAGES, *benchmarks))
        entries = {name: (name_of, BenchmarkPlan()) for name in names if name_of in named_configs(name)}
        if not entries:
            raise UsageError(
                f"--config {config}: no benchmark has a configuration of this name; expected mini, closed, a preset "
                f"(`python -m {PACKAGES[0]}.train --list-configs`), or a file: ./{config} or FILE.yaml"
            )
        return entries
    file = Path(config)
    sections = [(name, BenchmarkPlan, field(default_factory=BenchmarkPlan)) for name in list_benchmarks()]
    plans: Mapping[str, BenchmarkPlan] = vars(load(make_dataclass("RoundFile", sections), file))
    return {name: (_locate_config(file, entry.config), entry) for name, entry in plans.items() if entry.config}


def check_series(series: Series, throughput: bool) -> None:
    """Raise UsageError for more runs than a result has, no target, or instances that are not trained as such."""
    if series.runs > (most := require_reference(series.benchmark).runs):
        raise UsageError(
            f"{series.benchmark}: {series.runs} runs, but a time-to-train result has {most}; ask for fewer"
        )
    file = find_config(series.benchmark, series.config)
    if section_of(file, series.overrides, "train").get("target") == NO_TARGET:
        raise UsageError(f"{series.benchmark}: train.target is {NO_TARGET}, but the runs of a round train to theirs")
    section = section_of(file, series.overrides, "instances")
    count, first = section.get("count", 1), section.get("first")
    if throughput and first not in (None, 0):
        raise UsageError(
            f"{series.benchmark}: instances.first is {quote_value(first)}; expected none: the instances of "
            "--throughput M are 0 to M-1"
        )
    if not throughput and (count != 1 or first is not None):
        wrong = f"instances.count is {quote_value(count)}" if count != 1 else f"instances.first is {quote_value(first)}"
        raise UsageError(
            f"{series.benchmark}: {wrong}, but each run of this round trains one network; remove the setting, or give "
            "--throughput M for one result of M instances"
        )


def _locate_config(file: Path, config: Path) -> str:
    """Return a name unchanged; of a path in round.yaml, return it relative to the current folder, if below it."""
    if is_name(str(config)):
        return str(config)
    absolute = Path(os.path.abspath(file.parent / config))
    return str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute)


CONFIG: Final = "config.yaml"
FORMER_RECORD: Final = "round.json"
"""The plan of a round in versions before 0.3."""
LARGEST_SEED: Final = 2**31 - 2**16
"""An instance adds its number, and seeds are below 2^31."""


def plan_runs(folder: Path, counts: Mapping[str, int]) -> list[PlannedRun]:
    """Return the runs of a round in a folder, with their seeds: those that there are, and more.

    counts: runs of each benchmark. Raises PlanError if there are more: leaving some out would be cherry-picking.
    """
    if (folder / FORMER_RECORD).exists():
        raise PlanError(
            f"{folder / FORMER_RECORD}: this round was begun by a version before 0.3, whose seeds are there; finish it "
            "with that version, or choose another folder with -o"
        )
    for benchmark, present in Counter(path.parent.parent.name for path in folder.glob(f"*/run_*/{RECORD}")).items():
        if counts.get(benchmark, 0) < present:
            raise PlanError(
                f"{benchmark} has {present} runs in this round, but {counts.get(benchmark, 0)} are requested: a round "
                "can only grow; for a smaller round choose another folder with -o"
            )
    runs = [
        PlannedRun(
            benchmark=benchmark,
            kind="training",
            config=str(folder / benchmark / CONFIG),
            folder=folder / benchmark / f"run_{number}",
        )
        for benchmark, count in counts.items()
        for number in range(count)
    ]
    return keep_seeds(runs, draw_seeds())


def make_runs(
    runs: list[PlannedRun], runner: JobRunner, usual_minutes: Mapping[str, float] = MappingProxyType({})
) -> dict[Path, Run]:
    """Train the missing runs; return the paths of all logs with a result, as read.

    usual_minutes: of a run, by benchmark, for the estimate before the first one ends.
    """
    for run in runs:
        if not (run.folder / RECORD).exists():
            run.write_record()  # the seed is fixed before the first run starts
    execute_plan(runs, runner, _describe_run, usual_minutes)
    return read_logs(runs)


def read_logs(runs: list[PlannedRun]) -> dict[Path, Run]:
    """Return the paths of the logs of the finished runs, as read."""
    paths = [run.folder / LOG_NAME for run in runs if is_finished(run)]
    return {path: read_run(str(path)) for path in paths}


def draw_seeds() -> Iterator[int]:
    """Yield random seeds without end."""
    while True:
        yield random.SystemRandom().randint(1, LARGEST_SEED)


def _describe_run(run: PlannedRun) -> str:
    record = read_run(str(run.folder / LOG_NAME))
    evaluations = record.details.evaluations
    quality = f" ({evaluations[-1].value:.4g})" if evaluations else ""
    how = "met the target" if record.status == "success" else "did NOT meet the target (the run is kept)"
    return f"{how} after {len(evaluations)} evaluations{quality}, {format_duration(60 * (record.minutes or 0.0))}"
