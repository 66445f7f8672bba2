"""System descriptions: the files systems/<system>.json of a submission."""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache, partial
from typing import Any, NamedTuple

from msgspec import Struct

from common.command import describe_reason
from common.file_kind import find_kind
from common.tree import ANYWHERE, Tree
from common.values import are_same, as_count
from compliance.logs.file_kind import find_encoding

OPEN = "TO BE FILLED IN"
"""Start of a value that must still be filled in by hand."""
STATUSES = {
    "onprem": ("onprem",),
    "cloud": ("cloud",),
    "preview": ("preview",),
    "research": ("research",),
    "available": ("onprem", "cloud"),
    "available on-premise": ("onprem",),
    "available cloud": ("cloud",),
    "rdi": ("research",),
    "research, development, or internal (rdi)": ("research",),
}
"""Each status of a description, in lower case, with the values of submission_status that agree with it."""
_PLACEHOLDER = re.compile(
    rf"PLACEHOLDER|{OPEN}|Umbrella Corp|\b(?:TODO|FIXME|TBD|TBA)\b|<(?!https?:)[^>]+>|your[ _-]?(?:org|company|name)"
    r"|^\W*(?:x{3,}|\?+|name|org(?:ani[sz]ation)?|to be (?:defined|determined|done))\W*$",
    re.IGNORECASE,
)

MAX_DESCRIPTION_BYTES = 4 << 20
NUMBERS = {
    "number_of_nodes": "16",
    "accelerators_per_node": "4",
    "host_processors_per_node": "2",
    "host_memory_capacity": "512 GB",
    "accelerator_memory_capacity": "80 GB",
    "host_processor_frequency": "2.45 GHz",
    "accelerator_frequency": "1410 MHz",
}
"""The fields of a description with a number, and an example of each: a count, or a quantity with its unit."""
_COUNT = r"(?is)\s*(\d{1,15})(?:\s*|\s*\(.*|\s+(?!(?:x|k|hundred|thousand|million|billion|dozen)\b)[^\W\d_]\D*)"
"""A count and a remark on it, not the first digits of another number, as in `32,000`, `32.9`, `32e3`, `32 k`."""


@lru_cache(maxsize=8)
def is_placeholder(text: str) -> bool:
    """Tell whether a text is a placeholder."""
    return _PLACEHOLDER.search(text) is not None


@lru_cache(maxsize=8)
def is_blank(text: str) -> bool:
    """Tell whether a text has no visible letter or digit: empty, blanks, zero-width spaces, only dots."""
    return not any(sign.isalnum() and sign not in "\u115f\u1160\u3164\uffa0" for sign in text)  # letters nobody sees


class RepeatedMember(NamedTuple):
    """A member that an object names again. line: of the last time, which counts. same: the values are equal."""

    name: str
    line: int
    same: bool


class SystemDescription(Struct):
    """A file systems/<system>.json.

    problem: why it could not be read; then `fields` is empty. fix: what to do about it, if that is known.
    encoding: why the official tool cannot read it.
    """

    path: str
    name: str
    fields: dict[str, Any] = {}
    problem: str = ""
    fix: str = ""
    line: int = 0
    repeated: list[RepeatedMember] = []
    encoding: str = ""

    @property
    def division(self) -> str | None:
        """The division, whatever its letter case; None if it names neither closed nor open."""
        word = str(self.fields.get("division", "")).strip().lower()
        return word if word in ("closed", "open") else None

    def text(self, name: str) -> str:
        """Return a field without blanks around it, "" if it is no text."""
        value = self.fields.get(name)
        return value.strip() if isinstance(value, str) else ""

    def count(self, name: str) -> int | None:
        """Return a field as a whole number: 16, "16", "2 (per socket)" or "16 nodes"; None without one up to 10**9."""
        value = self.fields.get(name)
        number = re.fullmatch(_COUNT, value) if isinstance(value, str) else None
        return as_count(int(number.group(1)) if number else value)

    def has_number(self, name: str) -> bool:
        """Tell whether one of NUMBERS is empty, a count (of nodes at least 1), or no number without a unit."""
        text, count = self.text(name), self.count(name)
        if not NUMBERS[name].isdecimal():
            return not text.strip("0") or bool(text.strip("0123456789., "))
        return not text if count is None else count >= int(name == "number_of_nodes")

    @property
    def scale(self) -> int | None:
        """Accelerators of the system; host processors if it has none."""
        nodes = self.count("number_of_nodes")
        each = self.count("accelerators_per_node") or self.count("host_processors_per_node") or 1
        return None if nodes is None else nodes * each


def read_description(path: str, tree: Tree = ANYWHERE) -> SystemDescription:
    """Return the system description in a file of the tree; never raises."""
    description = SystemDescription(path, os.path.basename(path).removesuffix(".json"))
    try:
        data = tree.read(path, MAX_DESCRIPTION_BYTES)
        description.encoding = _foreign_bytes(data)
        if encoding := find_encoding(data):
            raise ValueError(f"has the encoding {encoding}; convert it: iconv -f {encoding[:6]} -t UTF-8")
        text = data.decode("utf-8-sig", "replace")
        fields = json.loads(text, object_pairs_hook=partial(_last_members, text, description.repeated))
        if not isinstance(fields, dict):
            raise ValueError(f"contains a JSON {type(fields).__name__}, not an object")
        description.fields = fields
    except json.JSONDecodeError as error:
        kind = find_kind(data)
        if kind and (kind.fix or not text.lstrip().startswith("{")):
            description.problem, description.fix = f"is {kind.name}, not JSON", kind.fix
        else:
            from common.bad_json import find_fault  # only a bad file pays for it

            description.line, cause, description.fix = find_fault(error)
            description.problem = f"is not valid JSON: {cause}"
    except RecursionError:
        description.problem = "is nested too deeply"
    except (OSError, ValueError) as error:
        description.problem = describe_reason(error) if isinstance(error, OSError) else str(error)
    return description


def _last_members(text: str, repeated: list[RepeatedMember], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object with these members, the last of each name as every reader takes it; note those named again."""
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members and len(repeated) < 20:
            line = text.count("\n", 0, text.rfind(f'"{name}"')) + 1
            repeated.append(RepeatedMember(name, line, are_same(members[name], value)))
        members[name] = value
    return members


def _foreign_bytes(data: bytes) -> str:
    """Return why these bytes are not plain UTF-8, "" if they are."""
    if data.startswith(b"\xef\xbb\xbf"):
        return "begins with a byte order mark"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"has a byte that is not UTF-8 at position {error.start}"
    return ""
