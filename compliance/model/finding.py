"""What a rule found, and the verdict on findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"
SKIPPED: Final = "skipped"
SEVERITIES: Final = (ERROR, WARNING, NOTE, SKIPPED)
PASS: Final = "PASS"
WARN: Final = "WARN"
INCOMPLETE: Final = "INCOMPLETE"
FAIL: Final = "FAIL"
PARTIAL: Final = "PARTIAL"
"""What takes the place of PASS and WARN where rules were left out."""
PASSING: Final = (PASS, WARN, PARTIAL)
"""The verdicts that a result may be submitted with."""
BENCHMARK_RULE = "SET02"
"""The rule that a log names a benchmark."""
OFFICIAL_RULE: Final = "OFFICIAL"
"""The rule that tells where the official tool refuses what the written rules accept."""
SHOWN: Final = 20
"""Findings of one kind about a package that are shown one by one."""
LISTED: Final = 5
"""Names that a message lists."""


class Finding(NamedTuple):
    """One thing that a rule found.

    path, line: where (line counts from 1; 0 means the file or folder as a whole).
    key: the log key that it is about, if any. expected: what would have been right, in words.
    incomplete: of an error that says only that runs are missing, which their submitter can still make.
    fix: how to fix this one, where the rule's own text does not fit; cause: the rule whose finding it follows from.
    """

    rule: str
    severity: str
    path: str
    line: int
    message: str
    expected: str = ""
    key: str = ""
    incomplete: bool = False
    fix: str = ""
    cause: str = ""


def lower_errors(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings of a tolerated run as they count for the verdict: errors are warnings."""
    for finding in findings:
        yield finding._replace(severity=WARNING) if finding.severity == ERROR else finding


def worst(findings: Iterable[Finding]) -> str:
    """Return the verdict: FAIL with an error, INCOMPLETE if runs are missing, WARN with a warning, else PASS."""
    kinds = {(finding.severity, finding.incomplete) for finding in findings}
    if (ERROR, False) in kinds:
        return FAIL
    if (ERROR, True) in kinds:
        return INCOMPLETE
    return WARN if any(severity == WARNING for severity, _ in kinds) else PASS


def few(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield the first findings, and a count of the others."""
    kept = list(findings)
    yield from kept[:SHOWN]
    if len(kept) > SHOWN:
        yield kept[SHOWN]._replace(message=f"and {len(kept) - SHOWN} more such findings, starting with this one")


def listed(names: Sequence[object], most: int = LISTED) -> str:
    """Return the first names, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more
