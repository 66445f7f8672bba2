"""The description of a system: detected fields, and those that the user must add."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from compliance.model.system import OPEN, is_placeholder
from compliance.rules.package import FIELDS
from compliance.rules.system import SYSTEM_TYPE
from submission.system.hardware import Fields
from submission.system.machine import Machine, probe_machine
from submission.system.merge import NOTES

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
    be detected. detected: the detected fields; None: those of this machine. added_notes: texts to add to notes, as
    `subject: text`.
    """
    other_fields = {name: value for name, value in (other or {}).items() if isinstance(value, str) and value.strip()}
    # Notes by people are better than detected ones.
    notes = {name: other_fields[name] for name in NOTES if other_fields.get(name, NOTHING) != NOTHING}
    values = {**other_fields, **(probe_machine(Machine()) if detected is None else detected), **notes}
    values = {
        **values,
        **{name: _add_texts(values.get(name, NOTHING), texts) for name, texts in added_notes.items()},
        **set_fields,
    }
    fields, open_points = {}, []
    for name in ALL_FIELDS:
        question = QUESTIONS.get(name, name.replace("_", " "))
        value = values.get(name, NOTHING if name in NOTES else f"{OPEN}: {question}")
        if is_placeholder(value):
            open_points.append(f"{name}: {question}")
        fields[name] = value
    return Description(fields, open_points)


def _add_texts(note: str, texts: Sequence[str]) -> str:
    """Return a note with texts added, in place of earlier ones of the same subjects."""
    subjects = {text.partition(": ")[0] for text in texts}
    kept = [part for part in note.split("; ") if part != NOTHING and part.partition(": ")[0] not in subjects]
    return "; ".join([*kept, *texts])


def check_names(names: Iterable[str]) -> None:
    """Raise ValueError for the first name that is not a field of a description."""
    unknown = next((name for name in names if name not in ALL_FIELDS), None)
    if unknown is not None:
        raise ValueError(f"a system description has no field {unknown!r}; expected one of {', '.join(ALL_FIELDS)}")


def render_description(fields: Mapping[str, str]) -> str:
    """Return the description as the text of its file: JSON in ASCII."""
    return json.dumps(dict(fields), indent=2) + "\n"
