"""The settings of a check that travel with logs: `mlperf-hpc.toml`, or the table `[tool.mlperf-hpc]` of pyproject.toml.

A file that the user names is the user's own, and all of it applies. One that is found may belong to what is checked:
it runs no code, waives nothing, and chooses neither round nor profile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from common.command import suggest_name
from common.errors import UsageError
from common.rounds import BY_NAME
from common.tree import NAMED, Tree
from compliance.model.judging import FAIL_ON, PROFILES, STRICT
from compliance.model.layout import name_below, write_slashes
from compliance.model.waivers import Waiver, check_waivers, read_text, read_waivers

SHARED_FILE: Final = "pyproject.toml"
TABLE: Final = "mlperf-hpc"
MAX_BYTES: Final = 1 << 18
MAX_LINE: Final = 1000
"""Characters: Python needs hours for a line of a megabyte that is a single dotted key."""

Check = tuple[str, Callable[[Any], bool]]
"""What the value of a key is, in words, and whether a value is that."""


class Settings(Struct, frozen=True):
    """What a file says; None, False or empty where it says nothing.

    path: the file relative to the current folder; "" if none was read. named: by the user, not found.
    not_applied: keys of a found file that only the user may choose; their fields are as if the file had none.
    """

    path: str = ""
    named: bool = False
    not_applied: tuple[str, ...] = ()
    round: str | None = None
    profile: str | None = None
    fail_on: str | None = None
    allow_mini: bool = False
    ignore: Mapping[str, str] = {}
    waivers: Mapping[str, Waiver] = {}
    rules: tuple[str, ...] = ()

    @property
    def set_aside(self) -> Mapping[str, str]:
        """Rules that a found file ignores, with the reason: their findings count in the exit status alone."""
        return {} if self.named else self.ignore


def read_settings(path: str) -> Settings:
    """Return what the file that the user names says; raise UsageError with file and key if it is broken."""
    table = _read_table(path, NAMED)
    if table is None:
        raise UsageError(f"{path}: there is no table [tool.{TABLE}] in it")
    return _parse_settings(table, path, named=True)


def find_settings() -> Settings:
    """Return what the nearest file says, from the current folder up to the top of its repository (`.git`).

    Raises UsageError with file and key if it is broken.
    """
    try:
        here = os.getcwd()
    except FileNotFoundError:  # the folder was removed
        return Settings()
    for folder in (here, *map(str, Path(here).parents)):
        for name in ("mlperf-hpc.toml", SHARED_FILE):
            path = name_below(here, os.path.join(folder, name))
            if not os.path.lexists(path):
                continue
            try:
                table = _read_table(path, Tree.at(folder))
                if table is not None:
                    return _parse_settings(table, path, named=False)
            except UsageError as error:
                raise UsageError(f"{error} (--no-config reads no settings)") from None
        if os.path.lexists(os.path.join(folder, ".git")):
            break
    return Settings()


def _read_table(path: str, tree: Tree) -> dict[str, Any] | None:
    """Return the settings in a file; None if it is one that other tools share and has none."""
    text = read_text(path, "settings", MAX_BYTES, tree)
    is_shared = os.path.basename(path) == SHARED_FILE
    if is_shared and TABLE not in text:
        return None
    for line, content in enumerate(text.split("\n"), 1):
        if len(content) > MAX_LINE:
            raise UsageError(f"{path}, line {line}: it is longer than {MAX_LINE:,} characters")
    import tomllib  # only a check with settings pays for it

    try:
        root = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: the settings are not valid TOML: {error}") from None
    if not is_shared:
        return root
    tools = root.get("tool", {})
    table = tools.get(TABLE) if isinstance(tools, dict) else None
    if isinstance(table, dict | None):
        return table
    raise UsageError(f"{path}: tool.{TABLE} = {table!r:.80}: expected a table, [tool.{TABLE}]")


def _parse_settings(table: dict[str, Any], path: str, named: bool) -> Settings:
    """Return the settings in a table; raise UsageError with file and key if one is wrong."""
    for key, value in table.items():
        if key not in KEYS:
            raise UsageError(f"{path}: there is no key {key!r}{suggest_name(key, KEYS)}; known are {', '.join(KEYS)}")
        expected, is_right = KEYS[key]
        if not is_right(value):
            raise UsageError(f"{path}: {key} = {value!r:.80}: expected {expected}")
    # Harmless is what makes no verdict better. What is ignored is shown, and its errors count.
    harmless = {"fail-on", "ignore", *(["profile"] if table.get("profile") == STRICT else [])}
    not_applied = () if named else tuple(key for key in table if key not in harmless)
    fields = {key.replace("-", "_"): value for key, value in table.items() if key not in not_applied}
    fields["waivers"] = _parse_waivers(fields.get("waivers", {}), path)
    fields["rules"] = tuple(
        os.path.join(os.path.dirname(path), rule) if rule.endswith(".py") or "/" in write_slashes(rule) else rule
        for rule in fields.get("rules", ())
    )
    return Settings(path, named, not_applied, **fields)


def _parse_waivers(waivers: str | dict[str, Any], path: str) -> dict[str, Waiver]:
    """Return the waivers in the settings, or in the file that they name, relative to their own."""
    try:
        if isinstance(waivers, str):
            return read_waivers(os.path.join(os.path.dirname(path), waivers))
        return check_waivers({name: Waiver(reason, path) for name, reason in waivers.items()})
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _one_of(words: tuple[str, ...]) -> Check:
    return "one of " + ", ".join(map(repr, words)), words.__contains__


KEYS: Final[dict[str, Check]] = {
    "round": _one_of(tuple(BY_NAME)),
    "profile": _one_of(PROFILES),
    "fail-on": _one_of(tuple(FAIL_ON)),
    "allow-mini": ("true or false", lambda value: isinstance(value, bool)),
    "ignore": (
        "a table of rules, each with the reason, such as QUA01 = 'why'",
        lambda value: isinstance(value, dict) and all(isinstance(why, str) and why.strip() for why in value.values()),
    ),
    "waivers": ("the path of a file of waivers, or a table of them", lambda value: isinstance(value, str | dict)),
    "rules": (
        "a list of modules and Python files",
        lambda value: isinstance(value, list) and all(isinstance(rule, str) and rule for rule in value),
    ),
}
