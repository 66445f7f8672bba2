"""Report results as one HTML file: scores, how they were computed, charts and findings.

>>> from submission.report import write_report
>>> report = compliance.check_logs(["results/"], details=True)              # doctest: +SKIP
>>> write_report(report, Path("report.html"), title="Our round")       # doctest: +SKIP
"""

from submission.report.page import write_report

__all__ = ["write_report"]
