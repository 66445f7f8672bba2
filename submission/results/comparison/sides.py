"""The two sides of a comparison: find the results below two paths, pair them, and read their hyperparameters."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import StatisticsError, fmean
from typing import Any, Final

from common.command import counted, list_some
from common.errors import UsageError
from common.values import are_same, identity, is_number
from compliance.engine.log_checker import Options
from compliance.logs.fingerprint import same_times
from compliance.logs.run import NOT_HYPERPARAMETERS, Run
from compliance.model.judging import JudgedRun
from compliance.model.result_set import ResultSet
from compliance.model.score import TimeToTrain, staging_clock
from compliance.rcp.means import olympic_mean
from submission.results.read_rows import every_set, read_logs, row_of
from submission.results.rows import Row

MOST_REJECTED: Final = 1
"""Runs that a time to train may lack."""


@dataclass(frozen=True, slots=True)
class Side:
    """The runs of one benchmark on one side, at least one: a result, or logs outside of results.

    name, path: of the result; of other logs where they were found. row: as the summary shows it.
    """

    name: str
    path: str
    results: ResultSet
    row: Row

    @property
    def runs(self) -> list[JudgedRun]:
        """The runs, without pruned ones."""
        return self.results.runs

    @property
    def staging_clock(self) -> str:
        """Whether the runs stage their data "in" the clock or "out" of it; "" if they do not."""
        return staging_clock([run for run in self.runs if run.verdict != "FAIL"] or self.runs)

    @property
    def identity(self) -> tuple[object, ...]:
        """What paired results have in common; of the last parts, only as many as tell them from others."""
        results = self.results
        kind = results.variant, results.division, self.row.scaling
        return results.benchmark, kind, results.organisation.lower(), results.system

    def mean(self, measure: Callable[[JudgedRun], float | None]) -> float | None:
        """Return the mean of a measure over the runs that have it; None if none has."""
        return average_finite(map(measure, self.runs))

    def score_mean(self, measure: Callable[[JudgedRun], float | None]) -> float | None:
        """Return the mean over the runs that converged, for a time to train without the least and the most."""
        values = [value for run in self.runs if run.converged and (value := measure(run)) is not None]
        score = self.results.score
        if isinstance(score, TimeToTrain) and len(score.rejected) <= MOST_REJECTED:
            return olympic_mean(values, len(score.rejected)) or average_finite(values)
        return average_finite(values)


def average_finite(values: Iterable[float | None]) -> float | None:
    """Return the mean of the finite values; None without any, or if it is beyond the range of floats."""
    finite = [value for value in values if value is not None and is_number(value)]
    with suppress(OverflowError, StatisticsError):
        return fmean(finite)
    return None


def pair_results(a: str, b: str, options: Options, benchmark: str | None) -> tuple[list[tuple[Side, Side]], list[Side]]:
    """Return the pairs of results to compare, in the order of A, and those without a counterpart.

    Two results are a pair if they are the only ones of a benchmark on their sides; else the only ones of the same
    problem, division and scaling, or of these and the same organisation, or of the same system, too.
    Raises UsageError without a common benchmark, without a pair, or for a path that does not exist.
    """
    both = [_find_sides(path, options) for path in (a, b)]
    benchmarks = [dict.fromkeys(str(side.results.benchmark) for side in sides) for sides in both]
    common = [name for name in benchmarks[0] if name in benchmarks[1] and benchmark in (None, name)]
    if not common:
        there = "; ".join(f"{path} has {', '.join(of) or 'none'}" for path, of in zip((a, b), benchmarks, strict=True))
        wanted = f"results of {benchmark}" if benchmark else "results of one benchmark"
        raise UsageError(
            f"expected {wanted} on both sides: {there}. python -m compliance.check shows what the logs are"
        )
    mine, theirs = ([side for side in sides if side.results.benchmark in common] for sides in both)
    mine.sort(key=lambda side: common.index(str(side.results.benchmark)))
    pairs = [(side, other) for side in mine if (other := _find_counterpart(side, mine, theirs))]
    used = {id(side) for pair in pairs for side in pair}
    alone = [side for side in (*mine, *theirs) if id(side) not in used]
    if not pairs:
        folders = ", ".join(dict.fromkeys((alone[0].path, alone[-1].path)))
        raise UsageError(
            f"no result of {a} has one of the same name in {b}; name the folder of one result each, such as {folders}"
        )
    return pairs, alone


def explain_same_logs(a: Side, b: Side) -> str:
    """Return which logs both sides hold, so that their comparison says little; "" if they have none in common."""
    pairs = ((run, other) for run in a.runs for other in b.runs if same_times(run.fingerprint, other.fingerprint))
    names = list(dict.fromkeys(os.path.basename(run.path) for run, _ in pairs if run.fingerprint.times))
    if not names:
        return ""
    says = "compares them with themselves" if len(names) == len(a.runs) else "shows too little difference"
    logs = f"the same {counted(len(names), 'log')} ({list_some(names)})"
    return f"A ({a.path}) and B ({b.path}) hold {logs}, so this {says}; give the folder of the other runs"


def _find_counterpart(side: Side, mine: list[Side], theirs: list[Side]) -> Side | None:
    """Return the result to compare with one of mine: the two alone have the first parts of their identity."""
    for parts in range(1, len(side.identity) + 1):
        equal, others = (
            [each for each in sides if each.identity[:parts] == side.identity[:parts]] for sides in (mine, theirs)
        )
        if len(equal) == len(others) == 1:
            return others[0]
    return None


def _find_sides(path: str, options: Options) -> list[Side]:
    """Return the results below a path whose benchmark is known, and the logs outside of results."""
    report = read_logs([path], options)
    result_ids = {id(results) for results in report.sets}
    sides = []
    for results in every_set(report):
        if results.benchmark and results.runs:
            names = (results.name, results.folder) if id(results) in result_ids else (path, path)
            sides.append(Side(*names, results, row_of(results, report)))
    return sides


# -- hyperparameters ------------------------------------------------------------------------------------------


ABSENT: Final = object()
"""In place of a value that a side does not have, in contrast to the value None."""


@dataclass(frozen=True, slots=True)
class Varied:
    """The values of a key that differs between runs, each with its number of runs."""

    counts: tuple[tuple[Any, int], ...]


def read_logged(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the hyperparameters by log key; values that differ between the runs are `Varied`."""
    stated = (run.details.hyperparameters.items() for run in runs)
    return _unite_settings([{key: value for key, value in items if key not in NOT_HYPERPARAMETERS} for items in stated])


def read_configured(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the settings by configuration key if all logs contain their configuration, as this suite's do; else {}."""
    several = list(map(_read_configuration, runs))
    return _unite_settings(several) if all(several) else {}


def list_differing(mine: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys that differ or exist on one side only: first those of `mine`, in its order."""
    keys = dict.fromkeys((*mine, *other))
    return [key for key in keys if not are_same(mine.get(key, ABSENT), other.get(key, ABSENT))]


def _read_configuration(run: Run) -> dict[str, Any]:
    """Return the values in the logged configuration that the log lists as hyperparameters, by dotted key."""
    names, tree = (run.details.provenance.get(key) for key in ("hyperparameters", "config"))
    settings: dict[str, Any] = {}
    for name in names if isinstance(names, list) else ():
        section, _, key = str(name).rpartition(".")
        inside = tree.get(section) if section and isinstance(tree, dict) else tree
        if isinstance(inside, dict) and key in inside:
            settings[str(name)] = inside[key]
    return settings


def _unite_settings(several: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return each value if it is the same in all settings, else how often there is each."""
    united = {}
    for key in dict.fromkeys(key for settings in several for key in settings):
        values = [settings.get(key, ABSENT) for settings in several]
        counts, distinct = Counter(map(identity, values)), {identity(value): value for value in reversed(values)}
        varied = Varied(tuple((distinct[each], count) for each, count in counts.items()))
        united[key] = varied if len(counts) > 1 else values[0]
    return united
