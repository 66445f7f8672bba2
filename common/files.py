"""Atomic writing of files, and the name of the file that every run writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LOG_NAME: Final = "result_0.txt"
"""The log of a run, in its folder."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, renamed to `path` at the end of the `with` and removed after an error."""
    part = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)  # a full disk does not say which file it was
        raise
    finally:
        part.unlink(missing_ok=True)
