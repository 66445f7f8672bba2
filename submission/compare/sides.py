"""The two sides of a comparison: find the results below two paths, and pair them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from common.reference import Reference
from compliance.benchmarks import REFERENCES, reference_of
from compliance.engine import Options, check_paths
from compliance.logs.run import Run
from compliance.model.layout import STRONG, WEAK
from compliance.model.result_set import ResultSet
from compliance.model.score import staging_clock


@dataclass(frozen=True, slots=True)
class Side:
    """The runs of one benchmark on one side, at least one.

    results: their result set, None for single logs.
    """

    path: str
    runs: list[Run]
    results: ResultSet | None = None

    @property
    def name(self) -> str:
        """The name of the result set, or the path of single logs."""
        return self.results.name if self.results else self.path

    @property
    def scaling(self) -> str:
        """Time to train ("strong") or throughput ("weak"); single logs count as the former."""
        return self.results.scaling if self.results else STRONG

    @property
    def variant(self) -> str:
        """The problem variant of the first run."""
        return self.runs[0].variant

    @property
    def reference(self) -> Reference | None:
        """The facts of the benchmark."""
        return reference_of(self.runs[0].benchmark, self.variant)

    @property
    def unit(self) -> str:
        """The unit of convergence: epochs or samples."""
        return self.reference.epoch_unit if self.reference else "epochs"

    @property
    def staging_clock(self) -> str:
        """Whether the runs stage their data "in" the clock or "out" of it; "" if they do not."""
        return staging_clock([run for run in self.runs if run.verdict != "FAIL"] or self.runs)

    @property
    def scale(self) -> int | None:
        """Accelerators of a run (nodes or processors of a system without), None if the runs differ."""
        scales = {run.scale for run in self.runs}
        alone = scales.pop() if len(scales) == 1 else None
        return self.results.instance_scale if self.results else alone

    def mean(self, measure: Callable[[Run], float | None]) -> float | None:
        """Return the mean of a measure over the runs that have it; None if none has."""
        known = [value for value in map(measure, self.runs) if value is not None]
        return fmean(known) if known else None


def pairs(a: str, b: str, benchmark: str | None = None) -> list[tuple[str, Side, Side]]:
    """Return (benchmark, A, B) for each common benchmark: results of the same scaling, else the only ones.

    Raises ValueError without a common benchmark, or if a path has several results of one.
    """
    of_a, of_b = _results(a), _results(b)
    common = [name for name in REFERENCES if name in of_a and name in of_b and benchmark in (None, name)]
    if not common:
        found = "; ".join(f"{path} has {', '.join(of) or 'none'}" for path, of in ((a, of_a), (b, of_b)))
        wanted = f"results of {benchmark}" if benchmark else "results of one benchmark"
        raise ValueError(
            f"expected {wanted} on both sides: {found}. python -m compliance.check shows what the logs are"
        )
    return [
        (name, _only(of_a[name], a, name, scaling), _only(of_b[name], b, name, scaling))
        for name in common
        for scaling in _scalings(of_a[name], of_b[name])
    ]


def _results(path: str) -> dict[str, list[Side]]:
    """Return the results below a path by benchmark; logs outside of result sets form one side per benchmark."""
    report = check_paths([path], Options(allow_mini=True, progress=sys.stderr.isatty(), details=True))
    found: dict[str, list[Side]] = {}
    for results in report.sets:
        if results.benchmark and results.runs:
            found.setdefault(results.benchmark, []).append(Side(results.folder, results.runs, results))
    in_sets = {id(run) for results in report.sets for run in (*results.runs, *results.pruned)}
    alone: dict[str, list[Run]] = {}
    for run in report.runs:
        if run.benchmark and id(run) not in in_sets:
            alone.setdefault(run.benchmark, []).append(run)
    for name, runs in alone.items():
        found.setdefault(name, []).append(Side(path, runs))
    return found


def _scalings(a: list[Side], b: list[Side]) -> list[str]:
    """Return the scalings of both sides; [""], meaning any, if they have none in common."""
    both = {side.scaling for side in a} & {side.scaling for side in b}
    return [scaling for scaling in (STRONG, WEAK) if scaling in both] or [""]


def _only(sides: list[Side], path: str, benchmark: str, scaling: str) -> Side:
    """Return the single result of a scaling; raise ValueError if there are several."""
    fitting = [side for side in sides if side.scaling == (scaling or side.scaling)]
    if len(fitting) > 1:
        folders = ", ".join(side.path for side in fitting)
        raise ValueError(f"{path} has {len(fitting)} results of {benchmark}; name the folder of one: {folders}")
    return fitting[0]
