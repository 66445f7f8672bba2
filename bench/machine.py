"""The machine on which a measurement runs, without anything that names it."""

from __future__ import annotations

import os
import platform
import sys
from datetime import date
from pathlib import Path
from typing import Any

# This tree, and before the folder of this file, whose modules have names of packages.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.provenance import host


def cores() -> int:
    """Return the cores that this process may use."""
    return int(host()["usable_cores"])


def about() -> dict[str, Any]:
    """Return the date, the kind of machine, Python's version, and how busy the machine is without us."""
    return {
        "date": date.today().isoformat(),
        "machine": f"{cores()} cores, {host()['cpu']}",
        "python": platform.python_version(),
        "load": os.getloadavg()[1],
    }


def cores_of(found: dict[str, Any]) -> int:
    """Return the cores of the machine that `about` described."""
    return int(found["machine"].split()[0])
