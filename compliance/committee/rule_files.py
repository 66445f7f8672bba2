"""Read the committee's rule files: YAML with BEGIN, KEY and END blocks, as mlperf-logging has them for each round.

The comments of training_6.1.0/common.yaml and mlp_compliance.py of mlperf-logging 4.1.68 describe the format. A file
with anything else in it is refused as a whole: what is not understood is not judged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from common.command import describe_reason
from common.errors import UsageError
from common.tree import Tree
from compliance.committee.expressions import RefusedError, Test, translate_code, translate_test

MOST_BYTES: Final = 128 << 10
"""Of a rule file; the committee's largest has 20 KB."""
DEEPEST: Final = 20
LONGEST_NAME: Final = 100
ROOT_FILE: Final = "common.yaml"
CODE: Final = ("CODE", "PRE", "POST")
"""The members that are statements; the others are expressions."""
FILE_NAME: Final = r"[A-Za-z0-9_.]+/[A-Za-z0-9_]+\.yaml"
LOADER: Final[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
PACKAGE: Final = "mlperf_logging"
DISTRIBUTION: Final = "mlperf-logging"


class Condition(NamedTuple):
    """An expression that must hold, or code, which does, as it is written and as a function."""

    text: str
    test: Test


class KeyRule(NamedTuple):
    """What is asked of the records of a key.

    required, least: what REQ says, and the least number of records; others: keys of which one may stand for it.
    steps: for each record, the checks and the code before and after them; first_checks: for the first one, too. once:
    what must hold for one of them. length: characters of all these.
    """

    key: str
    required: str
    least: int
    others: tuple[str, ...]
    steps: tuple[Condition, ...]
    first_checks: tuple[Condition, ...]
    once: Condition | None
    length: int


class RuleFile(NamedTuple):
    """A rule file: code that runs first, the rules by key, and what must hold at the end."""

    name: str
    begin: Condition | None
    keys: dict[str, KeyRule]
    end_checks: tuple[Condition, ...]


class UnreadableError(ValueError):
    """A rule file cannot be read; the message names it, the line and the reason."""


class _FormatError(ValueError):
    """What is wrong at a line of a file."""

    def __init__(self, node: yaml.Node, reason: str) -> None:
        super().__init__(f"line {node.start_mark.line + 1}, {reason}")


def read_rule_file(folder: str, name: str) -> RuleFile:
    """Return a file below a folder of rules.

    Raises FileNotFoundError if there is none, and UnreadableError for a file that is damaged or not understood.
    """
    rules = examine_rule_file(folder, name)
    if isinstance(rules, str):
        raise UnreadableError(rules)
    return rules


@lru_cache(maxsize=512)
def examine_rule_file(folder: str, name: str) -> RuleFile | str:
    """Return a rule file, or why it cannot be read; kept, since every log of a round needs it."""
    if not re.fullmatch(FILE_NAME, name) or ".." in name:
        return f"{name[:100]}: not readable: no name of a rule file, such as training_6.1.0/common.yaml"
    path = os.path.join(folder, name)
    try:
        text = Tree.at(folder).read(path, MOST_BYTES).decode()
        return _read_blocks(name, _compose(text))
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = describe_reason(error)
    except yaml.YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        reason = f"line {mark.line + 1 if mark else 1}, not YAML: {getattr(error, 'problem', None) or error}"
    except ValueError as error:
        reason = str(error)
    return f"{path}: not readable: {' '.join(reason.split())[:200]}"


def _compose(text: str) -> yaml.Node:
    """Return the nodes of a YAML text; ValueError or YAMLError for one with aliases or tags, or nested deeply."""
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):  # composing deep nesting takes stack
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST or isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None):
            mark: Any = event.start_mark
            raise ValueError(f"line {mark.line + 1}, nested too deeply, an alias or a tag")
    node = yaml.compose(text, Loader=LOADER)
    if node is None or not node.value:
        raise ValueError("the file is empty")
    return node


def _read_blocks(name: str, root: yaml.Node) -> RuleFile:
    if not isinstance(root, yaml.SequenceNode):
        raise _FormatError(root, "expected a list of BEGIN, KEY and END blocks")
    begin: tuple[Condition, ...] = ()
    end_checks: tuple[Condition, ...] = ()
    keys: dict[str, KeyRule] = {}
    kinds: list[str] = []
    for block in root.value:
        fields = _read_fields(block, ("BEGIN", "KEY", "END"))
        if len(fields) != 1:
            raise _FormatError(block, "expected one of BEGIN, KEY and END")
        ((kind, content),) = fields.items()
        if kind == "BEGIN":
            begin = _read_conditions(_read_fields(content, ("CODE",)), "CODE")
        elif kind == "END":
            end_checks = _read_conditions(_read_fields(content, ("CHECK",)), "CHECK")
        else:
            rule = _read_key(content)
            keys[rule.key] = rule
        kinds.append(kind)
    if kinds.count("BEGIN") > 1 or kinds.count("END") > 1:
        raise _FormatError(root, "expected at most one BEGIN and one END")
    return RuleFile(name, begin[0] if begin else None, keys, end_checks)


def _read_fields(node: yaml.Node, allowed: tuple[str, ...]) -> dict[str, yaml.Node]:
    """Return the members of a mapping by name; _FormatError for others than the allowed ones."""
    if not isinstance(node, yaml.MappingNode):
        raise _FormatError(node, f"expected a mapping with {', '.join(allowed)}")
    for name, _ in node.value:
        if name.value not in allowed:
            raise _FormatError(name, f"{str(name.value)[:40]!r} is unknown; expected {', '.join(allowed)}")
    fields = {name.value: value for name, value in node.value}
    once = [name.value for name, _ in node.value if name.value != "CHECK"]  # the last counts: training_1.0.0/closed_ssd
    if len(set(once)) < len(once):
        raise _FormatError(node, "a member is there twice")
    return fields


def _read_key(node: yaml.Node) -> KeyRule:
    allowed = ("NAME", "REQ", "PRE", "CHECK", "POST", "FIRST_CHECK", "ATLEAST_ONE_CHECK")
    parts = _read_fields(node, allowed)
    name = parts.get("NAME")
    if not isinstance(name, yaml.ScalarNode) or not 0 < len(name.value) <= LONGEST_NAME:
        raise _FormatError(node, "a KEY without a NAME, or with a long one")
    once = _read_conditions(parts, "ATLEAST_ONE_CHECK")
    return KeyRule(
        name.value,
        *_read_requirement(parts.get("REQ")),
        steps=tuple(condition for part in ("PRE", "CHECK", "POST") for condition in _read_conditions(parts, part)),
        first_checks=_read_conditions(parts, "FIRST_CHECK"),
        once=once[0] if once else None,
        length=sum(len(str(parts[each].value)) for each in allowed[2:] if each in parts),
    )


EXACTLY_ONE: Final = "EXACTLY_ONE"


def _read_requirement(node: yaml.Node | None) -> tuple[str, int, tuple[str, ...]]:
    """Return what REQ says, the least number of records, and the keys that may stand for this one."""
    if node is None:
        return "", 0, ()
    text = node.value if isinstance(node, yaml.ScalarNode) else ""
    if text in ("OPTIONAL", EXACTLY_ONE, "AT_LEAST_ONE"):
        return text, int(text != "OPTIONAL"), ()
    if match := re.fullmatch(r"AT_LEAST\(([1-9][0-9]{0,5})\)", text):
        return text, int(match[1]), ()
    if match := re.fullmatch(r"AT_LEAST_ONE_OR\(([\w ,]+)\)", text):
        return text, 0, tuple(name.strip() for name in match[1].split(","))
    raise _FormatError(node, f"REQ is {text[:40]!r}; expected EXACTLY_ONE, AT_LEAST_ONE, AT_LEAST(n) or the like")


def _read_conditions(parts: dict[str, yaml.Node], name: str) -> tuple[Condition, ...]:
    """Return the expressions of a member, which may be a list if it is of checks, or its code; () without it."""
    node = parts.get(name)
    if node is None:
        return ()
    nodes = node.value if isinstance(node, yaml.SequenceNode) and name in ("CHECK", "FIRST_CHECK") else [node]
    return tuple(_read_condition(each, translate_code if name in CODE else translate_test) for each in nodes)


def _read_condition(node: yaml.Node, translate: Callable[[str], Test]) -> Condition:
    if not isinstance(node, yaml.ScalarNode):
        raise _FormatError(node, "expected an expression as text")
    try:
        return Condition(" ".join(node.value.split()), translate(node.value))
    except RefusedError as error:
        raise _FormatError(node, str(error)) from None


# -- where they are ----------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def find_rules(named: str | None) -> str:
    """Return the folder with the rule files of all rounds; "" if no mlperf-logging is installed.

    named: a folder that the user names, that of mlperf-logging's compliance_checker, of its package, or of a clone.
    No rules come from the working folder, which may be a stranger's. Raises UsageError for a folder without rule files.
    """
    if named is not None:
        inside = ("", "compliance_checker", f"{PACKAGE}/compliance_checker")
        for folder in (os.path.join(named, part) for part in inside):
            if list_rounds(folder):
                return os.path.realpath(folder)
        expected = "a folder with training_6.1.0/common.yaml or the like: of mlperf-logging, or of a clone"
        raise UsageError(f"--committee-rules {named}: no rule files in it; expected {expected}")
    spec = find_spec(PACKAGE)  # which imports nothing
    for location in (spec and spec.submodule_search_locations) or ():
        folder = os.path.realpath(os.path.join(location, "compliance_checker"))
        here = os.path.join(os.path.realpath(os.curdir), "")
        if list_rounds(folder) and not (folder.startswith(here) and "site-packages" not in folder):
            return folder
    return ""


@lru_cache(maxsize=16)
def list_rounds(folder: str) -> tuple[tuple[str, str], ...]:
    """Return usage and version of each round that has rule files in a folder, oldest first: ("training", "6.1")."""
    try:
        names = os.listdir(folder)
    except OSError:
        return ()
    matches = (re.fullmatch(r"(hpc|training)_(\d{1,3}\.\d{1,3})\.0", name) for name in names)
    rounds = [(match[1], match[2]) for match in matches if match and Path(folder, match[0], ROOT_FILE).exists()]
    return tuple(sorted(rounds, key=lambda round_: [round_[0], *map(int, round_[1].split("."))]))
