"""Translate the expressions of rule files, a small part of Python, into functions that can do nothing else.

Each expression is parsed once and built anew from the forms that are listed here; whatever is not listed is refused,
and the original is never compiled. In what is built there is no attribute and no import. Operators and calls are
functions of this module, which take numbers of bounded size; lists grow to a bounded length, and texts do not grow.

The forms are those of the files of mlperf-logging, whose comments describe them (training_6.1.0/common.yaml).
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable
from typing import Any, Final

LONGEST: Final = 64 << 10
"""Characters of an expression; the longest of the committee has 20,000."""
MOST_NODES: Final = 10_000
DEEPEST: Final = 60
LARGEST: Final = 1 << 64
"""Whole numbers beyond it are not computed with."""
MOST_ITEMS: Final = 10_000
"""Items of a list that the rules make; one has the names of all tensors of a network."""
LARGEST_EXPONENT: Final = 4
WORD: Final = r"[A-Za-z0-9_]{1,100}"
"""What may fill a blank in the name of a rule file."""
Test = Callable[[dict[str, Any], dict[str, Any], float, Callable[[str], None]], Any]
"""A translated expression: a function of the state, the record's value and metadata, its time and `enqueue_config`."""
ARGUMENTS: Final = ("s", "v", "timestamp", "enqueue_config")


class RefusedError(ValueError):
    """An expression has a form that is not allowed; the message says which."""


def _bounded(value: Any) -> Any:
    """Return a number; TypeError for anything else, and for a whole number that is too large."""
    if not isinstance(value, int | float) or (isinstance(value, int) and not -LARGEST <= value <= LARGEST):
        raise TypeError(f"{type(value).__name__} where a number of bounded size is expected")
    return value


def _operate(compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return an operator for numbers of bounded size alone."""
    return lambda left, right: _bounded(compute(_bounded(left), _bounded(right)))


def _add(left: Any, right: Any) -> Any:
    if not isinstance(left, list):
        return _bounded(_bounded(left) + _bounded(right))
    if len(left) + len(right) > MOST_ITEMS or any(isinstance(item, list | dict) for item in right):
        raise TypeError(f"more than {MOST_ITEMS:,} items, or a list in a list")
    return [*left, *right]


def _round(value: Any, digits: int | None = None) -> Any:
    if digits is not None and not -20 <= digits <= 20:
        raise ValueError("rounded to too many digits")
    return round(value, digits)


def _is_integer(value: Any) -> bool:
    return bool(abs(round(value) - value) < 0.00001)  # as the committee's checker


def _fill_name(text: str, *values: Any) -> str:
    """Return a text with blank braces filled, as the name of a file; ValueError for what is no word."""
    words = [str(value) if isinstance(value, str | int | float) else "" for value in values]
    if not all(re.fullmatch(WORD, word) for word in words):
        raise ValueError("not a word")
    return text.format(*words)


OPERATORS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: _add,
    ast.Sub: _operate(operator.sub),
    ast.Mult: _operate(operator.mul),
    ast.Div: _operate(operator.truediv),
    ast.FloorDiv: _operate(operator.floordiv),
    ast.Mod: _operate(operator.mod),
    ast.Pow: _operate(operator.pow),
    ast.BitOr: _operate(operator.or_),
}
CALLS: Final[dict[str, Callable[..., Any]]] = {
    "abs": abs,
    "bool": bool,
    "float": float,
    "int": int,
    "is_integer": _is_integer,
    "isinstance": isinstance,
    "len": len,
    "max": max,
    "min": min,
    "round": _round,
    "sorted": sorted,
}
MATH: Final = {name: getattr(math, name) for name in ("ceil", "floor", "isclose", "log2")}
METHODS: Final = {"get": dict.get, "lower": str.lower}
TYPES: Final = {"int": int, "float": float, "str": str, "bool": bool, "list": list}
GLOBALS: Final[dict[str, Any]] = {
    "__builtins__": {},
    **{f"operate_{kind.__name__}": function for kind, function in OPERATORS.items()},
    **{f"call_{name}": function for name, function in (CALLS | MATH | METHODS).items()},
    **{f"type_{name}": kind for name, kind in TYPES.items()},
    "fill_name": _fill_name,
    "update": dict.update,
}


def translate_test(text: str) -> Test:
    """Return the function of an expression, whose value tells whether a rule holds.

    Raises RefusedError for any other than the allowed forms.
    """
    body = _translate(_parse(text, "eval").body)
    test: Test = _compile(ast.Lambda(_make_arguments(), body))
    return test


def translate_code(text: str) -> Test:
    """Return the function of statements that change the state or enqueue further files; it gives True.

    Raises RefusedError for any other than the allowed forms.
    """
    body = [_translate_statement(statement) for statement in _parse(text, "exec").body]
    lambdas = ast.Tuple([ast.Lambda(_make_arguments(), part) for part in body], ast.Load())
    steps = _compile(lambdas)

    def run(*arguments: Any) -> bool:
        for step in steps:
            step(*arguments)
        return True

    return run


def _make_arguments() -> ast.arguments:
    return ast.arguments([], [ast.arg(name) for name in ARGUMENTS], None, [], [], None, [])


def _compile(node: ast.expr) -> Any:
    with warnings.catch_warnings(action="ignore"):
        code = compile(ast.fix_missing_locations(ast.Expression(node)), "<rule>", "eval")
    return eval(code, dict(GLOBALS))  # what was built above from allowed forms: it makes functions, and runs none


def _parse(text: str, mode: str) -> Any:
    """Return the syntax tree of a text; RefusedError if it is none, or too large."""
    if len(text) > LONGEST:
        raise RefusedError(f"an expression of {len(text):,} characters")
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text.strip(), mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RefusedError(f"no Python expression: {getattr(error, 'msg', None) or 'too deep'}") from None
    level: list[ast.AST] = [tree]
    depth = number = 0
    while level:
        depth, number = depth + 1, number + len(level)
        if depth > DEEPEST or number > MOST_NODES:
            raise RefusedError("an expression that is too deep or too long")
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return tree


def _refuse(node: ast.AST) -> RefusedError:
    text = ast.unparse(node) if isinstance(node, ast.expr | ast.stmt) else type(node).__name__
    return RefusedError(f"{type(node).__name__} is not allowed: {' '.join(text.split())[:60]}")


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(_name(name), list(arguments), [])


def _is_state(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "s"


def _translate(node: ast.expr) -> ast.expr:
    """Return an expression built anew; RefusedError for a form that is not listed here."""
    match node:
        case ast.Constant(value=bool() | float() | str() | None):
            return ast.Constant(node.value)
        case ast.Constant(value=int(number)) if abs(number) <= LARGEST:
            return ast.Constant(number)
        case ast.Name(id="v"):
            return _name("v")
        case ast.Attribute(value=ast.Name(id="ll"), attr="timestamp"):
            return _name("timestamp")
        case ast.Subscript(value=holder, slice=ast.Constant(value=str() | int() as key)):
            return ast.Subscript(_name("s") if _is_state(holder) else _translate(holder), ast.Constant(key), ast.Load())
        case ast.BinOp(op=ast.Pow(), right=right) if not _is_small(right):
            raise RefusedError(f"a power with an exponent that is no number of at most {LARGEST_EXPONENT}")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return _call(f"operate_{type(op).__name__}", _translate(left), _translate(right))
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd() as op, operand=operand):
            return ast.UnaryOp(op, _translate(operand))
        case ast.BoolOp(op=op, values=values):
            return ast.BoolOp(op, [_translate(value) for value in values])
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return ast.Compare(_translate_operand(left), ops, [_translate_operand(each) for each in comparators])
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ast.IfExp(_translate(test), _translate(body), _translate(orelse))
        case ast.Call(func=function, args=arguments, keywords=[]):
            return _translate_call(node, function, arguments)
    raise _refuse(node)


def _is_small(exponent: ast.expr) -> bool:
    match exponent:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) | ast.Constant(value=value):
            return isinstance(value, int | float) and abs(value) <= LARGEST_EXPONENT
    return False


def _translate_operand(node: ast.expr) -> ast.expr:
    """Return what is compared, sorted or counted: an expression, or a list or set of such without lists in it."""
    match node:
        case ast.List(elts=items):
            return ast.List([_translate(item) for item in items], ast.Load())
        case ast.Tuple(elts=items):
            return ast.Tuple([_translate(item) for item in items], ast.Load())
        case ast.Set(elts=items):
            return ast.Set([_translate(item) for item in items])
    return _translate(node)


def _translate_call(node: ast.Call, function: ast.expr, arguments: list[ast.expr]) -> ast.expr:
    match function:
        case ast.Name(id="enqueue_config") if len(arguments) == 1:
            return ast.Call(_name("enqueue_config"), [_translate(arguments[0])], [])
        case ast.Name(id="isinstance") if len(arguments) == 2:
            kind = arguments[1]
            if isinstance(kind, ast.Name) and kind.id in TYPES:
                return _call("call_isinstance", _translate(arguments[0]), _name(f"type_{kind.id}"))
        case ast.Name(id=name) if name in CALLS and name != "isinstance":
            return _call(f"call_{name}", *map(_translate_operand, arguments))
        case ast.Attribute(value=ast.Name(id="math"), attr=name) if name in MATH:
            return _call(f"call_{name}", *map(_translate, arguments))
        case ast.Attribute(value=ast.Constant(value=str(text)), attr="format"):
            if re.fullmatch(r"[^{}]*(?:\{\}[^{}]*)*", text) and text.count("{}") == len(arguments):
                return _call("fill_name", ast.Constant(text), *map(_translate, arguments))
        case ast.Attribute(value=holder, attr=name) if name in METHODS:
            fields = _name("s") if _is_state(holder) and name == "get" else _translate(holder)
            return _call(f"call_{name}", fields, *map(_translate, arguments))
    raise _refuse(node)


def _translate_statement(node: ast.stmt) -> ast.expr:
    """Return an expression that does what a statement does."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=holder, attr="update"), args=[ast.Dict() as fields])):
            if _is_state(holder) and all(isinstance(key, ast.Constant) for key in fields.keys):
                names: list[ast.expr | None] = [
                    ast.Constant(key.value) for key in fields.keys if isinstance(key, ast.Constant)
                ]
                return _call("update", _name("s"), ast.Dict(names, [_translate_stored(each) for each in fields.values]))
        case ast.Expr(value=ast.Call(func=ast.Name(id="enqueue_config")) as call):
            return _translate(call)
        case ast.Assign(targets=[ast.Subscript(value=holder, slice=ast.Constant(value=str(key)))], value=value):
            if _is_state(holder):
                return _store(key, _translate_stored(value))
        case ast.AugAssign(target=ast.Subscript(value=holder, slice=ast.Constant(value=str(key))), op=op, value=value):
            if _is_state(holder) and type(op) in OPERATORS and not isinstance(op, ast.Pow):
                held = ast.Subscript(_name("s"), ast.Constant(key), ast.Load())
                return _store(key, _call(f"operate_{type(op).__name__}", held, _translate_operand(value)))
        case ast.If(test=test, body=body, orelse=orelse):
            parts = [ast.List([_translate_statement(each) for each in part], ast.Load()) for part in (body, orelse)]
            return ast.IfExp(_translate(test), *parts)
    raise _refuse(node)


def _translate_stored(node: ast.expr) -> ast.expr:
    """Return what is stored: an expression, or a list without items."""
    return ast.List([], ast.Load()) if isinstance(node, ast.List) and not node.elts else _translate(node)


def _store(key: str, value: ast.expr) -> ast.expr:
    return _call("update", _name("s"), ast.Dict([ast.Constant(key)], [value]))
