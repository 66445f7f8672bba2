"""The plan of a round: for each benchmark a configuration, the number of runs, and overrides."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Final

from common.benchmarks import PACKAGES, list_benchmarks, require_package
from common.config import load, section_of, shown
from common.errors import UsageError
from common.installed import CLOSED, find_config, is_name, named_configs
from common.reference import NO_TARGET
from compliance.benchmarks import require_reference

CONFIGS: Final = {"mini": "mini", "closed": CLOSED}
"""Rounds known by name: the configuration that every benchmark runs."""


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
        name_of = CONFIGS.get(config, config)
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
    """Raise UsageError if the settings ask for no target, or for instances that the round would not train as such."""
    file = find_config(series.benchmark, series.config)
    if section_of(file, series.overrides, "train").get("target") == NO_TARGET:
        raise UsageError(f"{series.benchmark}: train.target is {NO_TARGET}, but the runs of a round train to theirs")
    section = section_of(file, series.overrides, "instances")
    count, first = section.get("count", 1), section.get("first")
    if throughput and first not in (None, 0):
        raise UsageError(
            f"{series.benchmark}: instances.first is {shown(first)}; expected none: the instances of --throughput M "
            "are 0 to M-1"
        )
    if not throughput and (count != 1 or first is not None):
        wrong = f"instances.count is {shown(count)}" if count != 1 else f"instances.first is {shown(first)}"
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
