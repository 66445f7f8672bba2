"""The system description of this machine: what the machine tells, and what a person must add."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from compliance.model.system import OPEN, is_placeholder
from compliance.rules.package import FIELDS
from compliance.rules.system import SYSTEM_TYPE
from submission.system.machine import Machine, probe

ALL_FIELDS: Final = (*FIELDS[:3], SYSTEM_TYPE, *FIELDS[3:])
"""The members of a description, in order: the 33 that the tools want, and the type that the policy knows."""
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
"""What to fill in, where the name of the member alone does not say it."""
NOTES: Final = ("hw_notes", "sw_notes")
NOTHING: Final = "none"
"""What notes say where there is nothing to note."""


@dataclass(frozen=True, slots=True)
class Description:
    """A system description. fields: every member, in order. open_points: what a person must add, `member: what`."""

    fields: dict[str, str]
    open_points: list[str]


def describe(
    given: Mapping[str, str], other: Mapping[str, object] | None = None, machine: Machine | None = None
) -> Description:
    """Return the description of this machine.

    given: members that are known, which win over what the machine tells. other: another description, for what the
    machine cannot tell. machine: where to look, this machine if left out.
    Raises ValueError for a member that does not exist.
    """
    unknown = [name for name in given if name not in ALL_FIELDS]
    if unknown:
        raise ValueError(f"a system description has no member {unknown[0]!r}; it has {', '.join(ALL_FIELDS)}")
    taken = {name: value for name, value in (other or {}).items() if isinstance(value, str) and value.strip()}
    # A person's notes say more than the machine's.
    notes = {name: taken[name] for name in NOTES if taken.get(name, NOTHING) != NOTHING}
    known = {**taken, **probe(machine or Machine()), **notes, **given}
    fields, open_points = {}, []
    for name in ALL_FIELDS:
        question = QUESTIONS.get(name, name.replace("_", " "))
        value = known.get(name, NOTHING if name in NOTES else f"{OPEN}: {question}")
        if is_placeholder(value):
            open_points.append(f"{name}: {question}")
        fields[name] = value
    return Description(fields, open_points)


def render(fields: Mapping[str, str]) -> str:
    """Return the description as the text of its file: JSON in ASCII."""
    return json.dumps(dict(fields), indent=2) + "\n"
