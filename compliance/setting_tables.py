"""The settings of all benchmarks as table rows: what is allowed, and what the official tool tests instead."""

from __future__ import annotations

from typing import Any, NamedTuple

from common.reference import ANY, NOT_EMPTY, OPEN_SETTINGS, ROUNDS, Reference, Setting
from compliance.benchmarks import REFERENCES
from compliance.rules.rule import show

PROBES: tuple[Any, ...] = (
    *(1, 1.0, 0, 0.5, 2, 1.5, -1, True, False, float("nan"), float("inf")),
    *("1", "text", "", None, [], [1], [0.5], [-1], ["1"], [0.5, 2], {}),
)
"""Values of all kinds; those that only one profile accepts illustrate a difference."""
MOST_EXAMPLES = 4
UNNOTICED = "none of the values tried"


class SettingRow(NamedTuple):
    """What a table says about a setting, except for the benchmarks and rounds where it applies."""

    key: str
    allowed: str
    official: str
    needed: str
    why: str
    examples: str


def row(setting: Setting) -> SettingRow:
    """Return a setting in words."""
    if setting.when:
        key, check = setting.when
        needed = f"where {key} is {check.text}"
    else:
        needed = "always" if setting.required else "may be missing"
    official = setting.official.text if setting.official else "does not know the key"
    return SettingRow(setting.key, setting.allowed.text, official, needed, setting.why, judged_apart(setting))


def judged_apart(setting: Setting) -> str:
    """Return in words a few values that only one of the profiles accepts; "" if both are the same."""
    official = setting.official
    if official is None or official in (ANY, NOT_EMPTY):
        return "the official tool does not check the value"
    parts = []
    for name, first, second in (("official", official, setting.allowed), ("strict", setting.allowed, official)):
        values = [show(value) for value in PROBES if first.allows(value) and not second.allows(value)]
        if values:
            parts.append(f"only {name} accepts {', '.join(values[:MOST_EXAMPLES])}")
    return "; ".join(parts) or ("" if official == setting.allowed else UNNOTICED)


def settings_by_row(reference: Reference) -> dict[SettingRow, list[str]]:
    """Return the settings of a closed division or mini problem, each with the rounds where it applies."""
    rows: dict[SettingRow, list[str]] = {}
    for round_ in reference.rounds:
        for setting in reference.settings_of(round_, "closed"):
            rows.setdefault(row(setting), []).append(round_)
    return rows


def differences() -> dict[SettingRow, list[str]]:
    """Return the settings that the profiles judge differently, each with the benchmarks concerned."""
    by_row: dict[SettingRow, dict[str, tuple[str, ...]]] = {}
    for name, reference in REFERENCES.items():
        for row_, rounds in settings_by_row(reference).items():
            if row_.allowed != row_.official or row_.examples not in ("", UNNOTICED):
                # Whether the key is required is the same in both profiles: not a row of its own.
                by_row.setdefault(row_._replace(needed="", why=""), {})[name] = tuple(rounds)
    where = {row_: _describe_benchmarks(rounds) for row_, rounds in by_row.items()}
    for setting in OPEN_SETTINGS:
        where.setdefault(row(setting)._replace(needed="", why=""), ["all in the open division"])
    return where


def _describe_benchmarks(rounds_of: dict[str, tuple[str, ...]]) -> list[str]:
    """Return benchmarks in words, with the rounds where it does not apply to all of them."""
    if all(rounds_of.get(name) == reference.rounds for name, reference in REFERENCES.items()):
        return ["all"]
    return [
        name if rounds == REFERENCES[name].rounds else f"{name} {rounds_text(rounds)}"
        for name, rounds in rounds_of.items()
    ]


def rounds_text(rounds: tuple[str, ...]) -> str:
    """Return rounds in words: `all`, `2.0`, `1.0 to 3.0`."""
    if rounds == ROUNDS:
        return "all"
    first = ROUNDS.index(rounds[0])
    if len(rounds) > 1 and rounds == ROUNDS[first : first + len(rounds)]:
        return f"{rounds[0]} to {rounds[-1]}"
    return ", ".join(rounds)
