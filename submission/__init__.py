"""Make, summarise and report submission packages; compliance judges them."""

import os  # nothing but these two before the call below: Python would look for it in the current folder
import sys


def _leave_current_folder() -> None:
    """Look for no module in the current folder, unless this package is in it: what is checked may be there.

    `python -m` looks there first. Each package has this code itself: an import of it would look there, too.
    """
    # A Python without `orig_argv` is too old, which `common` says.
    names = (word.split(".")[0] for word in getattr(sys, "orig_argv", [__name__]))
    is_this_package = any(name in (__name__, f"-m{__name__}") for name in names)
    if not is_this_package or sys.argv[:1] != ["-m"] or getattr(sys.flags, "safe_path", False):
        return
    if os.path.realpath(os.path.join(sys.path[0], __name__)) != os.path.dirname(os.path.realpath(__file__)):
        del sys.path[0]


_leave_current_folder()

import common  # noqa: E402, F401  (which says where Python is too old for the others)
