"""The options of a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compliance.model.case import OFFICIAL, STRICT
from compliance.model.finding import ERROR, Finding
from compliance.model.report import Report
from compliance.model.settings_file import Settings
from compliance.model.waivers import Waiver
from compliance.rules.rule import FAMILIES, prefix


class Options(Struct, frozen=True):
    """How to check.

    round, benchmark, division: forced by the user; otherwise as folders and logs say. select: only rules with
    these ids or prefixes. ignore: ids or prefixes to leave out, each with its reason. waivers: why a convergence test
    may fail, by result (`round/organisation/system/scaling/benchmark`). jobs: processes; 0 for all cores.
    progress: show a bar on standard error. rules: modules and Python files with rules of your own; they stay
    registered for later checks of this process. details: also keep what reports and packages need of each log.
    against: trees of other submissions, whose runs are only compared with those that are checked.
    fail_on: the least severity of a finding that gives the exit status 1. suite_only: rules of your own do not count.
    settings: the file that some of these come from; of a found one, what it ignores is not in `ignore`.
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
    fail_on: str = ERROR
    suite_only: bool = False
    settings: Settings = Settings()

    @property
    def asks_official(self) -> bool:
        """Whether the official tool's verdict is told, too."""
        return self.profile == STRICT

    def make_official(self) -> Options:
        """Return the options for the official tool's verdict on the same logs."""
        options = replace(self, profile=OFFICIAL, against=(), details=False, suite_only=True)
        return replace(options, select=(), ignore={}, settings=Settings())

    def start_report(self, **contents: Any) -> Report:
        """Return a report that says by which options it was made. contents: its other fields."""
        shared = {name: getattr(self, name) for name in ("profile", "select", "ignore", "fail_on", "settings")}
        return Report(**shared, **contents)

    def filter(self, findings: Sequence[Finding]) -> tuple[list[Finding], list[tuple[Finding, str]]]:
        """Return the findings that count, and the ignored ones with the reason."""
        ignore = (*self.ignore.items(), *self.settings.set_aside.items())
        if not self.select and not ignore and not self.suite_only:
            return list(findings), []
        kept, ignored = [], []
        for finding in findings:
            foreign = self.suite_only and prefix(finding.rule) not in FAMILIES
            if foreign or (self.select and not finding.rule.startswith(self.select)):
                continue
            reason = next((why for id_, why in ignore if finding.rule.startswith(id_)), None)
            if reason is not None:
                ignored.append((finding, reason))
            else:
                kept.append(finding)
        return kept, ignored
