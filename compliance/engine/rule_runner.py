"""Apply rules to what they are about; a rule that fails itself is an error of the check, never silent, nor its end."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from typing import Any

from compliance.model.finding import Finding
from compliance.rules.rule import Rule


def apply_each(rules: Iterable[Rule], path: str, *subject: Any) -> list[list[Finding]]:
    """Return what each rule finds; path: where to report that a rule itself failed.

    What a rule prints goes to standard error: a report may be on standard output.
    """
    with redirect_stdout(sys.stderr):
        return [_apply_rule(rule, path, subject) for rule in rules]


def _apply_rule(rule: Rule, path: str, subject: tuple[Any, ...]) -> list[Finding]:
    try:
        findings = list(rule.check(*subject))  # type: ignore[attr-defined]  # every kind of rule has it
        unexpected = (
            next((finding for finding in findings if not isinstance(finding, Finding)), None) if findings else None
        )
        if unexpected is None:
            return findings
        reason = f"check yields {unexpected!r}; expected self.finding(…) or self.skipped(…)"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the rule raises, SystemExit too
        reason = f"{_failing_line(rule, error)}{error!r}"
    advice = "; please report it" if rule.is_suite_rule() else ""
    return [rule.finding(path, 0, f"the rule itself failed: {reason}{advice}")]


def _failing_line(rule: Rule, error: BaseException) -> str:
    """Return `line 7: `, the last line of the rule's file that the error passed through; "" if it is unknown."""
    file = getattr(getattr(type(rule).check, "__code__", None), "co_filename", "")  # type: ignore[attr-defined]
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}: " if line else ""
