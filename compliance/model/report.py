"""What a check found: the data that every output format shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from compliance.model.finding import ERROR, PASSING, SEVERITIES, WARNING, Finding, worst
from compliance.model.judged_run import JudgedRun
from compliance.model.layout import STRONG
from compliance.model.package import Package
from compliance.model.result_set import ResultSet


class Report(Struct, frozen=True):
    """The outcome of one check.

    rounds: what each input was judged by: (path, round, why that round).
    runs: every log, with its own findings in `run.findings`; sets, packages: as found.
    own: findings about no particular log, set or package. own_rules: ids of the rules that are not the suite's, by the
    file or module that they come from. ignored: findings that --ignore took out, with the reason.
    against: other trees, with the number of their logs that those of this report were compared with.
    """

    profile: str
    rounds: list[tuple[str, str, str]] = []
    runs: list[JudgedRun] = []
    sets: list[ResultSet] = []
    packages: list[Package] = []
    own: list[Finding] = []
    own_rules: dict[str, list[str]] = {}
    ignored: list[tuple[Finding, str]] = []
    against: list[tuple[str, int]] = []

    @property
    def findings(self) -> list[Finding]:
        """All findings: of logs, sets, packages, and between them; in that order."""
        return [finding for _, findings in self.groups() for finding in findings]

    def groups(self) -> Iterator[tuple[str, list[Finding]]]:
        """Yield (path, findings) for each log, set, package and for the whole, in order."""
        for run in self.runs:
            yield run.path, run.findings
        for results in self.sets:
            yield results.folder, results.findings
        for package in self.packages:
            yield package.root, package.findings
        yield "", self.own

    @property
    def tolerated(self) -> set[str]:
        """Paths of tolerated failing runs: one per time-to-train result.

        The official tool also allows one per throughput result, and never reads pruned logs or folders of other names.
        """
        paths = set()
        for results in self.sets:
            may_fail = not (results.loose or results.foreign) and (results.scaling == STRONG or not results.strict)
            if may_fail and len(results.failing) == 1:
                paths.add(results.failing[0].path)
            if not results.strict:
                paths.update(run.path for run in results.pruned)
            if results.unchecked:
                paths.update(run.path for run in results.runs)
        return paths

    def counts(self) -> Counter[str]:
        """Return how many findings there are of each severity."""
        counts = Counter(dict.fromkeys(SEVERITIES, 0))
        counts.update(finding.severity for finding in self.findings)
        return counts

    @property
    def verdict(self) -> str:
        """PASS, WARN, INCOMPLETE or FAIL; errors inside a tolerated run count as warnings."""
        tolerated = self.tolerated
        deciding = [
            finding._replace(severity=WARNING) if finding.severity == ERROR and path in tolerated else finding
            for path, findings in self.groups()
            for finding in findings
        ]
        return worst(deciding)

    @property
    def exit_code(self) -> int:
        """0 if nothing fails or is missing, else 1."""
        return 0 if self.verdict in PASSING else 1
