"""Check result logs of MLPerf HPC.

On the command line it is `python -m compliance.check logs/`; from Python:

>>> from compliance import check_logs
>>> report = check_logs(["results/"], profile="strict")   # doctest: +SKIP
>>> report.verdict, report.exit_code                      # doctest: +SKIP
('PASS', 0)
"""

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

from typing import TYPE_CHECKING, Any  # noqa: E402

from common.version import VERSION as __version__  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compliance.model.report import Report

__all__ = ["__version__", "check_logs"]


def check_logs(paths: "Iterable[str | os.PathLike[str]] | os.PathLike[str] | str", **options: Any) -> "Report":
    """Return the report on logs, folders, packages or repositories; the options are those of `engine.Options`.

    Nothing is written. A path that does not exist gives a finding, like any unreadable log.
    Raises TypeError for an option that does not exist.
    """
    from compliance.engine import Options, check_paths  # whoever imports only a part does without the others

    several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    return check_paths(several, Options(**options))
