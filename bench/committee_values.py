"""Values for which an expression of a rule file holds, or does not."""

from __future__ import annotations

import ast
import copy
import itertools
import math
from collections.abc import Iterable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any, Final

from committee_rules import State, Tested, Value

Place = tuple[str | int, ...]
"""A way into what a line has: ("value",), ("value", "BBOX"), ("metadata", "epoch_num")."""
MISSING: Final = object()
"""As a value: what is not there."""
USUAL: Final = (1, 0.5, 0, 10, 0.1, 100, [10, 20], [10], "example", True, False, -1, 1e6, 1.5)
PRODUCTS: Final = 3000


@cache
def parse(text: str) -> ast.Expression:
    return ast.parse(text.strip(), mode="eval")


def chain_of(node: ast.expr) -> Place | None:
    """Return the way that v[…][…] goes; None for another expression."""
    if isinstance(node, ast.Name):
        return () if node.id == "v" else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        start = chain_of(node.value)
        return None if start is None else (*start, node.slice.value)  # type: ignore[arg-type]
    return None


@cache
def paths_in(text: str) -> tuple[Place, ...]:
    """Return what an expression looks at in a line, without the containers of other such places."""
    found: dict[Place, None] = {}
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.expr) and (chain := chain_of(node)):
            found[chain] = None
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant):
            where = chain_of(node.comparators[0])
            if where and isinstance(node.ops[0], ast.In | ast.NotIn):
                found[(*where, node.left.value)] = None  # type: ignore[arg-type]
    inner = {path[:length] for path in found for length in range(len(path))}
    return tuple(path for path in found if path not in inner and path != ("metadata",))


def fixed_parts(text: str, state: State) -> Iterator[Any]:
    """Yield the values of the parts of an expression that do not depend on the line, largest first."""
    names = {id(node.slice) for node in ast.walk(parse(text)) if isinstance(node, ast.Subscript)}
    for node in ast.walk(parse(text)):
        if not isinstance(node, ast.expr) or id(node) in names or depends_on_line(node):
            continue
        try:
            value = eval(compile(ast.Expression(node), "<rule>", "eval"), state)
        except Exception:
            continue
        if isinstance(value, list | tuple | set):
            yield from sorted(value, key=str) if isinstance(value, set) else value
        elif isinstance(value, bool | int | float | str):
            yield value


def depends_on_line(node: ast.expr) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id in ("v", "ll") for inner in ast.walk(node))


def unique(values: Iterable[Any]) -> list[Any]:
    """Return each value once; whole floats that came from a division are integers before."""
    found: dict[str, Any] = {}
    for value in values:
        found.setdefault(repr(value), value)
    return list(found.values())


def derived(numbers: list[Any]) -> Iterator[Any]:
    """Yield values near numbers, and what they make together."""
    yield from (near for n in numbers for near in (n + 1, n - 1))
    for one, other in itertools.permutations(numbers[:10], 2):
        for value in (one / other if other else None, one * other, one - other, one + other, (one + other) / 2):
            if value is not None and math.isfinite(value):
                if isinstance(value, float) and value.is_integer():
                    yield int(value)
                yield value
    for n in numbers:
        yield from (n * 2, n / 2, n * 0.999, n * 1.001, n * 0.9, n * 1.1)


def candidates(texts: Iterable[str], state: State, more: Iterable[Any] = ()) -> list[Any]:
    """Return values that may fit expressions in this state, likely ones first."""
    parts = unique([*more, *(part for text in texts for part in fixed_parts(text, state))])
    numbers = [p for p in parts if isinstance(p, int | float) and not isinstance(p, bool) and math.isfinite(p)]
    return unique([*parts, *derived(numbers), *USUAL])


def judge(text: str, value: Value, state: State, time: float) -> bool | None:
    """Return whether an expression holds for a line; None for one that raises."""
    here = state | {"s": dict(state["s"])}
    try:
        return bool(eval(text.strip(), here, {"v": value, "ll": SimpleNamespace(value=value, timestamp=time)}))
    except Exception:
        return None


def holds(text: str, value: Value, state: State, time: float) -> bool:
    """Return whether an expression holds for a line; one that raises does not."""
    return judge(text, value, state, time) is True


def replaced(value: Value, path: Place, new: Any) -> Value:
    """Return what a line has, with another value at a place, or without that."""
    value = copy.deepcopy(value)
    place: Any = value
    for step, after in itertools.pairwise(path):
        kind = list if isinstance(after, int) else dict
        if isinstance(step, str) and not isinstance(place.get(step), kind):
            place[step] = kind()
        place = place[step]
    last = path[-1]
    if isinstance(last, int) and isinstance(place, list):
        place.extend([1] * (last + 1 - len(place)))
    if new is MISSING:
        if isinstance(place, dict):
            place.pop(last, None)
    else:
        place[last] = new
    return value


def variants(value: Value, paths: Iterable[Place], choices: dict[Place, list[Any]]) -> Iterator[Value]:
    """Yield what a line may have, changed at as few places as possible first."""
    paths = list(paths)
    for path in paths:
        yield from (replaced(value, path, new) for new in choices[path])
    if len(paths) > 1:
        size = max(2, int(PRODUCTS ** (1 / len(paths))))
        for together in itertools.product(*(choices[path][:size] for path in paths)):
            changed = value
            for path, new in zip(paths, together, strict=True):
                changed = replaced(changed, path, new)
            yield changed


def choices_for(tests: list[Tested], paths: Iterable[Place], more: Iterable[Any] = ()) -> dict[Place, list[Any]]:
    """Return for each place values that the tests of a line may want there."""
    more, found = list(more), {}
    for path in paths:
        texts = {test.text: test.state or {} for test in tests if path in paths_in(test.text)}
        states = list(texts.values())
        found[path] = unique(
            value for state in states[-1:] for value in candidates(texts, merged(states) if states else state, more)
        )
    return found


def merged(states: list[State]) -> State:
    """Return a state that has what all these have: each rule file has its own."""
    both = {name: value for state in states for name, value in state["s"].items()}
    return states[-1] | {"s": both}
