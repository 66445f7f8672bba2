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

from common.provenance import git_revision, host


def cores() -> int:
    """Return the cores that this process may use."""
    return int(host()["usable_cores"])


def about() -> dict[str, Any]:
    """Return the date, the commit, the kind of machine, Python's version, and how busy the machine is without us."""
    return {
        "date": date.today().isoformat(),
        "commit": git_revision(),
        "machine": f"{cores()} cores, {host()['cpu']}",
        "python": platform.python_version(),
        "load": os.getloadavg()[1],
    }


def describe_machine(facts: dict[str, Any]) -> str:
    """Return when, with which code and on what `about` was measured, as pages print it."""
    commit, _, dirty = (facts.get("commit") or "").partition("-")
    commit = f", commit {commit[:9]}{'-dirty' if dirty else ''}" if commit else ""
    return f"{facts['date']}{commit}: {facts['machine']}, Python {facts['python']}"


def cores_of(found: dict[str, Any]) -> int:
    """Return the cores of the machine that `about` described."""
    return int(found["machine"].split()[0])
