"""The data that a node holds if the nodes share a data set evenly, beside the memory and the disk of the node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

AMOUNT: Final = re.compile(r"(?:(\d{1,4})\s*[x×*]\s*)?(\d[\d,]{0,12}(?:\.\d{1,6})?)\s*([KMGTP])(i?)B", re.IGNORECASE)
"""An amount of bytes in a system description: "64 GB", "32GiB", "2x 1.92TB"."""
POWERS: Final = {prefix: power for power, prefix in enumerate("KMGTP", 1)}
CACHEABLE: Final = 0.75
"""Assumed share of a node's memory that can cache files; programs and their buffers have the rest."""
LARGEST: Final = 1e15
"""No node has as much memory or disk: a description that states more means the file system of the whole machine."""


@dataclass(frozen=True, slots=True)
class NodeData:
    """The training and validation sets of a result on one of its nodes, in bytes.

    nodes: of a run. raw: as the network reads the samples; stored: as the files hold them. memory, disk: of a node by
    the system description, None where it does not say.
    """

    nodes: float
    raw: float
    stored: float
    memory: float | None
    disk: float | None

    @property
    def held_by(self) -> str:
        """What can hold the stored data: "memory", else "disk", else "neither"; "" if the memory is unknown."""
        if self.memory is None:
            return ""
        in_memory = self.stored <= CACHEABLE * self.memory
        return "memory" if in_memory else "disk" if self.stored <= (self.disk or 0) else "neither"


def parse_bytes(text: object) -> float | None:
    """Return the bytes that a field of a system description states; None without an amount and its unit.

    The first amount counts, as in "144GB /tmp on a 240GB SSD", and the first ones of parts joined by + are added.
    """
    parts = map(AMOUNT.search, text.split("+")) if isinstance(text, str) else ()
    total = 0.0
    for count, number, prefix, binary in (part.groups() for part in parts if part):
        total += int(count or 1) * float(number.replace(",", "")) * (1024 if binary else 1000) ** POWERS[prefix.upper()]
    return total if 0 < total < LARGEST else None
