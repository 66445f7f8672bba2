"""Make, summarise and report submission packages; compliance judges them."""

from __future__ import annotations

import os
import sys


def _leave_current_folder() -> None:
    """Look for no module in the current folder, unless this package is in it: what is checked may be there.

    `python -m` looks there first. Each package has this code itself: an import of it would look there, too.
    """
    is_this_package = any(word.removeprefix("-m").split(".")[0] == __name__ for word in sys.orig_argv)
    if not is_this_package or sys.argv[:1] != ["-m"] or sys.flags.safe_path:
        return
    if os.path.realpath(os.path.join(sys.path[0], __name__)) != os.path.dirname(os.path.realpath(__file__)):
        del sys.path[0]


_leave_current_folder()
