"""The formats of a report: `FORMATS[name](report, style)` returns its text, with a final newline.

A format's module is imported on first use: the check of one log must start within hundredths of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from compliance.formats.style import Style

if TYPE_CHECKING:
    from compliance.model.report import Report


def _render(module: str, function: str, report: Report, style: Style) -> str:
    from importlib import import_module  # here, as the imports of the formats themselves

    text: str = getattr(import_module(f"compliance.formats.{module}"), function)(report, style)
    return text


FORMATS: Final[dict[str, Callable[[Report, Style], str]]] = {
    "text": partial(_render, "text", "render"),
    "json": partial(_render, "json", "render"),
    "junit": partial(_render, "ci", "render_junit"),
    "sarif": partial(_render, "ci", "render_sarif"),
    "github": partial(_render, "ci", "render_github"),
    "markdown": partial(_render, "markdown", "render"),
}
