"""The families of rules: what each prefix of an id is about, and the ids that no rule may take."""

from __future__ import annotations

from typing import Final

FAMILIES: Final = {
    "FRM": "The form of a log file: bytes, lines, records, times",
    "ORD": "The course of a run: its events, epochs and evaluations, their order and their times",
    "PKG": "A submission folder: layout, names, system descriptions, implementations, and its place in a repository",
    "POW": "Power files: measuring is optional, but covers all runs of a result and all nodes of a run",
    "PRV": "Personal data and secrets: mail addresses, home directories, private keys, tokens",
    "QUA": "The quality that a run reached",
    "RCP": "Convergence: the comparison with the reference convergence points (RCP), and the resulting factors",
    "RUN": "The runs of one result: their number, what they share, where they differ, how they fit the system",
    "SET": "What a log states: who submits what, with which settings, on which data and variant of the problem",
}
"""What the rules with a prefix are about. A rule of your own takes a prefix that is not in this table."""

RETIRED: Final = frozenset(
    "PKG12 PKG13 PKG14 PKG15 PKG16 PKG17 PKG18 PKG19 PKG22 PKG23 PKG24 PKG29 PKG34".split(),
)
"""Ids that are retired or were never assigned: a report of another year may name them, so that none is used again."""


def prefix(id_: str) -> str:
    """Return the capital letters that a rule's id begins with: `RUN` of `RUN03`."""
    return id_.rstrip("0123456789")
