"""Compare the configuration of a run with what the closed division asks of it. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from common.reference import FULL, Reference
from common.settings.keys import Closed, LogValue, closed_rows, logged_values
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


def find_config_class(reference: Reference) -> Any:
    """Return the class of a benchmark's configuration, which may be imported here first; it has a trainer."""
    return import_module(reference.trained_by).Config


def find_rows(reference: Reference) -> tuple[Closed, ...]:
    """Return what the closed division asks of the keys, in this and in earlier versions; (): it has no such runs."""
    return closed_rows(find_config_class(reference)) if reference.trained_by and reference.variant == FULL else ()


def find_rows_of(reference: Reference, version: Any) -> tuple[Closed, ...]:
    """Return what the closed division asks of the keys that a version of the suite has, in any round."""
    return tuple(row for row in find_rows(reference) if row.exists_in(version))


def find_log_values(reference: Reference) -> Mapping[str, LogValue]:
    """Return the keys of a log that follow from the configuration, each with how; {} without a trainer."""
    if not reference.trained_by:
        return {}
    config = find_config_class(reference)
    return {**config.run_facts, **logged_values(config)}


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
    existing = find_rows_of(reference, version)
    rows = {row.key: row for row in existing if round_ in row.rounds}
    # Keys of other versions are asked too, if they are there: stating another version does not avoid them.
    all_rows = {row.key: row for row in find_rows(reference) if round_ in row.rounds} | rows
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
