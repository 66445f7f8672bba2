"""What a key of a configuration is: its meaning, its role, what the closed division asks of it, and its log key.

A section is a frozen dataclass whose fields `key` makes; the class `Config` in a benchmark's `settings.py` has all
sections. Trainer, checker and docs read these declarations, and `compare_closed` compares a configuration with what
the closed division asks of it. So nothing here needs more than the standard library.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

from common.reference import EXECUTION, FREE, FULL, ROUNDS, Check, Reference
from common.version import VERSION, version_numbers

REQUIRED: Final = MISSING
"""The default of a key that has none."""


class DeclarationError(TypeError):
    """A key is not declared as it must be; the message names file, class and key, and what to write there."""


# -- roles ---------------------------------------------------------------------------------------------------


class Role(NamedTuple):
    """What part a key plays.

    computes: another value changes what is computed, and not only where, how fast or under which name.
    may_differ: it may have another value when a run is resumed.
    borrow: it is a hyperparameter, worth copying from somebody else's runs.
    """

    computes: bool
    may_differ: bool
    borrow: bool


RECIPE: Final = Role(computes=True, may_differ=False, borrow=True)
"""A hyperparameter."""
LENGTH: Final = Role(computes=True, may_differ=True, borrow=True)
"""How long to train at most: a run may be made longer."""
DRAW: Final = Role(computes=True, may_differ=True, borrow=False)
"""A seed: each run draws its own, and a resumed one keeps that of its checkpoint."""
PROBLEM: Final = Role(computes=True, may_differ=False, borrow=False)
"""Which problem it is, or which part of it: no hyperparameter."""
ROUTE: Final = Role(computes=False, may_differ=False, borrow=False)
"""Which of several ways to the same numbers, but for rounding: a run keeps to one."""
PLACE: Final = Role(computes=False, may_differ=True, borrow=False)
"""Where, how fast or under which name the run computes."""


# -- keys ----------------------------------------------------------------------------------------------------

Allowed = Check | Mapping[str, Check]
"""The values that closed allows: in all rounds, or each check from its round on, until that of a later round."""
ClosedRule = Allowed | Callable[[Reference], Allowed]
"""What closed allows, perhaps by the facts of the benchmark."""


class Key(NamedTuple):
    """What a key means.

    unit: of its numbers. aliases: other names that people try. closed: what the closed division asks of it; None: the
    benchmark says it, in `closed` of its Config. cite: where the rules say so; "": as `cite` of the section says, or
    else that of the benchmark's facts.
    logged_as: the key of a log that has its value. since: the first version of the suite that has it; None: all.
    """

    doc: str
    role: Role
    unit: str = ""
    aliases: tuple[str, ...] = ()
    closed: ClosedRule | None = None
    cite: str = ""
    logged_as: str = ""
    since: str | None = None


def key(  # noqa: PLR0913  # each says one thing of the key
    default: Any,
    doc: str,
    role: Role = RECIPE,
    *,
    unit: str = "",
    aliases: tuple[str, ...] = (),
    closed: ClosedRule | None = None,
    cite: str = "",
    logged_as: str = "",
    since: str | None = None,
) -> Any:
    """Return the field of a dataclass for a key, see Key; with REQUIRED as default it must be given.

    What does not change what is computed is free in the closed division unless `closed` says otherwise.
    """
    if closed is None and not role.computes:
        closed = FREE
    metadata = {Key: Key(doc, role, unit, aliases, closed, cite, logged_as, since)}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


class Leaf(NamedTuple):
    """A key that is not a section: its dotted name, type and default (REQUIRED: none), and what it means.

    owner: the class that declares it.
    """

    name: str
    hint: Any
    default: Any
    key: Key
    owner: type

    def find_value(self, tree: dict[str, Any]) -> Any:
        """Return the key's value in a configuration that `to_dict` made.

        If it was made before there was such a key, that is the default; None for a key that has none.
        """
        value: Any = tree
        for name in self.name.split("."):
            if not isinstance(value, dict) or name not in value:
                return None if self.default is REQUIRED else self.default
            value = value[name]
        return value


def list_leaves(cls: type, prefix: str = "") -> Iterator[Leaf]:
    """Yield all keys of a section and of those in it, in their order.

    Raises DeclarationError for a field that `key` did not make.
    """
    hints = get_type_hints(cls)
    for entry in fields(cls):
        name, hint = f"{prefix}{entry.name}", hints[entry.name]
        if is_dataclass(hint):
            yield from list_leaves(hint, f"{name}.")  # type: ignore[arg-type]  # a class, no instance
            continue
        owner = next(base for base in cls.__mro__ if entry.name in inspect.get_annotations(base))
        if Key not in entry.metadata:
            raise DeclarationError(
                f"{_locate_class(owner)}, {entry.name} does not say what it means: make it by key(...)"
            )
        default = entry.default if entry.default_factory is MISSING else entry.default_factory()
        yield Leaf(name, hint, default, entry.metadata[Key], owner)


def list_sections(cls: type) -> Iterator[type]:
    """Yield a class and those of all sections in it."""
    yield cls
    for hint in get_type_hints(cls).values():
        if is_dataclass(hint):
            yield from list_sections(hint)  # type: ignore[arg-type]  # a class, no instance


def _locate_class(cls: type) -> str:
    """Return where a class is, for a message."""
    file = Path(getattr(sys.modules.get(cls.__module__), "__file__", None) or "?")
    module = Path(*cls.__module__.split("."))
    return f"{module.with_suffix('.py') if file.stem == module.name else file}: class {cls.__name__}"


def check_least(section: Any, least: int, *names: str) -> None:
    """Raise ValueError for keys of a section that are below a number; null is none."""
    for name in names:
        value = getattr(section, name)
        if value is not None and not value >= least:  # also for NaN
            default = next(entry.default for entry in fields(section) if entry.name == name)
            raise ValueError(f"{name} is {value}; expected at least {least}{', or null' if default is None else ''}")


# -- the closed division -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Closed:
    """What the closed division asks of one key in some rounds.

    key: dotted, such as model.width. allowed: its values, as a log's provenance has them. cite: where the rules say so.
    since, until: the first and the last version of the suite that has the key; None: it has always been there, and
    still is. Logs are judged by the keys of their own version.
    """

    key: str
    allowed: Check
    cite: str
    rounds: tuple[str, ...] = ROUNDS
    since: str | None = None
    until: str | None = None

    def exists_in(self, version: Any) -> bool:
        """Tell whether a version of the suite has the key; anything but a version counts as the earliest."""
        numbers = version_numbers(version)
        return version_numbers(self.since) <= numbers and (self.until is None or numbers <= version_numbers(self.until))


@cache
def closed_rows(config: Any) -> tuple[Closed, ...]:
    """Return what closed asks of each key of a benchmark's Config, those that were removed last.

    Raises DeclarationError for a key of which nothing is said.
    """
    names = {leaf.name for leaf in list_leaves(config)}
    if unknown := [name for name in config.closed if name not in names]:
        raise DeclarationError(
            f"{_locate_class(config)}, closed has {unknown[0]}, but there is none: remove or correct it"
        )
    rows = [row for leaf in list_leaves(config) for row in _list_rows(config, leaf)]
    gone = [Closed(name, check, config.reference.cite, until=last) for name, (last, check) in config.removed.items()]
    return (*rows, *gone)


def _list_rows(config: Any, leaf: Leaf) -> Iterator[Closed]:
    """Yield what closed asks of a key, by rounds."""
    reference: Reference = config.reference
    rule, cite = config.closed.get(leaf.name), ""
    if rule is None:  # what the key says itself
        otherwise = "" if leaf.key.role.computes else EXECUTION
        rule, cite = leaf.key.closed, leaf.key.cite or getattr(leaf.owner, "cite", "") or otherwise
    if rule is None:
        raise DeclarationError(_explain_undeclared(config, leaf))
    if not isinstance(rule, Check | Mapping):
        rule = rule(reference)
    if isinstance(rule, Check):
        rule = {ROUNDS[0]: rule}
    starts = sorted(map(ROUNDS.index, rule))
    for start, end in pairwise([*starts, len(ROUNDS)]):
        rounds = ROUNDS[start:end]
        yield Closed(leaf.name, rule[rounds[0]], cite or reference.cite, rounds, since=leaf.key.since)


def _explain_undeclared(config: type, leaf: Leaf) -> str:
    """Return what to write where for a key of which closed says nothing."""
    short = leaf.name.rpartition(".")[2]
    if leaf.owner.__module__.partition(".")[0] == config.__module__.partition(".")[0]:
        return (
            f"{_locate_class(leaf.owner)}, {short} does not say what the closed division asks of it: add closed=FREE "
            "or a check such as closed=equals(VALUE), and cite=RULE, to its key(...)"
        )
    return (
        f"{_locate_class(config)}, closed does not say what the closed division asks of {leaf.name}: add "
        f'"{leaf.name}": FREE, or a check such as equals(VALUE)'
    )


# -- the log -------------------------------------------------------------------------------------------------

Configuration = Callable[[str], Any]
"""Gives the value of a dotted key of a run's configuration; raises LookupError if it lacks the key."""
LogValue = Callable[[Configuration], Any]
"""Gives the value that a log has for one of its keys; None: the configuration leaves it open."""


def take(name: str) -> LogValue:
    """Return the function that takes the value of a key from a configuration."""
    return lambda config: config(name)


def log_if(switch: str, values: Container[str], value: LogValue, otherwise: Any = None) -> LogValue:
    """Return the function that gives a value where the key `switch` has one of these values."""
    return lambda config: value(config) if config(switch) in values else otherwise


@cache
def logged_values(config: Any) -> Mapping[str, LogValue]:
    """Return the hyperparameters that a log states, each with how its value follows from the values of a Config.

    They are the keys that say `logged_as`, and what a section's `logs` makes of several keys.
    """
    single = {leaf.key.logged_as: take(leaf.name) for leaf in list_leaves(config) if leaf.key.logged_as}
    several = {name: value for cls in list_sections(config) for name, value in getattr(cls, "logs", {}).items()}
    return single | several


def list_hyperparameters(config: Any) -> dict[str, Any]:
    """Return what a log states of the hyperparameters of a configuration, by the keys of the log."""
    cls: Any = type(config)
    values = {name: value(lambda key: attrgetter(key)(config)) for name, value in logged_values(cls).items()}
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value is not None
    }


class Comparison(NamedTuple):
    """What a configuration says of the keys that its version of the suite has.

    refused: what closed asks of a key, with the value that it does not allow. missing: keys that it lacks. unknown:
    keys that this version does not have.
    """

    refused: list[tuple[Closed, Any]]
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


def compare_closed(config: Mapping[str, Any], reference: Reference, round_: str, version: Any = VERSION) -> Comparison:
    """Return how a resolved configuration, as in a log's provenance, compares with the closed division of a round.

    version: of the suite, as the log states it. Never raises: configuration and version may come from a log, so that
    nothing is known of them.
    """
    existing = find_rows_of(reference, version)
    rows = {row.key: row for row in existing if round_ in row.rounds}
    # Keys of other versions are asked too, if they are there: stating another version does not avoid them.
    all_rows = {row.key: row for row in find_rows(reference) if round_ in row.rounds} | rows
    known_keys = {row.key for row in existing}
    values = _flatten_config(config, known_keys | all_rows.keys())
    stated = [(row, values[key]) for key, row in all_rows.items() if key in values]
    return Comparison(
        [(row, value) for row, value in stated if not row.allowed.allows(value)],
        [key for key in rows if key not in values],
        [key for key in values if key not in known_keys],
    )


def _flatten_config(config: Mapping[str, Any], known_keys: set[str]) -> dict[str, Any]:
    """Return the values of a configuration by dotted key; only sections that have known keys are opened."""
    sections = {key[:at] for key in known_keys for at, letter in enumerate(key) if letter == "."}
    values: dict[str, Any] = {}
    stack: list[tuple[str, Any]] = [("", config)]
    while stack:
        dotted, value = stack.pop()
        if isinstance(value, Mapping) and (not dotted or dotted in sections):
            prefix = f"{dotted}." if dotted else ""
            stack += [(prefix + (repr(name) if "." in str(name) else str(name)), item) for name, item in value.items()]
        else:
            values[dotted] = value
    return values
