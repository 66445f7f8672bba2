"""Read YAML files that a user gives: small regular files of plain values."""

from __future__ import annotations

import reprlib
from typing import Any, Final

import yaml

from common.config import Loader
from common.errors import UsageError
from common.tree import ANYWHERE, RefusedFileError

MAX_BYTES: Final = 1 << 18
_REPR: Final = reprlib.Repr()
_REPR.maxstring = 120  # names of results are longer than its default


class _PlainLoader(Loader):
    """A loader that refuses anchors and aliases, which make a value of any size of a few lines, and tags."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # of yaml, which has no types for it
        if event.anchor is not None or getattr(event, "tag", None) is not None:
            problem = "anchors (&name), aliases (*name) and tags (!name) are not allowed; write the value itself"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)


def read_mapping(path: str) -> dict[Any, Any]:
    """Return the mapping that a YAML file contains, {} for an empty one; UsageError names file, line and cause."""
    try:
        text = ANYWHERE.read(path, MAX_BYTES).decode("utf-8")
        found = yaml.load(text, Loader=_PlainLoader)
    except RefusedFileError as error:
        raise UsageError(f"{path} cannot be read: it {error.reason}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text; expected YAML") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{path}, line {line}: this is not valid YAML: {error.problem}") from None
    except RecursionError:
        raise UsageError(f"{path}: this is not valid YAML: nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # characters that YAML forbids; numbers beyond Python's limit
        raise UsageError(f"{path}: this is not valid YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict | None):
        raise UsageError(f"{path}: expected `key: value` lines, found a {type(found).__name__}")
    return found or {}


def quoted(value: Any) -> str:
    """Return a value as a message quotes it: cut if it is long."""
    return _REPR.repr(value)
