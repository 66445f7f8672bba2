"""The rules about one log: importing this module registers them."""

from compliance.rules import (
    closed,
    epochs,
    evaluations,
    form,
    order,
    pace,
    plausibility,
    privacy,
    quality,
    settings,
    variant,
)

__all__ = [
    "closed",
    "epochs",
    "evaluations",
    "form",
    "order",
    "pace",
    "plausibility",
    "privacy",
    "quality",
    "settings",
    "variant",
]
