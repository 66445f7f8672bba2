"""Provenance on the page: that of a package, and that in the logs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from common.data.manifest import ManifestError
from compliance.model.layout import PROVENANCE_FILE
from compliance.model.provenance import Provenance, read_provenance
from submission.results.page.html import Html, disclosure, element, shorten_end, table

MAX_ROWS: Final = 400
MAX_TEXT: Final = 300
MAX_DEPTH: Final = 12
HASH_CHARACTERS: Final = 12


def provenance_of(root: str) -> tuple[Provenance | None, str]:
    """Return the provenance of a package, and the problem if it cannot be read; (None, "") without provenance."""
    try:
        return read_provenance(Path(root)), ""
    except (ManifestError, OSError) as error:
        return None, str(error).replace(root, "").lstrip(f"/{os.sep}") or "cannot be read"


def package_provenance(provenance: Provenance) -> Html:
    """Return the provenance of a package as tables: the package, its logs and configurations."""
    state = "complete" if provenance.complete else "incomplete"
    said = [("package", f"{state}, {len(provenance.files)} files recorded")]
    said += list(provenance.incomplete.items())
    said += [(name, f"sources {_short(found)}") for name, found in provenance.implementations.items()]
    logs = [
        (
            name,
            _text(record.seed),
            _short(provenance.files[name].sha256 if name in provenance.files else None),
            _short(record.source_sha256),
            _short(record.git_revision),
            _short(record.configuration),
            "yes" if record.redaction else "",
        )
        for name, record in provenance.logs.items()
    ]
    head = ("log", "seed", "hash", "sources", "revision", "configuration", "redacted")
    parts = [table(("item", "state"), said, "The package", 2), table(head, logs[:MAX_ROWS], "Logs", len(head))]
    parts += [_more_rows(len(logs))]
    parts += [
        facts_table(f"Configuration {_short(name)}", list(facts(found)))
        for name, found in list(provenance.configurations.items())[:MAX_ROWS]
    ]
    return disclosure(f"Provenance ({PROVENANCE_FILE})", *parts)


def _short(text: str | None) -> str:
    """Return the first characters of a hash."""
    return "–" if text is None else text[:HASH_CHARACTERS]


def _text(value: Any) -> str:
    """Return a JSON value as text of bounded length."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shorten_end(text, MAX_TEXT)


def _more_rows(number: int) -> Html:
    return element("p", f"and {number - MAX_ROWS} more") if number > MAX_ROWS else Html("")


def facts(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield (dotted name, text) of all plain values inside a JSON value."""
    if isinstance(value, Mapping) and value and depth < MAX_DEPTH:
        for key, inside in value.items():
            yield from facts(inside, f"{name}.{key}" if name else str(key), depth + 1)
    else:
        yield name, _text(value)


def shared_facts(several: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the facts of several provenances, with the number of values for those that differ."""
    found = [dict(facts(one)) for one in several if one]
    names = dict.fromkeys(name for one in found for name in one)
    shared = []
    for name in names:
        values = {one.get(name, "") for one in found}
        shared.append((name, values.pop() if len(values) == 1 else f"differs: {len(values)} values"))
    return shared


def facts_table(summary: str, rows: Sequence[tuple[str, str]]) -> Html:
    """Return the facts as a table that opens after a click."""
    return disclosure(summary, table(("fact", "value"), rows[:MAX_ROWS], summary, 2), _more_rows(len(rows)))
