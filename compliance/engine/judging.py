"""What a check judges by, as one value: the options with what is loaded for them, and the report that is filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from common.console import ACTIVITY
from compliance.engine.log_checker import Options, apply_each
from compliance.model.judging import Finding
from compliance.model.report import Report
from compliance.model.waivers import Waiver, check_waivers
from compliance.rules.catalog import import_log_rules, load_rules
from compliance.rules.rule import Rule


class Judging(Struct, frozen=True):
    """What everything is judged by in one profile; made by `start_judging`, and passed to whatever judges.

    waivers: those of the options, checked, by the name of their result. report: what was found so far.
    """

    options: Options
    waivers: Mapping[str, Waiver]
    report: Report

    def apply_rules(self, rules: tuple[Rule, ...], subject: Any) -> list[Finding]:
        """Return what the rules find that counts; the report notes what is ignored."""
        path = getattr(subject, "folder", getattr(subject, "root", ""))
        ACTIVITY.text = f"judging {path or 'all results'}"
        return self.keep([finding for findings in apply_each(rules, path, subject) for finding in findings])

    def keep(self, findings: Sequence[Finding]) -> list[Finding]:
        """Return the findings that count; the report notes what is ignored."""
        kept, ignored = self.options.filter(findings)
        self.report.ignored.extend(ignored)
        return kept


def start_judging(options: Options) -> Judging:
    """Return what a check with these options judges by; load the rules of your own.

    Raises UsageError if they cannot be loaded, and for a waiver that can mean no result.
    """
    import_log_rules()  # before other processes start, which inherit them
    load_rules(options.rules)
    return Judging(options, check_waivers(options.waivers), options.start_report())
