"""Compare the configuration of a run with what the closed division asks of it. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from common.reference import Closed, Reference
from common.version import VERSION


class Departure(NamedTuple):
    """A key with a value that the closed division does not allow; row: what it asks of the key."""

    row: Closed
    value: Any


class Comparison(NamedTuple):
    """What a configuration says of the keys that its version of the suite has.

    refused: keys with other values. missing: keys that it lacks. unknown: keys that this version does not have.
    """

    refused: list[Departure]
    missing: list[str]
    unknown: list[str]


def value_of(config: Any, key: str) -> Any:
    """Return the value of a dotted key; raise LookupError if the configuration lacks it, whatever it contains."""
    for name in key.split("."):
        if not isinstance(config, Mapping):
            raise LookupError(key)
        config = config[name]
    return config


def compare(config: Mapping[str, Any], reference: Reference, round_: str, version: Any = VERSION) -> Comparison:
    """Return how a resolved configuration, as in a log's provenance, compares with the closed division of a round.

    version: of the suite, as the log states it. Never raises: configuration and version may come from a log, so that
    nothing is known of them.
    """
    existing = reference.closed_in(version)
    rows = {row.key: row for row in existing if round_ in row.rounds}
    # Keys of other versions are asked too, if they are there: stating another version does not avoid them.
    all_rows = {row.key: row for row in reference.closed if round_ in row.rounds} | rows
    known = {row.key for row in existing}
    values = _flattened(config, known | all_rows.keys())
    stated = [Departure(row, values[key]) for key, row in all_rows.items() if key in values]
    return Comparison(
        [departure for departure in stated if not departure.row.allowed.allows(departure.value)],
        [key for key in rows if key not in values],
        [key for key in values if key not in known],
    )


def _flattened(config: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    """Return the values of a configuration by dotted key; only sections that have known keys are opened."""
    sections = {key[:at] for key in known for at, letter in enumerate(key) if letter == "."}
    found: dict[str, Any] = {}
    stack: list[tuple[str, Any]] = [("", config)]
    while stack:
        dotted, value = stack.pop()
        if isinstance(value, Mapping) and (not dotted or dotted in sections):
            prefix = f"{dotted}." if dotted else ""
            stack += [(prefix + (repr(name) if "." in str(name) else str(name)), item) for name, item in value.items()]
        else:
            found[dotted] = value
    return found
