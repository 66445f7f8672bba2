"""The rule that tells, beside the strict verdict, what the committee's tool would refuse."""

from __future__ import annotations

import os
from collections.abc import Iterator

from common.record import group_pairs
from compliance.model.judging import OFFICIAL_RULE, WARNING, Finding, listed
from compliance.rules.rule import RULES, Rule


class OfficialVerdict(Rule, strict_only=True):
    """The committee's checker accepts what the written rules accept."""

    id = OFFICIAL_RULE
    severity = WARNING
    cite = "mlperf-logging 4.1.68, mlperf_logging.package_checker and compliance_checker"
    differs = "this is what the profile official says"
    why = "A result is submitted to the committee's tool, which also refuses some logs that break no written rule."
    fix = "Change what the tool refuses, or ask the committee to accept it; --profile official shows all its findings."
    bad = (
        lambda package: (
            package("deepcam").edit(1, lambda log: log.set("seed", "11")).edit(2, lambda log: log.set("seed", "12"))
        ),
    )

    def check(self, refused: list[Finding], failing: str = "") -> Iterator[Finding]:
        """Yield a warning for each folder and rule of the profile official.

        refused: the causes that fail in it. failing: names of logs that fail by the written rules, too, but may.
        """
        if failing:
            rules = listed(list(dict.fromkeys(finding.rule for finding in refused)))
            message = f"the committee's checker refuses the whole result because of {failing} ({rules})"
            fix = f"Repair {failing}, or repeat the run; that tool does not accept every run that may fail."
            yield self.finding(refused[0].path, 0, message, refused[0].expected, refused[0].key, fix=fix)
            return
        kinds = group_pairs(((finding.rule, os.path.dirname(finding.path)), finding) for finding in refused)
        for (rule, _), findings in kinds.items():
            first, keys = findings[0], listed(list(dict.fromkeys(finding.key for finding in findings if finding.key)))
            subject = f"{rule} ({keys})" if keys else rule
            more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
            message = f"the committee's checker refuses this: {subject}: {first.message}{more}"
            fix = first.fix or RULES[rule].fix
            yield self.finding(first.path, first.line, message, first.expected, first.key, fix=fix)
