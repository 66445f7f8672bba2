"""What a person has to change to train with the hyperparameters of somebody else's runs."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from compliance.logs.run import Run

PLAIN_WORD: Final = re.compile(r"[A-Za-z_][\w/-]*")
NO_TEXT: Final = {"null", "true", "false"}
"""Words that YAML takes for something else than text."""

NO_HYPERPARAMETERS: Final = ("number_of_nodes", "accelerators_per_node", "train_samples", "eval_samples", "seed")
"""Settings of a log that are about machine and data, or are drawn anew for each run."""


@dataclass(frozen=True, slots=True)
class Absent:
    """Stands where a side does not say a value; None is a value that it says."""


ABSENT: Final = Absent()


@dataclass(frozen=True, slots=True)
class Varied:
    """Several values of one key: each with the number of runs that have it."""

    counts: tuple[tuple[Any, int], ...]


def logged(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the hyperparameters by their keys in the log; what differs between the runs is `Varied`."""
    return _common(runs, _logged)


def configured(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the settings by their keys in the configuration, where all logs tell it as this suite's do; else {}."""
    runs = list(runs)
    return _common(runs, _configuration) if all(map(_configuration, runs)) else {}


def differing(mine: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ or that only one side has: first those of `mine`, in its order."""
    keys = dict.fromkeys((*mine, *other))
    return [key for key in keys if not same(mine.get(key, ABSENT), other.get(key, ABSENT))]


def changes(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Return `key=value`, as the shell wants it, for each key that has another value or none in `present`.

    What differs between the runs of `wanted` is left out: there is no one value to take.
    """
    return [
        shlex.quote(f"{key}={yaml_text(wanted[key])}")
        for key in differing(wanted, present)
        if key in wanted and not isinstance(wanted[key], Varied)
    ]


def same(one: Any, other: Any) -> bool:
    """Tell whether two values are equal; 1 and 1.0 are, 1 and True are not, NaN is itself."""
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    return bool(one == other) or repr(one) == repr(other)


def yaml_text(value: Any) -> str:
    """Return a value as YAML in one line; text stands in quotes only if it would be read as something else."""
    if isinstance(value, str):
        return value if PLAIN_WORD.fullmatch(value) and value.lower() not in NO_TEXT else json.dumps(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(yaml_text, value))}]"
    if isinstance(value, dict):
        # JSON has made text of numbers that are keys, such as the epochs of a schedule.
        pairs = (
            (key if re.fullmatch(r"-?\d+", key) else yaml_text(key), yaml_text(item)) for key, item in value.items()
        )
        return f"{{{', '.join(f'{key}: {item}' for key, item in pairs)}}}"
    return json.dumps(value)


def _configuration(run: Run) -> dict[str, Any]:
    """Return those keys of the configuration in a log, with dots, of which it says that they are hyperparameters."""
    names = run.details.provenance.get("hyperparameters")
    tree = run.details.provenance.get("config")
    found: dict[str, Any] = {}
    for name in names if isinstance(names, list) else ():
        section, _, key = str(name).rpartition(".")
        inside = tree.get(section) if section and isinstance(tree, dict) else tree
        if isinstance(inside, dict) and key in inside:
            found[str(name)] = inside[key]
    return found


def _logged(run: Run) -> Mapping[str, Any]:
    said = run.details.hyperparameters
    return {key: value for key, value in said.items() if key not in NO_HYPERPARAMETERS}


def _common(runs: Iterable[Run], settings: Callable[[Run], Mapping[str, Any]]) -> dict[str, Any]:
    several = [settings(run) for run in runs]
    keys = dict.fromkeys(key for one in several for key in one)
    return {key: _one([one.get(key, ABSENT) for one in several]) for key in keys}


def _one(values: list[Any]) -> Any:
    counts: list[tuple[Any, int]] = []
    for value in values:
        at = next((at for at, (known, _) in enumerate(counts) if same(known, value)), None)
        if at is None:
            counts.append((value, 1))
        else:
            counts[at] = (counts[at][0], counts[at][1] + 1)
    return counts[0][0] if len(counts) == 1 else Varied(tuple(counts))
