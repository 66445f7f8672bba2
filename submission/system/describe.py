"""The description of a system: detected fields, those that the user must add, and where the nodes of a job differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from common.command import suggest_name
from common.errors import UsageError
from compliance.model.system import OPEN, STATUSES, SystemDescription, is_placeholder
from compliance.rules.package import FIELDS
from compliance.rules.system import SYSTEM_TYPE, SYSTEM_TYPES
from submission.system.hardware import ACCELERATOR_DETAILS, Fields
from submission.system.machine import Machine, probe_machine

ALL_FIELDS: Final = (*FIELDS[:3], SYSTEM_TYPE, *FIELDS[3:])
"""The fields of a description, in order: the 33 that the official tools require, and the type from the policy."""
QUESTIONS: Final = {
    "submitter": "the organisation, as in the logs",
    "division": "closed or open",
    "status": "cloud, onprem, preview or research",
    SYSTEM_TYPE: "datacenter or edge",
    "system_name": "the name of the system",
    "host_processors_per_node": "how many processors a node has",
    "host_processor_interconnect": "what links the processors, such as UPI or Infinity Fabric",
    "host_memory_configuration": "modules and kind, such as 16x 32 GB DDR5-4800",
    "host_networking_topology": "such as fat tree or dragonfly",
    "accelerator_on-chip_memories": "caches, such as L1 256 KB per SM, L2 50 MB",
    "accelerator_memory_configuration": "such as HBM3",
    "accelerator_interconnect_topology": "such as fully connected",
    "cooling": "such as air or liquid",
    "framework": "such as PyTorch and its version",
}
"""What to fill in, where the name of the field does not say it."""
NOTHING: Final = "none"
"""The value of empty notes."""
NOTES_OF: Final = dict.fromkeys(("framework", "other_software_stack", "operating_system"), "sw_notes")
"""The notes that tell that a field differs; those of the others are the hardware's."""
NOTES: Final = ("hw_notes", "sw_notes")
CHOICES: Final = {
    "division": ("closed", "open"),
    "status": tuple(STATUSES),
    SYSTEM_TYPE: SYSTEM_TYPES,
}
"""The values of the fields that have few."""
MOST_LISTED: Final = 5
"""Values of a field, and nodes of a value, that a message lists."""


@dataclass(frozen=True, slots=True)
class Description:
    """A system description. fields: all, in order. open_points: `field: what`, for the user to fill in."""

    fields: dict[str, str]
    open_points: list[str]


def describe_system(
    set_fields: Mapping[str, str],
    other: Mapping[str, object] | None = None,
    detected: Fields | None = None,
    added_notes: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Description:
    """Return the description of a system.

    set_fields: by the user; they take precedence over detected ones. other: another description, for fields that cannot
    be detected. detected: the detected fields; None: those of this machine. If it has no accelerators, but the user
    states some, all about them is to be filled in. added_notes: texts to add to notes, as `subject: text`.
    """
    detected = probe_machine(Machine()) if detected is None else detected
    stated = set_fields.get("accelerators_per_node", "0")
    if stated != "0" and detected.get("accelerators_per_node") == "0":
        detected = {name: value for name, value in detected.items() if name not in ACCELERATOR_DETAILS}
    other_fields = {name: value for name, value in (other or {}).items() if isinstance(value, str) and value.strip()}
    # Notes by people are better than detected ones.
    notes = {name: other_fields[name] for name in NOTES if other_fields.get(name, NOTHING) != NOTHING}
    values = {**other_fields, **detected, **notes}
    for name, texts in added_notes.items():  # in place of earlier ones of the same subjects
        subjects = {text.partition(": ")[0] for text in texts}
        parts = values.get(name, NOTHING).split("; ")
        kept = [part for part in parts if part != NOTHING and part.partition(": ")[0] not in subjects]
        values[name] = "; ".join([*kept, *texts])
    values |= set_fields
    fields, open_points = {}, []
    for name in ALL_FIELDS:
        question = QUESTIONS.get(name, name.replace("_", " "))
        value = values.get(name, NOTHING if name in NOTES else f"{OPEN}: {question}")
        if is_placeholder(value):
            open_points.append(f"{name}: {question}")
        fields[name] = value
    return Description(fields, open_points)


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError for the first name that is not a field of a description."""
    unknown = next((name for name in names if name not in ALL_FIELDS), None)
    if unknown is not None:
        near = suggest_name(unknown, ALL_FIELDS) or f"; expected one of {', '.join(ALL_FIELDS)}"
        raise UsageError(f"a system description has no field {unknown!r}{near}")


def check_values(fields: Mapping[str, str]) -> None:
    """Raise UsageError for the first value that its field cannot have."""
    for name, choices in CHOICES.items():
        value = fields.get(name)
        if value is not None and value.lower() not in choices:
            raise UsageError(f"{name} is {value!r}{suggest_name(value, choices)}; expected {' or '.join(choices)}")
    name = "number_of_nodes"
    if name in fields and SystemDescription("", "", dict(fields)).count(name) is None:
        raise UsageError(f"{name} is {fields[name]!r}; expected a whole number, such as 2")


def render_description(fields: Mapping[str, str]) -> str:
    """Return the description as the text of its file: JSON in ASCII."""
    return json.dumps(dict(fields), indent=2) + "\n"


# -- the nodes of a job --------------------------------------------------------------------------------------


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
