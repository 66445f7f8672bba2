"""Style options, the same for every format."""

from typing import NamedTuple


class Style(NamedTuple):
    """How a report is shown.

    color: with the colours of a terminal (text only). width: of lines; None: only prose is wrapped (text only).
    verbose: collapse nothing; quiet: show only what fails, and the verdict (both text only).
    base: folder that paths are shown relative to; "" for none.
    """

    color: bool = False
    width: int | None = None
    verbose: bool = False
    base: str = ""
    quiet: bool = False
