"""The reference page of the trainers' configuration, which `python bench/reference_pages.py` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from common.reference import ROUNDS
from common.settings.keys import REQUIRED, Closed, Leaf, find_rows_of, list_leaves
from common.settings.run import RunConfig
from common.version import VERSION

INTRODUCTION: Final = """\
# Configuration of the trainers

<!-- Written by `python bench/reference_pages.py` (make docs); changes here are lost. -->

Every key of the YAML file that `python -m <benchmark>.train` reads, written as in an override (`train.epochs=3`).
[The guide](../guide/train.md#configuration) says how files and overrides are read; `--print-config --all`
prints the resolved configuration.

- *closed*: what the closed division requires: a value, a condition, or *free*. The benchmark's `settings.py` and
  `common/settings/` cite the rules. In the open division every key is free.
- *resume*: whether the value *may differ* when a run is resumed with `--resume`, or *must stay*.
"""
TYPES: Final = {int: "integer", float: "number", bool: "true or false", str: "text", Path: "path", type(None): "null"}
TRUTH: Final = {"True": "true", "False": "false"}
HEADER: Final = "| key | type, unit | default | closed | resume | meaning |\n|---|---|---|---|---|---|\n"


def format_page(configs: Iterable[type[RunConfig]]) -> str:
    """Return the page: first the keys that all benchmarks share, then the others by benchmark.

    Raises DeclarationError for a key that does not say what the closed division asks of it.
    """
    rows = [(config.reference.name, dict(_format_rows(config))) for config in configs]
    shared = {name: row for name, row in rows[0][1].items() if all(others.get(name) == row for _, others in rows)}
    parts = [INTRODUCTION, "\n## All benchmarks\n\n", HEADER, *shared.values()]
    for benchmark, own in rows:
        parts += [f"\n## {benchmark}\n\n", HEADER, *(row for name, row in own.items() if name not in shared)]
    return "".join(parts)


def _format_rows(config: type[RunConfig]) -> Iterator[tuple[str, str]]:
    rows_of: dict[str, list[Closed]] = {}
    for row in find_rows_of(config.reference, VERSION):
        rows_of.setdefault(row.key, []).append(row)
    for leaf in list_leaves(config):
        resume = "may differ" if leaf.key.role.may_differ else "must stay"
        kind = _format_type(leaf.hint) + (f", {leaf.key.unit}" if leaf.key.unit else "")
        closed = _format_closed(rows_of[leaf.name])
        cells = (f"`{leaf.name}`", kind, _format_default(leaf), closed, resume, leaf.key.doc)
        yield leaf.name, f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _format_type(hint: Any) -> str:
    """Return a short name of a type; choices as code."""
    args = get_args(hint)
    match get_origin(hint):
        case origin if origin is Literal:
            return ", ".join(f"`{choice}`" for choice in args)
        case origin if origin in (Union, UnionType):
            return " or ".join(map(_format_type, args))
        case origin if origin is tuple:
            return f"list of {'' if args[-1] is ... else f'{len(args)} '}{_format_type(args[0])}s"
        case origin if origin is dict:
            return f"mapping of {_format_type(args[0])} to {_format_type(args[1])}"
    return TYPES[hint]


def _format_default(leaf: Leaf) -> str:
    if leaf.default is REQUIRED:
        return "required"
    value = list(leaf.default) if isinstance(leaf.default, tuple) else leaf.default
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


def _format_closed(rules: Sequence[Closed]) -> str:
    """Return what the closed division requires of a key, by round where rounds differ."""
    texts = [re.sub(r"'(\w+)'", r"`\1`", rule.allowed.text) for rule in rules]
    texts = [TRUTH.get(text, text) for text in texts]
    if len(set(texts)) == 1:
        return texts[0]
    latest = next(text for rule, text in zip(rules, texts, strict=True) if ROUNDS[-1] in rule.rounds)
    others = [(rule, text) for rule, text in zip(rules, texts, strict=True) if text != latest]
    earlier = [f"round {', '.join(rule.rounds)}: {text}" for rule, text in others]
    return f"{latest} ({'; '.join(earlier)})"
