"""The rules about one log: importing this module registers them."""

from compliance.rules import (
    bagging,
    closed,
    epochs,
    evaluations,
    form,
    order,
    pace,
    plausibility,
    pretraining,
    privacy,
    quality,
    settings,
    variant,
)

__all__ = [
    "bagging",
    "closed",
    "epochs",
    "evaluations",
    "form",
    "order",
    "pace",
    "plausibility",
    "pretraining",
    "privacy",
    "quality",
    "settings",
    "variant",
]
