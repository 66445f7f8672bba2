"""Reference convergence points: where they come from, which of them count, and their statistics.

Only the standard library is needed. Source: mlperf-logging 4.1.68, rcp_checker (behaviour: scipy's two-sample t-test
and a bisection over it).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from common.bad_json import load_json
from common.benchmarks import locate_package
from common.reference import FULL, ROUNDS, Reference
from common.rounds import find_round
from common.tree import Tree
from compliance.benchmarks import require_reference
from compliance.rcp.means import olympic_mean

if TYPE_CHECKING:
    from compliance.rcp.table import RcpTable, RecordedPoint

SIGNIFICANCE: Final = 0.05
"""One-sided probability of rejecting a valid result."""


def _central_probability(angle: float, df: int) -> float:
    """Return P(|T| < sqrt(df) tan(angle)) for Student's T with `df` degrees of freedom; its negative below 0.

    Source: Abramowitz & Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term = total = cosine if odd and df > 1 else float(not odd)
    for k in range(3 - (not odd), df - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


@lru_cache(maxsize=256)
def t_quantile(p: float, df: int) -> float:
    """Return the t below which Student's distribution with `df` degrees of freedom has the probability `p`.

    Accurate to 1e-9 relative for 0.0001 < p < 0.9999. ValueError unless 0 < p < 1 and df is a whole number >= 1.
    """
    if not 0 < p < 1 or df != int(df) or df < 1:
        raise ValueError(f"t_quantile needs 0 < p < 1 and whole degrees of freedom >= 1; found p={p}, df={df}")
    low, _ = _bisect(-math.pi / 2, math.pi / 2, lambda angle: _central_probability(angle, df) >= 2 * p - 1)
    return math.sqrt(df) * math.tan(low)


def _bisect(low: float, high: float, is_above: Callable[[float], bool], width: float = 0.0) -> tuple[float, float]:
    """Return the ends of an interval of at most this width, or of neighbouring floats, around a threshold."""
    while high - low > width and low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if is_above(middle) else (middle, high)
    return low, high


def upper_tail(t: float, df: int) -> float:
    """Return P(T > t) for Student's T with `df` degrees of freedom, a whole number >= 1."""
    return (1 - _central_probability(math.atan(t / math.sqrt(df)), df)) / 2


def min_acceptable_mean(mean: float, std: float, n_reference_kept: int, required_runs: int) -> float:
    """Return the smallest mean (unit of `mean`, never below 0) that chance explains at SIGNIFICANCE.

    Student's one-sided t-test between `n_reference_kept` reference runs and the `required_runs` - 2 runs that
    count of a result, both with the spread `std`. The official tool bisects to the same value +- 5e-5.
    ValueError if there are too few runs for a test.
    """
    if std == 0:
        return mean
    n_result_kept = required_runs - 2
    df = n_reference_kept + n_result_kept - 2
    if min(n_reference_kept, n_result_kept, df) < 1:
        raise ValueError(
            f"{n_reference_kept} reference and {n_result_kept} result runs count (lowest and highest left "
            "out); a t-test needs at least 1 of each and 3 in all: record more runs"
        )
    margin = t_quantile(1 - SIGNIFICANCE, df) * std * math.sqrt(1 / n_reference_kept + 1 / n_result_kept)
    return max(0.0, mean - margin)


Mode = Literal["official", "envelope"]


@dataclass(frozen=True, slots=True)
class ReferencePoint:
    """Reference runs at one batch size and their statistics, all in `unit` ("epochs" or "samples").

    epochs: ascending. mean: olympic. std: population, over all runs. min_mean: the lowest acceptable mean of
    a result (closed form). slack: by how much the committee lets a result be below that.
    """

    name: str
    batch_size: int
    epochs: tuple[float, ...]
    hyperparameters: Mapping[str, Any] = field(hash=False)
    mean: float
    std: float
    min_mean: float
    unit: str = "epochs"
    slack: float = 0.0

    @classmethod
    def from_runs(cls, entry: RecordedPoint, unit: str, required_runs: int) -> ReferencePoint:
        """Return the point of a table entry; ValueError if it has too few runs for the statistics."""
        count, mean = len(entry.epochs), olympic_mean(entry.epochs)
        if mean is None:
            raise ValueError("an olympic mean needs at least 3 values: the lowest and the highest are left out")
        centre = math.fsum(entry.epochs) / count
        std = math.sqrt(math.fsum((value - centre) ** 2 for value in entry.epochs) / count)
        minimum = min_acceptable_mean(mean, std, count - 2, required_runs)
        return cls(
            entry.name, entry.batch_size, tuple(sorted(entry.epochs)), entry.hyperparameters, mean, std, minimum, unit
        )

    @property
    def max_speedup(self) -> float:
        """The reference mean by the lowest mean that a result may have."""
        return self.mean / self.min_mean if self.min_mean else math.inf

    def accepts_from(self, mode: Mode) -> float:
        """Return the lowest mean that passes: the closed form, or the digits of the official bisection."""
        if mode == "envelope" or self.std == 0:
            return self.min_mean - self.slack
        return sum(_bisect(0.0, self.mean, lambda middle: middle > self.min_mean, width=1e-4)) / 2 - self.slack


def _line_value(low: ReferencePoint, high: ReferencePoint, batch_size: int, name: str) -> float:
    left, right = getattr(low, name), getattr(high, name)
    slope = (right - left) / (high.batch_size - low.batch_size)
    return float(slope * (batch_size - low.batch_size) + left)


def interpolate(
    low: ReferencePoint, high: ReferencePoint, batch_size: int, required_runs: int, mode: Mode
) -> ReferencePoint:
    """Return the point on the straight line between two others (mean and std by batch size)."""
    mean, std = (_line_value(low, high, batch_size, name) for name in ("mean", "std"))
    runs_counted = 2 * required_runs - (0 if mode == "official" else 2)
    minimum = min_acceptable_mean(mean, std, runs_counted, required_runs)
    name = f"{low.name} .. {high.name}"
    return ReferencePoint(name, batch_size, (), {}, mean, std, minimum, low.unit, low.slack)


def list_points(
    table: RcpTable, path: Path, round_: str = ROUNDS[-1], variant: str = FULL
) -> tuple[ReferencePoint, ...]:
    """Return a table's points of a round and variant, by batch size; ValueError names the file, point and key."""
    points, required_runs = [], require_reference(table.benchmark).runs
    for entry in table.entries:
        if entry.variant == variant and round_ in (entry.rounds or ROUNDS):
            try:
                points.append(ReferencePoint.from_runs(entry, table.unit, required_runs))
            except ValueError as error:
                raise ValueError(f"{path}: point {entry.name!r}, key 'epochs': {error}") from error
    return tuple(sorted(points, key=lambda point: point.batch_size))


@lru_cache(maxsize=64)
def load_points(benchmark: str, round_: str, variant: str = FULL) -> tuple[ReferencePoint, ...]:
    """Return a benchmark's points of a round, by batch size; () where it has none (0.7).

    ValueError for an unknown benchmark or a broken table.
    """
    path = locate_table(require_reference(benchmark))
    return list_points(_read_own_table(path), path, round_, variant)


@lru_cache(maxsize=16)
def _read_own_table(path: Path) -> RcpTable:
    """Return the table, which has the points of all rounds."""
    from compliance.rcp.table import read_table  # only results pay for it

    return read_table(path)


MOST_BYTES: Final = 1 << 20
"""Of a committee's table; the largest has 30 KB."""
SLACK: Final = {"llama31_405b": 46_080}
"""Samples by which a result may be below what chance explains: rcp_checker.py, since round 5.0 of MLPerf Training."""


@lru_cache(maxsize=64)
def load_committee_points(
    folder: str, round_: str, benchmark: str, required_runs: int, unit: str
) -> tuple[ReferencePoint, ...]:
    """Return a benchmark's points of a round of MLPerf Training, by batch size, from the committee's table.

    folder: of the rule files. unit: of the logs, as no table tells it.
    Returns () where there is no table; ValueError for a broken one.
    """
    import msgspec

    from compliance.rcp.table import RecordedPoint

    path = Path(folder).parent / "rcp_checker" / find_round(round_).folder / f"rcps_{benchmark}.json"
    try:
        table = load_json(Tree.at(path.parents[1]).read(path, MOST_BYTES))
        fields = (
            {
                "name": name,
                "batch_size": entry["BS"],
                "epochs": entry.get("samples to converge") or entry["Epochs to converge"],
                "hyperparameters": entry["Hyperparams"],
            }
            for name, entry in table.items()
        )
        entries = msgspec.convert([*fields], list[RecordedPoint])
        slack = SLACK.get(benchmark, 0)
        points = [replace(ReferencePoint.from_runs(entry, unit, required_runs), slack=slack) for entry in entries]
        return tuple(sorted(points, key=lambda point: point.batch_size))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: no table of convergence points ({error!r:.200})") from error


def locate_table(reference: Reference) -> Path:
    """Return the file with the reference convergence points of a benchmark."""
    return locate_package(reference.points.partition("/")[0]).parent / reference.points


def prune(points: Sequence[ReferencePoint], mode: Mode = "envelope") -> tuple[ReferencePoint, ...]:
    """Return the points that results are compared with: the fastest, and larger batches that converge early enough.

    points: at least one, by batch size, each size once. A walk removes each point above the line through neighbours.
    "envelope": then it tests the previous one again, so that the lower convex envelope of (batch size, mean) is left.
    "official": it does not, so some points above the envelope stay.
    """
    fastest = min(points, key=lambda point: point.mean)
    kept, at = [point for point in points if point.batch_size >= fastest.batch_size], 1
    while at < len(kept) - 1:
        low, point, high = kept[at - 1 : at + 2]
        if point.mean <= _line_value(low, high, point.batch_size, "mean"):
            at += 1
        else:
            del kept[at]
            if mode == "envelope":
                at = max(at - 1, 1)
    return tuple(kept)


def compare_hyperparameters(
    point: ReferencePoint | RecordedPoint, logged: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    """Return (key as logged, reference value, logged value) where a log differs from the reference.

    Keys that the log lacks are left out. Numbers agree to 1e-6, also as strings; lists item by item;
    the letter case of opt_name does not matter.
    """
    differing = []
    for name, value in point.hyperparameters.items():
        # The tables spell it differently from the logs.
        key = "batchnorm_group_size" if name == "batchnorm_groupsize" else name
        # Workers say how a run was made, not how it converges.
        if name != "num_workers" and key in logged and not _points_agree(key, value, logged[key]):
            differing.append((key, value, logged[key]))
    return differing


def _points_agree(key: str, reference: Any, logged: Any) -> bool:
    if isinstance(reference, list) and isinstance(logged, list):
        return len(reference) == len(logged) and all(map(_points_agree, [key] * len(logged), reference, logged))
    left, right = _parse_number(reference), _parse_number(logged)
    if left is not None and right is not None:
        return math.isclose(left, right, rel_tol=1e-6)
    if key == "opt_name":
        return str(reference).lower() == str(logged).lower()
    return bool(reference == logged)


def _parse_number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
