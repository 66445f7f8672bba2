"""Write the report of a check as one HTML file."""

from __future__ import annotations

import os
from pathlib import Path

from common.files import whole_file
from common.tree import ANYWHERE
from compliance.model.report import Report
from submission.report.page import GENERATOR, render
from submission.summary.rows import rows


class NotAReportError(ValueError):
    """The output is an existing file that is not a page of this command."""


def write_report(report: Report, output: Path, title: str = "", previous: Report | None = None) -> None:
    """Write the page of a report to `output`, atomically; an existing page is replaced.

    report: of a check with `details`. previous: on the previous round, to compare the best results with.
    Raises NotAReportError if `output` is another kind of file, OSError if the page cannot be written, ValueError for
    a report without details.
    """
    if os.path.lexists(output) and GENERATOR.encode() not in ANYWHERE.begin(output, 1024):
        raise NotAReportError(f"{output} exists and is not a page of this command; choose another name")
    text = render(report, str(output.absolute().parent), title, rows(previous) if previous else ())
    output.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(output) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
