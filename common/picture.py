"""Pictures by matplotlib, an optional package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from common.errors import UsageError
from common.files import whole_file


def new_figure() -> Any:
    """Return an empty figure; UsageError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("--plot needs matplotlib: pip install matplotlib") from error
    return Figure(layout="constrained")


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure to a file, whole or not at all; OSError if it cannot be written, as in an unknown format."""
    try:
        with whole_file(path) as part:
            figure.savefig(part, dpi=120, format=path.suffix[1:])
    except (OSError, ValueError) as error:
        raise OSError(f"{path}: the picture cannot be written: {error}") from error
