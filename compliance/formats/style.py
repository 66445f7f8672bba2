"""Style options, the same for every format."""

from typing import NamedTuple


class Style(NamedTuple):
    """How a report is shown.

    color: with the colours of a terminal (text only). width: columns to wrap prose at (text only).
    verbose: collapse nothing; quiet: show only what fails, and the verdict (both text only).
    base: folder that paths are shown relative to; "" for none.
    """

    color: bool = False
    width: int = 100
    verbose: bool = False
    base: str = ""
    quiet: bool = False
