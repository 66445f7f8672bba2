"""Arithmetic of plans, such as "16 * ranks": numbers, names of axes, + - * / // % ** and parentheses, no other code."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from submission.results.page.html import shorten_end

LONGEST: Final = 200
SHOWN: Final = 60
"""Characters of a formula, or of what is wrong in it, in a message."""
OPERATORS: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda base, exponent: float(base) ** float(exponent),  # of whole numbers it could fill the memory
}


def compute_formula(text: str, values: Mapping[str, Any]) -> int | float:
    """Return the number that a formula gives; whole numbers are of type int. values: of the names in it.

    Raises ValueError, which says what is wrong in the formula.
    """
    try:
        if len(text) > LONGEST:
            raise ValueError(f"it is longer than {LONGEST} characters")
        number = _compute(ast.parse(text.strip(), mode="eval").body, values)
        return int(number) if number == int(number) else number
    except (SyntaxError, RecursionError, MemoryError):
        reason = "it is no formula"
    except (ArithmeticError, TypeError, ValueError) as error:
        reason = str(error)
    raise ValueError(
        f"{shorten_end(text, SHOWN)!r}: {shorten_end(reason, SHOWN)}; "
        "expected numbers, names of axes, + - * / // % ** and parentheses"
    )


def _compute(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
            return OPERATORS[type(sign)](_compute(left, values), _compute(right, values))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_compute(operand, values)
        case ast.Name() | ast.Attribute():
            value = values.get(name := ast.unparse(node))
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{name} is no axis with numbers ({', '.join(values) or 'there is none'})")
            return value
    raise ValueError(f"{ast.unparse(node)} is not allowed")
