"""What the processes share that compare one benchmark each: their arguments, and how they import the official code."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from parity.rows import Compared, MissingError, Row

Comparison = Callable[[Path, Path], tuple[Iterable[Row], dict[str, str]]]
"""Returns rows and the versions of what was used; the rows end with a MissingError where a part lacks something."""


def main(benchmark: str, compare: Comparison) -> int:
    """Run a comparison on the arguments CLONE RESULT.json ENVIRONMENT, and write its result."""
    clone, result, environment = map(Path, sys.argv[1:])
    warnings.simplefilter("ignore")  # of the official code, which is older than torch
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    rows, versions, missing = list[Row](), dict[str, str](), ""
    try:
        parts, versions = compare(clone, environment)
        for row in parts:
            rows.append(row)
    except MissingError as error:
        missing = str(error)
    Compared(benchmark, tuple(rows), missing, versions).write(result)
    return 0


def use(folder: Path) -> None:
    """Import from a folder of the clone from here on; nothing is written there."""
    if not folder.is_dir():
        raise MissingError(f"{folder} is missing; expected a clone of mlcommons/hpc")
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))


def silent() -> AbstractContextManager[Any]:
    """Return a context in which nothing is printed."""
    return contextlib.redirect_stdout(io.StringIO())


@contextlib.contextmanager
def modules(**stand_ins: Any) -> Iterator[None]:
    """Let imports of these names find the stand-ins, inside the `with`."""
    before = {name: sys.modules.get(name) for name in stand_ins}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


@contextlib.contextmanager
def replaced(module: Any, **stand_ins: Any) -> Iterator[None]:
    """Let a module have the stand-ins under these names, inside the `with`."""
    before = {name: getattr(module, name) for name in stand_ins}
    try:
        for name, value in stand_ins.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)
