"""Compare the hyperparameters of two sides, and list the changes that make them equal."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.values import same
from compliance.logs.run import NOT_HYPERPARAMETERS, Run

PLAIN_WORD: Final = re.compile(r"[A-Za-z_][\w/-]*")
YAML_KEYWORDS: Final = {"null", "true", "false"}
"""Words that YAML does not read as text."""


ABSENT: Final = object()
"""In place of a value that a side does not have, in contrast to the value None."""


@dataclass(frozen=True, slots=True)
class Varied:
    """The values of a key that differs between runs, each with its number of runs."""

    counts: tuple[tuple[Any, int], ...]


def logged(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the hyperparameters by log key; values that differ between the runs are `Varied`."""
    return _common(
        runs, lambda run: {k: v for k, v in run.details.hyperparameters.items() if k not in NOT_HYPERPARAMETERS}
    )


def configured(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the settings by configuration key if all logs contain their configuration, as this suite's do; else {}."""
    runs = list(runs)
    return _common(runs, _configuration) if all(map(_configuration, runs)) else {}


def differing(mine: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys that differ or exist on one side only: first those of `mine`, in its order."""
    keys = dict.fromkeys((*mine, *other))
    return [key for key in keys if not same(mine.get(key, ABSENT), other.get(key, ABSENT))]


def changes(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return `key=value`, quoted for a shell, for each key with another value or none in `present`.

    Keys that differ between the runs of `wanted` are left out, because they have no single value.
    """
    return [
        shlex.quote(f"{key}={yaml_text(wanted[key])}")
        for key in differing(wanted, present)
        if key in wanted and not isinstance(wanted[key], Varied)
    ]


def yaml_text(value: Any) -> str:
    """Return a value as one line of YAML; text is quoted only if it would be read as another type."""
    if isinstance(value, str):
        return value if PLAIN_WORD.fullmatch(value) and value.lower() not in YAML_KEYWORDS else json.dumps(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(yaml_text, value))}]"
    if isinstance(value, dict):
        # JSON turns numeric keys, such as the epochs of a schedule, into text.
        pairs = (
            (key if re.fullmatch(r"-?\d+", key) else yaml_text(key), yaml_text(item)) for key, item in value.items()
        )
        return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}"
    return json.dumps(value)


def _configuration(run: Run) -> dict[str, Any]:
    """Return the values in the logged configuration that the log lists as hyperparameters, by dotted key."""
    names = run.details.provenance.get("hyperparameters")
    tree = run.details.provenance.get("config")
    found: dict[str, Any] = {}
    for name in names if isinstance(names, list) else ():
        section, _, key = str(name).rpartition(".")
        inside = tree.get(section) if section and isinstance(tree, dict) else tree
        if isinstance(inside, dict) and key in inside:
            found[str(name)] = inside[key]
    return found


def _common(runs: Iterable[Run], settings: Callable[[Run], Mapping[str, Any]]) -> dict[str, Any]:
    several = [settings(run) for run in runs]
    keys = dict.fromkeys(key for one in several for key in one)
    return {key: _unite([one.get(key, ABSENT) for one in several]) for key in keys}


def _unite(values: list[Any]) -> Any:
    """Return the value if all are the same, else how often there is each."""
    distinct: list[Any] = []
    for value in values:
        distinct += [] if any(same(other, value) for other in distinct) else [value]
    counts = ((value, sum(same(value, other) for other in values)) for value in distinct)
    return distinct[0] if len(distinct) == 1 else Varied(tuple(counts))
