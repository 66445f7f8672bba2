"""Merge what was detected on several nodes into the fields of one description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from submission.system.hardware import Fields

NOTES_OF: Final = dict.fromkeys(("framework", "other_software_stack", "operating_system"), "sw_notes")
"""The notes that tell that a field differs; those of the others are the hardware's."""
NOTES: Final = ("hw_notes", "sw_notes")
MOST_LISTED: Final = 5
"""Values of a field, and nodes of a value, that a message lists."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that is not the same on all nodes. values: each with its nodes, the written one first; "": unknown."""

    name: str
    values: Mapping[str, Sequence[int]]

    def format_warning(self, names: Sequence[str]) -> str:
        """Return the difference as a line. names: of the nodes."""
        parts = [
            f"{value or 'not detected'} on {_list_nodes([names[node] for node in nodes], len(names))}"
            for value, nodes in list(self.values.items())[:MOST_LISTED]
        ]
        return f"{self.name}: {'; '.join([*parts, *_count_rest(len(self.values))])}"

    def format_note(self, nodes: int) -> str:
        """Return the difference as a text for the notes, "" if the other nodes only lack the value."""
        others = [(value, len(having)) for value, having in self.values.items() if value][1:]
        parts = [f"{value} on {count} of {nodes} nodes" for value, count in others[:MOST_LISTED]]
        return f"{self.name}: {', '.join([*parts, *_count_rest(len(others))])}" if parts else ""


def merge_fields(nodes: Sequence[Fields]) -> tuple[Fields, list[Difference]]:
    """Return the fields of the whole system, and where its nodes differ.

    A field has the value of most nodes that know it, of the first such value in a tie. The number of nodes is counted.
    """
    names = dict.fromkeys(name for fields in nodes for name in fields if name != "number_of_nodes")
    by_value = {name: _by_value([fields.get(name, "") for fields in nodes]) for name in names}
    differences = [Difference(name, values) for name, values in by_value.items() if len(values) > 1]
    merged = {name: next(iter(values)) for name, values in by_value.items()}
    return {"number_of_nodes": str(len(nodes)), **merged}, differences


def collect_notes(differences: Sequence[Difference], nodes: int) -> dict[str, list[str]]:
    """Return the texts about the differences for each field of notes."""
    notes: dict[str, list[str]] = {}
    for difference in differences:
        text = difference.format_note(nodes)
        if text and difference.name not in NOTES:
            notes.setdefault(NOTES_OF.get(difference.name, "hw_notes"), []).append(text)
    return notes


def _by_value(values: Sequence[str]) -> dict[str, list[int]]:
    """Return the nodes with each value, the most frequent value first; that it is unknown comes last."""
    nodes: dict[str, list[int]] = {}
    for node, value in enumerate(values):
        nodes.setdefault(value, []).append(node)
    return dict(sorted(nodes.items(), key=lambda item: (not item[0], -len(item[1]))))


def _list_nodes(names: Sequence[str], total: int) -> str:
    if len(names) > MOST_LISTED:
        return f"{len(names)} of {total} nodes"
    return f"node{'s' * (len(names) > 1)} {', '.join(names)}"


def _count_rest(values: int) -> list[str]:
    return [f"{values - MOST_LISTED} more values"] if values > MOST_LISTED else []
