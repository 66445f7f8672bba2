"""The rules about results, packages and all that is checked together: importing this module registers every rule."""

from compliance.rules import (
    convergence,
    copies,
    implementations,
    metering,
    of_logs,
    package,
    power,
    repository,
    runs,
    same_settings,
    seeds,
    system,
)

__all__ = [
    "convergence",
    "copies",
    "implementations",
    "metering",
    "of_logs",
    "package",
    "power",
    "repository",
    "runs",
    "same_settings",
    "seeds",
    "system",
]
