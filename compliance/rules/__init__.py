"""The rules. Importing this package registers all of them."""

from compliance.rules import (
    convergence,
    epochs,
    form,
    implementations,
    metering,
    order,
    package,
    power,
    privacy,
    quality,
    repository,
    runs,
    settings,
    system,
    variant,
)

__all__ = [
    "convergence",
    "epochs",
    "form",
    "implementations",
    "metering",
    "order",
    "package",
    "power",
    "privacy",
    "quality",
    "repository",
    "runs",
    "settings",
    "system",
    "variant",
]
