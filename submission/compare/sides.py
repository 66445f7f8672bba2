"""The two sides of a comparison: which results two paths hold, and which of them belong together."""

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


@dataclass(frozen=True, slots=True)
class Side:
    """The runs of one benchmark on one side, at least one.

    results: the set that they are, None for logs judged one by one.
    """

    path: str
    runs: list[Run]
    results: ResultSet | None = None

    @property
    def name(self) -> str:
        """How a report calls the result; the path of what is no result."""
        return self.results.name if self.results else self.path

    @property
    def scaling(self) -> str:
        """Time to train ("strong") or throughput ("weak"); single logs are of the first kind."""
        return self.results.scaling if self.results else STRONG

    @property
    def variant(self) -> str:
        """The variant of the problem that the first run is about."""
        return self.runs[0].variant

    @property
    def reference(self) -> Reference | None:
        """The facts of the benchmark."""
        return reference_of(self.runs[0].benchmark, self.variant)

    @property
    def unit(self) -> str:
        """What the runs count until they converge."""
        return self.reference.epoch_unit if self.reference else "epochs"

    @property
    def scale(self) -> int | None:
        """Accelerators of a run (nodes or host processors of a system without), if all runs agree."""
        scales = {run.scale for run in self.runs}
        alone = scales.pop() if len(scales) == 1 else None
        return self.results.instance_scale if self.results else alone

    def mean(self, measure: Callable[[Run], float | None]) -> float | None:
        """Return the mean of what the runs have; None if none has it."""
        known = [value for value in map(measure, self.runs) if value is not None]
        return fmean(known) if known else None


def pairs(a: str, b: str, benchmark: str | None = None) -> list[tuple[str, Side, Side]]:
    """Return (benchmark, A, B) for each benchmark that both paths have: those of the same scaling, else the only ones.

    Raises ValueError if there is none, or a path has several results to choose from.
    """
    of_a, of_b = _results(a), _results(b)
    common = [name for name in REFERENCES if name in of_a and name in of_b and benchmark in (None, name)]
    if not common:
        held = "; ".join(f"{path} holds {', '.join(of) or 'none'}" for path, of in ((a, of_a), (b, of_b)))
        wanted = f"results of {benchmark}" if benchmark else "results of one benchmark"
        raise ValueError(f"expected {wanted} on both sides: {held}. python -m compliance.check says what the logs are")
    return [
        (name, _only(of_a[name], a, name, scaling), _only(of_b[name], b, name, scaling))
        for name in common
        for scaling in _scalings(of_a[name], of_b[name])
    ]


def _results(path: str) -> dict[str, list[Side]]:
    """Return the results below a path by benchmark; logs that form no result are one together."""
    report = check_paths([path], Options(allow_mini=True, progress=sys.stderr.isatty(), details=True))
    found: dict[str, list[Side]] = {}
    for results in report.sets:
        if results.benchmark and results.runs:
            found.setdefault(results.benchmark, []).append(Side(results.folder, results.runs, results))
    members = {id(run) for results in report.sets for run in (*results.runs, *results.pruned)}
    alone: dict[str, list[Run]] = {}
    for run in report.runs:
        if run.benchmark and id(run) not in members:
            alone.setdefault(run.benchmark, []).append(run)
    for name, runs in alone.items():
        found.setdefault(name, []).append(Side(path, runs))
    return found


def _scalings(a: list[Side], b: list[Side]) -> list[str]:
    """Return the scalings that both sides have; "" for any if they have none in common."""
    both = {side.scaling for side in a} & {side.scaling for side in b}
    return [scaling for scaling in (STRONG, WEAK) if scaling in both] or [""]


def _only(sides: list[Side], path: str, benchmark: str, scaling: str) -> Side:
    """Return the one side of a scaling."""
    fitting = [side for side in sides if side.scaling == (scaling or side.scaling)]
    if len(fitting) > 1:
        folders = ", ".join(side.path for side in fitting)
        raise ValueError(f"{path} holds {len(fitting)} results of {benchmark}; name the folder of one: {folders}")
    return fitting[0]
