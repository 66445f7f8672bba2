"""The options of a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from compliance.model.case import STRICT
from compliance.model.finding import Finding
from compliance.model.waivers import Waiver


class Options(Struct, frozen=True):
    """How to check.

    round, benchmark, division: forced by the user; otherwise as folders and logs say. select: only rules with
    these ids or prefixes. ignore: ids or prefixes to leave out, each with its reason. waivers: why a convergence test
    may fail, by result (`round/organisation/system/scaling/benchmark`). jobs: processes; 0 for all cores.
    progress: show a bar on standard error. rules: modules and Python files with rules of your own; they stay
    registered for later checks of this process. details: also keep what reports and packages need of each log.
    against: trees of other submissions, whose runs are only compared with those that are checked.
    """

    profile: str = STRICT
    round: str | None = None
    benchmark: str | None = None
    division: str | None = None
    select: tuple[str, ...] = ()
    ignore: Mapping[str, str] = {}
    allow_mini: bool = False
    waivers: Mapping[str, Waiver | str] = {}
    jobs: int = 0
    progress: bool = False
    rules: tuple[str, ...] = ()
    details: bool = False
    against: tuple[str, ...] = ()

    def ignores(self, rule: str) -> bool:
        """Tell whether the findings of a rule are ignored."""
        return rule.startswith(tuple(self.ignore))

    def filter(self, findings: Sequence[Finding]) -> tuple[list[Finding], list[tuple[Finding, str]]]:
        """Return the findings that count, and the ignored ones with the reason."""
        if not self.select and not self.ignore:
            return list(findings), []
        kept, ignored = [], []
        for finding in findings:
            reason = next((why for id_, why in self.ignore.items() if finding.rule.startswith(id_)), None)
            if reason is not None:
                ignored.append((finding, reason))
            elif not self.select or finding.rule.startswith(self.select):
                kept.append(finding)
        return kept, ignored
