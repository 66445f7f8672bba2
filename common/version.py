"""The name of the suite's distribution, its version, as in setup.cfg, and the order of versions."""

import re
from typing import Any, Final

DISTRIBUTION: Final = "mlperf-hpc-suite"
VERSION: Final = "0.3.0.dev0"
_FORM: Final = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?:\D.{0,40})?")


def version_numbers(version: Any) -> tuple[int, ...]:
    """Return the three numbers by which versions are ordered: (0, 3, 0) for 0.3.0 and for 0.3.0.dev0.

    Anything else, such as None, has no numbers, and thus comes before all versions.
    """
    form = _FORM.fullmatch(version) if isinstance(version, str) else None
    return tuple(int(number or 0) for number in form.groups()) if form else ()
