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


def _imported_late(name: str) -> Callable[[Report, Style], str]:
    def render(report: Report, style: Style) -> str:
        from importlib import import_module  # here, as the imports of the formats themselves

        text: str = import_module(f"compliance.formats.{name}").render(report, style)
        return text

    return render


FORMATS: Final[dict[str, Callable[[Report, Style], str]]] = {
    name: _imported_late(name) for name in ("text", "json", "junit", "sarif", "github", "markdown")
}
