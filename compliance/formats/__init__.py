"""The formats of a report: `FORMATS[name](report, style)` returns its text, with a final newline.

A format's module is imported on first use: the check of one log must start within hundredths of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from compliance.formats.style import Style

if TYPE_CHECKING:
    from compliance.model.report import Report

__all__ = ["FORMATS", "Style"]


def _import_late(module: str, function: str = "render") -> Callable[[Report, Style], str]:
    def render(report: Report, style: Style) -> str:
        from importlib import import_module  # here, as the imports of the formats themselves

        text: str = getattr(import_module(f"compliance.formats.{module}"), function)(report, style)
        return text

    return render


FORMATS: Final[dict[str, Callable[[Report, Style], str]]] = {
    "text": _import_late("text"),
    "json": _import_late("json"),
    "junit": _import_late("ci", "render_junit"),
    "sarif": _import_late("ci", "render_sarif"),
    "github": _import_late("ci", "render_github"),
    "markdown": _import_late("markdown"),
}
