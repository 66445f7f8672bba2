"""Write the report of a check as one HTML file."""

from __future__ import annotations

import os
from pathlib import Path

from common.files import whole_file
from compliance.model.report import Report
from submission.report.page import GENERATOR, render


class NotAReportError(ValueError):
    """There is another file where the page should go."""


def write_report(report: Report, output: Path, title: str = "") -> None:
    """Put the page of a report at `output`, in one step; a page that was there before is replaced.

    The report is of a check with `details`. Raises NotAReportError if another file is there, OSError if the
    page cannot be written, ValueError for a report without details.
    """
    if os.path.lexists(output) and not _is_ours(output):
        raise NotAReportError(f"{output} is there and no page of this command; choose another name")
    text = render(report, str(output.absolute().parent), title)
    output.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(output) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")


def _is_ours(path: Path) -> bool:
    """Tell whether a file is a page that this command made."""
    with open(path, "rb") as file:
        return GENERATOR.encode() in file.read(1024)
