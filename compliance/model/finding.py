"""What a rule found, and the verdict on findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"
SKIPPED: Final = "skipped"
SEVERITIES: Final = (ERROR, WARNING, NOTE, SKIPPED)


class Finding(NamedTuple):
    """One thing that a rule found.

    path, line: where (line counts from 1; 0 means the file or folder as a whole).
    key: the log key that it is about, if any. expected: what would have been right, in words.
    """

    rule: str
    severity: str
    path: str
    line: int
    message: str
    expected: str = ""
    key: str = ""


def worst(findings: Iterable[Finding]) -> str:
    """Return the verdict on findings: FAIL with an error, WARN with a warning, else PASS."""
    severities = {finding.severity for finding in findings}
    return "FAIL" if ERROR in severities else "WARN" if WARNING in severities else "PASS"
