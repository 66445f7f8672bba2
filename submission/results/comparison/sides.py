"""The two sides of a comparison: find the results below two paths, pair them, and compare their hyperparameters."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import StatisticsError, fmean
from typing import Any, Final

from common.errors import UsageError
from common.values import identity, is_number, same
from compliance.engine.options import Options
from compliance.formats.words import plain
from compliance.logs.run import NOT_HYPERPARAMETERS, Run
from compliance.model.judged_run import JudgedRun
from compliance.model.layout import STRONG, WEAK
from compliance.model.result_set import ResultSet
from compliance.model.score import TimeToTrain, staging_clock
from compliance.rcp.stats import olympic_mean
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
    def organisations(self) -> frozenset[str]:
        """The organisations of the result, several for A+B, in lower case."""
        return frozenset(self.results.organisation.lower().split("+"))

    @property
    def kind(self) -> tuple[tuple[str, Any], ...]:
        """What results that are paired should have in common, the most important first; "" is not told."""
        return (
            ("", self.results.variant),
            ("division", self.results.division),
            ("system", self.results.system),
            ("batch size", self.runs[0].batch_size),
        )

    @property
    def units(self) -> float | None:
        """Accelerators of the whole system (processors of a system without), None if nothing says them."""
        units = self.results.system_scale or self.results.instance_scale
        return units if units and units > 0 else None

    def mean(self, measure: Callable[[JudgedRun], float | None]) -> float | None:
        """Return the mean of a measure over the runs that have it; None if none has."""
        return mean(map(measure, self.runs))

    def score_mean(self, measure: Callable[[JudgedRun], float | None]) -> float | None:
        """Return the mean over the runs that converged, for a time to train without the least and the most."""
        values = [value for run in self.runs if run.converged and (value := measure(run)) is not None]
        score = self.results.score
        if isinstance(score, TimeToTrain) and len(score.rejected) <= MOST_REJECTED:
            return olympic_mean(values, len(score.rejected)) or mean(values)
        return mean(values)


PLAIN_WORD: Final = re.compile(r"[A-Za-z_][\w/-]*")
YAML_KEYWORDS: Final = {"null", "true", "false"}
"""Words that YAML does not read as text."""


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the finite values; None without any, or if it is beyond the range of floats."""
    known = [value for value in values if value is not None and is_number(value)]
    with suppress(OverflowError, StatisticsError):
        return fmean(known)
    return None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two results to compare. why: what they have in common, "" where nothing else could be paired."""

    benchmark: str
    a: Side
    b: Side
    why: str = ""


def pair_results(a: str, b: str, options: Options, benchmark: str | None) -> tuple[list[Pair], list[Side]]:
    """Return the results to compare, by benchmark and scaling, and those that nothing is left to compare with.

    If both sides have results of several organisations, each is compared with results of its own. Among several results
    those are paired first that have most in common: organisation, division, system, batch size, and the nearest number
    of units.
    Raises UsageError without a common benchmark, if nothing can be paired, or for a path that does not exist.
    """
    of_a, of_b = _find_sides(a, options), _find_sides(b, options)
    common = [name for name in of_a if name in of_b and benchmark in (None, name)]
    if not common:
        there = "; ".join(f"{path} has {', '.join(of) or 'none'}" for path, of in ((a, of_a), (b, of_b)))
        wanted = f"results of {benchmark}" if benchmark else "results of one benchmark"
        raise UsageError(
            f"expected {wanted} on both sides: {there}. python -m compliance.check shows what the logs are"
        )
    rounds = all(len({side.organisations for sides in of.values() for side in sides}) > 1 for of in (of_a, of_b))
    matches: list[Pair] = []
    alone: list[Side] = []
    for name in common:
        both = {side.row.scaling for side in of_a[name]} & {side.row.scaling for side in of_b[name]}
        # Without a scaling in common, results of any are paired.
        for scaling in [scaling for scaling in (STRONG, WEAK) if scaling in both] or [""]:
            mine, others = ([side for side in of[name] if scaling in ("", side.row.scaling)] for of in (of_a, of_b))
            pairs = _pair_sides(name, mine, others, rounds)
            used = {id(side) for pair in pairs for side in (pair.a, pair.b)}
            matches += pairs
            alone += [side for side in (*mine, *others) if id(side) not in used]
    if not matches:
        folders = ", ".join(dict.fromkeys((alone[0].path, alone[-1].path)))
        raise UsageError(
            f"no organisation has results in both {a} and {b}; name the folder of one result each, such as {folders}"
        )
    return matches, alone


def _find_sides(path: str, options: Options) -> dict[str, list[Side]]:
    """Return the results below a path by benchmark, and the logs outside of results."""
    report = read_logs([path], options)
    named = {id(results) for results in report.sets}
    sides: dict[str, list[Side]] = {}
    for results in every_set(report):
        if results.benchmark and results.runs:
            names = (results.name, results.folder) if id(results) in named else (path, path)
            sides.setdefault(results.benchmark, []).append(Side(*names, results, row_of(results, report)))
    return sides


def _pair_sides(benchmark: str, a: list[Side], b: list[Side], own: bool) -> list[Pair]:
    """Return the pairs of results of one benchmark and scaling, in the order of A; each result is in one at most.

    own: only results of an organisation they have in common.
    """
    possible = [(mine, theirs) for mine in a for theirs in b if not own or mine.organisations & theirs.organisations]
    partners: dict[int, Side] = {}
    for mine, theirs in sorted(possible, key=lambda pair: _distance(*pair)):
        if id(mine) not in partners and not any(theirs is side for side in partners.values()):
            partners[id(mine)] = theirs
    chosen, several = [(side, partners[id(side)]) for side in a if id(side) in partners], len(a) > 1 or len(b) > 1
    return [Pair(benchmark, *pair, _explain_pair(*pair) if several else "") for pair in chosen]


def _distance(a: Side, b: Side) -> tuple[float, ...]:
    """Return how much two results differ: first in what they have in common, then in the number of units."""
    strangers = not a.organisations & b.organisations
    different = (mine != others for (_, mine), (_, others) in zip(a.kind, b.kind, strict=True))
    units = abs(math.log(a.units / b.units)) if a.units and b.units else math.inf
    return (strangers, *different, units)


def _explain_pair(a: Side, b: Side) -> str:
    """Return what two results have in common, and their numbers of units if these differ."""
    same = [name for (name, mine), (_, others) in zip(a.kind, b.kind, strict=True) if name and mine and mine == others]
    size = "" if a.units == b.units else f"nearest size: {plain(a.units)} and {plain(b.units)} units"
    return "; ".join(filter(None, (f"same {', '.join(same)}" if same else "", size)))


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
    return _unite([{key: value for key, value in items if key not in NOT_HYPERPARAMETERS} for items in stated])


def read_configured(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the settings by configuration key if all logs contain their configuration, as this suite's do; else {}."""
    several = list(map(_read_configuration, runs))
    return _unite(several) if all(several) else {}


def differing(mine: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys that differ or exist on one side only: first those of `mine`, in its order."""
    keys = dict.fromkeys((*mine, *other))
    return [key for key in keys if not same(mine.get(key, ABSENT), other.get(key, ABSENT))]


def changes(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return `key=value`, quoted for a shell, for each key with another value or none in `present`.

    Keys that differ between the runs of `wanted` are left out, because they have no single value.
    """
    keys = (key for key in differing(wanted, present) if key in wanted and not isinstance(wanted[key], Varied))
    return [shlex.quote(f"{key}={yaml_text(wanted[key])}") for key in keys]


def yaml_text(value: Any) -> str:
    """Return a value as one line of YAML; text is quoted only if it would be read as another type."""
    if isinstance(value, str):
        return value if PLAIN_WORD.fullmatch(value) and value.lower() not in YAML_KEYWORDS else json.dumps(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(yaml_text, value))}]"
    if isinstance(value, dict):
        # JSON turns numeric keys, such as the epochs of a schedule, into text.
        keys = (key if re.fullmatch(r"-?\d+", key) else yaml_text(key) for key in value)
        return f"{{{', '.join(f'{key}: {yaml_text(item)}' for key, item in zip(keys, value.values(), strict=True))}}}"
    return json.dumps(value)


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


def _unite(several: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return each value if it is the same in all settings, else how often there is each."""
    united = {}
    for key in dict.fromkeys(key for settings in several for key in settings):
        values = [settings.get(key, ABSENT) for settings in several]
        counts, distinct = Counter(map(identity, values)), {identity(value): value for value in reversed(values)}
        varied = Varied(tuple((distinct[each], count) for each, count in counts.items()))
        united[key] = varied if len(counts) > 1 else values[0]
    return united
