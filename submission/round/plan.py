"""The plan of a round: for each benchmark a configuration, the number of runs, and overrides."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from common.command import HELP_HINT, UsageError
from common.config import load, section_of, shown
from common.named_configs import CLOSED, find_config, is_name, named_configs
from compliance.benchmarks import MINIS, REFERENCES

CONFIGS: Final = {"mini": "mini", "closed": CLOSED}
"""Rounds known by name: the configuration that every benchmark runs."""
BENCHMARKS: Final = tuple(MINIS)
WRONG_USE: Final = 2
"""Exit status of a command that was called with wrong arguments."""


class ResolveError(ValueError):
    """The train command of a benchmark cannot start, such as without its extra; the message is its own."""


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


_File = make_dataclass(
    "_File", [(name, BenchmarkPlan, field(default_factory=BenchmarkPlan)) for name in BENCHMARKS], frozen=True
)


@dataclass(frozen=True, slots=True)
class Setup:
    """A series with its configuration, resolved by the benchmark itself. text: the complete configuration as YAML."""

    series: Series
    text: str
    variant: str
    data_dir: Path
    round: str
    submission: dict[str, str]
    """org, division, status and platform."""


def read_plan(config: str, benchmarks: Sequence[str] = (), runs: int | None = None) -> list[Series]:
    """Return the series of a round, in the order of its benchmarks.

    config: "mini", "closed", a preset of the benchmarks that have it, or a YAML file with `config`, `runs` and
    `overrides` for each benchmark.
    benchmarks: only these. runs: per benchmark, overriding the file.
    Raises UsageError for an invalid file, or one without the benchmarks.
    """
    entries = _entries(config)
    missing = [name for name in benchmarks if name not in entries]
    if missing or not entries:
        known = ", ".join(entries) or f"none; expected lines such as `{BENCHMARKS[0]}: {{config: NAME}}`"
        raise UsageError(f"{config} has no {missing[0] if missing else 'benchmark'}; it has {known}")
    return [
        Series(name, text, runs or entry.runs or REFERENCES[name].runs, entry.overrides)
        for name, (text, entry) in entries.items()
        if name in (benchmarks or entries)
    ]


def _entries(config: str) -> dict[str, tuple[str, BenchmarkPlan]]:
    """Return (configuration as for the train command, entry) of each benchmark of a round."""
    if is_name(config):
        name_of = CONFIGS.get(config, config)
        found = {name: (name_of, BenchmarkPlan()) for name in BENCHMARKS if name_of in named_configs(name)}
        if not found:
            raise UsageError(
                f"--config {config}: no benchmark has a configuration of this name; expected mini, closed, a preset "
                f"(`python -m {BENCHMARKS[0]}.train --list-configs`), or a file: ./{config} or FILE.yaml"
            )
        return found
    file = Path(config)
    read: Any = load(_File, file)
    entries: dict[str, BenchmarkPlan] = {name: getattr(read, name) for name in BENCHMARKS}
    return {name: (_resolved_config(file, entry.config), entry) for name, entry in entries.items() if entry.config}


def check_instances(series: Series, throughput: bool) -> None:
    """Raise UsageError if the settings ask for instances that the round would not train, or not count, as such."""
    said = section_of(find_config(series.benchmark, series.config), series.overrides, "instances")
    count, first = said.get("count", 1), said.get("first")
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


def resolve(series: Series) -> Setup:
    """Return the series as its benchmark resolves it.

    Raises UsageError with the benchmark's message if it refuses the series, ResolveError if it cannot start.
    """
    command = [sys.executable, "-m", f"{series.benchmark}.train", series.config, "--print-config"]
    done = subprocess.run([*command, *series.overrides], capture_output=True, text=True, check=False)
    if done.returncode:
        raise _refusal(series.benchmark, done)
    tree: dict[str, Any] = yaml.safe_load(done.stdout)
    submission = {name: str(tree["submission"][name]) for name in ("org", "division", "status", "platform")}
    data_dir = Path(str(tree["data"]["data_dir"]).replace("$$", "$"))
    return Setup(series, done.stdout, str(tree["variant"]), data_dir, str(tree["submission"]["round"]), submission)


def _refusal(benchmark: str, done: subprocess.CompletedProcess[str]) -> ValueError:
    """Return the error that says why the train command of a benchmark has ended with an error."""
    # The error is the last thing printed; it may have several lines.
    text = done.stderr.strip().rpartition("error: ")[2] or f"exit status {done.returncode}"
    said = f"{benchmark}: {text.removesuffix(HELP_HINT)}"
    if done.returncode == WRONG_USE:
        return UsageError(said)
    if "ModuleNotFoundError" in said:
        said += "; if the current folder has a package of the same name: export PYTHONSAFEPATH=1"
    return ResolveError(said)


def quoted(text: str) -> str:
    """Return the text as a quoted YAML string."""
    return "'" + text.replace("'", "''") + "'"


def _resolved_config(file: Path, config: Path) -> str:
    """Return a name unchanged; of a path in round.yaml, return it relative to the current folder, if below it."""
    if is_name(str(config)):
        return str(config)
    absolute = Path(os.path.abspath(file.parent / config))
    return str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute)
