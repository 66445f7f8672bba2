"""What one forgery of a package is."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from compliance.model.finding import ERROR, WARNING
from tests.conformance.forgeries.package_bases import Package
from tests.conformance.variants.logtext import LogText

Forge = Callable[[Package, random.Random], str | None]
"""Changes a package and returns, for people, what was drawn by chance."""


class Forgery(NamedTuple):
    """A way to forge a package.

    subject: words, one of which is in the message of a finding on it. counts: its severities.
    """

    family: str
    base: str
    description: str
    subject: tuple[str, ...]
    forge: Forge
    counts: tuple[str, ...] = (ERROR, WARNING)


def on_each(
    family: str,
    bases: str,
    description: str,
    subject: tuple[str, ...],
    forge: Forge,
    counts: tuple[str, ...] = (ERROR, WARNING),
) -> list[Forgery]:
    """Return the same forgery on several bases, comma-separated."""
    return [Forgery(family, base.strip(), description, subject, forge, counts) for base in bases.split(",")]


def in_each_log(change: Callable[[LogText, random.Random], str | None]) -> Forge:
    """Return a forgery that changes every log by the same draw."""

    def forge(package: Package, rng: random.Random) -> str | None:
        seed, details = rng.random(), []
        package.edit(lambda log: details.append(change(log, random.Random(seed))))
        return details[0]

    return forge
