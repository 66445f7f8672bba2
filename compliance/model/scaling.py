"""The committee's file scaling.json in a result folder: a factor on the score. Read and shown, never written."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from common.tree import ANYWHERE, RefusedFileError, Tree
from common.values import is_number

MAX_BYTES: Final = 64 << 10


class Scaling(NamedTuple):
    """What a scaling.json says. problem: why the factor is not used, "" if it is; line: where the problem is."""

    path: str
    factor: float | None = None
    problem: str = ""
    line: int = 0


def read_scaling(path: str, strict: bool, tree: Tree = ANYWHERE) -> Scaling | None:
    """Return what the file says, None if there is none; never raises.

    tree: the package that the file belongs to. strict: a factor below 1, which would improve the score, is a problem;
    the official tool multiplies by any number.
    """
    if not path:
        return None
    try:
        document = json.loads(tree.read(path, MAX_BYTES).decode("utf-8-sig", "replace"))
    except json.JSONDecodeError as error:
        return Scaling(path, None, f"is not valid JSON: {error.msg}", error.lineno)
    except RefusedFileError as error:
        return Scaling(path, None, error.reason)
    except OSError as error:
        return Scaling(path, None, f"cannot be read: {error.strerror}")
    except (ValueError, RecursionError) as error:
        return Scaling(path, None, "is nested too deeply" if isinstance(error, RecursionError) else str(error))
    return _judge_document(path, document, strict)


def _judge_document(path: str, document: Any, strict: bool) -> Scaling:
    if not isinstance(document, dict):
        return Scaling(path, None, f"contains a JSON {type(document).__name__}, not an object")
    if "scaling_factor" not in document:
        return Scaling(path, None, "has no member scaling_factor")
    factor = document["scaling_factor"]
    if not is_number(factor):
        simple = factor is None or isinstance(factor, str | bool | float)
        stated = json.dumps(factor)[:60] if simple else f"of JSON type {type(factor).__name__}"
        return Scaling(path, None, f"says scaling_factor {stated}, not a finite number")
    if strict and factor < 1:
        return Scaling(path, None, f"says scaling_factor {factor:g}, which would improve the score; it is not used")
    return Scaling(path, float(factor))
