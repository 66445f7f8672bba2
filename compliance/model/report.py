"""What a check found: the data that every output format shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from compliance.model.judging import (
    BENCHMARK_RULE,
    ERROR,
    FAIL_ON,
    OFFICIAL_RULE,
    PARTIAL,
    PASSING,
    SEVERITIES,
    Finding,
    JudgedRun,
    lower_errors,
    worst,
)
from compliance.model.settings_file import Settings

if TYPE_CHECKING:
    from compliance.model.package import Package  # only packages pay for it
    from compliance.model.result_set import ResultSet


class Report(Struct, frozen=True):
    """The outcome of one check.

    rounds: what each input was judged by: (path, round, why that round, whether it is a log, a result or a package).
    runs: every log, with its own findings in `run.findings`; sets, packages: as found.
    own: findings about no particular log, set or package. own_rules: ids of the rules that are not the suite's, by the
    file or module that they come from. ignored: findings that --ignore or a settings file took out, with the reason.
    against: other trees, with the number of their logs that those of this report were compared with.
    select, ignore: which rules alone count, and which do not, with the reason. fail_on: what fails, see
    `FAIL_ON`.
    unread: files with the name of a log that were not judged.
    settings: the file that was read. official: what the official tool says of the same; None where it was not asked.
    """

    profile: str
    rounds: list[tuple[str, str, str, str]] = []
    runs: list[JudgedRun] = []
    sets: list[ResultSet] = []
    packages: list[Package] = []
    own: list[Finding] = []
    own_rules: dict[str, list[str]] = {}
    ignored: list[tuple[Finding, str]] = []
    against: list[tuple[str, int]] = []
    select: tuple[str, ...] = ()
    ignore: Mapping[str, str] = {}
    fail_on: str = ERROR
    unread: list[str] = []
    settings: Settings = Settings()
    official: Report | None = None

    @property
    def findings(self) -> list[Finding]:
        """All findings: of logs, sets, packages, and between them; in that order."""
        return [finding for _, findings in self.groups() for finding in findings]

    @property
    def of_other_suites(self) -> bool:
        """Whether there are logs, and all are of other suites than MLPerf HPC."""
        return {run.only_rule for run in self.runs} == {BENCHMARK_RULE}

    @property
    def broken_plugins(self) -> list[Finding]:
        """Why plug-ins that logs name cannot be used."""
        return [finding for finding in self.own if finding.rule == BENCHMARK_RULE]

    def groups(self) -> Iterator[tuple[str, list[Finding]]]:
        """Yield (path, findings) for each log, set, package and for the whole, in order."""
        yield from ((run.path, run.findings) for run in self.runs)
        yield from ((results.folder, results.findings) for results in self.sets)
        yield from ((package.root, package.findings) for package in self.packages)
        yield "", self.own

    @property
    def set_aside(self) -> list[Finding]:
        """The ignored findings that only a found settings file ignores."""
        aside, ignored = tuple(self.settings.set_aside), tuple(self.ignore)
        rules = ((finding, finding.rule) for finding, _ in self.ignored)
        return [finding for finding, rule in rules if rule.startswith(aside) and not rule.startswith(ignored)]

    @property
    def tolerated(self) -> set[str]:
        """Paths of the failing runs that are tolerated in their results."""
        return set().union(*(results.tolerated for results in self.sets))

    def counts(self) -> dict[str, int]:
        """Return how many findings there are of each severity."""
        counts = Counter(finding.severity for finding in self.findings)
        return {severity: counts[severity] for severity in SEVERITIES}

    @property
    def verdict(self) -> str:
        """PASS, WARN, INCOMPLETE or FAIL, also of what is set aside; PARTIAL where it passes without some rules."""
        return self.qualify(worst(self.decisive_findings()))

    @property
    def strict_verdict(self) -> str:
        """The verdict without what the official tool says."""
        return self.qualify(worst(finding for finding in self.decisive_findings() if finding.rule != OFFICIAL_RULE))

    def decisive_findings(self) -> Iterator[Finding]:
        """Yield the findings as they count, also those set aside: errors inside a tolerated run are warnings."""
        tolerated = self.tolerated
        for path, findings in self.groups():
            yield from lower_errors(findings) if path in tolerated else findings
        yield from self.set_aside

    def qualify(self, verdict: str) -> str:
        """Return the verdict on a part of the report; PARTIAL if it passes, but not all rules count."""
        return PARTIAL if verdict in PASSING and (self.select or self.ignore or self.settings.set_aside) else verdict

    def verdict_of(self, results: ResultSet) -> str:
        """Return the verdict on a result with its logs, and what is wrong with it in its package."""
        return self.qualify(worst(results.decisive_findings()))

    @property
    def exit_code(self) -> int:
        """1 if `fail_on` names the verdict, or the severity of a finding, be it set aside, or that runs are missing."""
        failing = FAIL_ON[self.fail_on]
        return int(self.verdict in failing or any(finding.severity in failing for finding in self.decisive_findings()))
