"""The formats of a report: `FORMATS[name](report, style)` returns its text, with a last line end.

A format's module is imported when it is first used: a check of one log starts in hundredths of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from compliance.model.report import Report

__all__ = ["FORMATS", "Style"]


@dataclass(frozen=True, slots=True)
class Style:
    """How a report is shown.

    color: with the colours of a terminal (text only). width: columns to wrap prose at (text only).
    verbose: nothing is collapsed (text only). base: folder that shown paths are relative to; "" for none.
    """

    color: bool = False
    width: int = 100
    verbose: bool = False
    base: str = ""


def _imported_late(name: str) -> Callable[[Report, Style], str]:
    def render(report: Report, style: Style) -> str:
        from importlib import import_module  # here, as the imports of the formats themselves

        text: str = import_module(f"compliance.formats.{name}").render(report, style)
        return text

    return render


FORMATS: Final[dict[str, Callable[[Report, Style], str]]] = {
    name: _imported_late(name) for name in ("text", "json", "junit", "sarif", "github", "markdown")
}
