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
        return [_apply(rule, path, subject) for rule in rules]


def _apply(rule: Rule, path: str, subject: tuple[Any, ...]) -> list[Finding]:
    try:
        found = list(rule.check(*subject))  # type: ignore[attr-defined]  # every kind of rule has it
        unexpected = next((one for one in found if not isinstance(one, Finding)), None) if found else None
        if unexpected is None:
            return found
        reason = f"check yields {unexpected!r}; expected self.found(…) or self.skipped(…)"
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the rule raises, SystemExit too
        reason = f"{_line(rule, error)}{error!r}"
    advice = "; please report it" if rule.is_suite_rule() else ""
    return [rule.found(path, 0, f"the rule itself failed: {reason}{advice}")]


def _line(rule: Rule, error: BaseException) -> str:
    """Return `line 7: `, the last line of the rule's file that the error passed through; "" if it is unknown."""
    file = getattr(getattr(type(rule).check, "__code__", None), "co_filename", "")  # type: ignore[attr-defined]
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}: " if line else ""
