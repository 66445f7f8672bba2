"""A command as its user calls it."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return what calls the `main` of a command, checks its exit status, and returns what it wrote: `out` and `err`."""

    def call_main(main: Callable[[list[str]], int], *arguments: object, status: int = 0) -> Any:
        try:
            ended = main([str(argument) for argument in arguments])
        except SystemExit as stopped:  # of argparse
            ended = stopped.code
        said = capfd.readouterr()
        assert ended == status, said.err
        return said

    return call_main
