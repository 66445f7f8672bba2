"""Files that change how a result is judged: parameter files of the official package checker, and scaling.json.

Parameter files have lines that ask to leave a check out; they are read, never run. scaling.json has the committee's
factor on a score; it is read and shown, never written.

The official tool obeys `rcp-bypass` and `seed-checker-bypass` in the folders of a system and of a result, if it is the
last line and has no line ending. Published files hold `rcp_bypass` at the top of the organisation's folder, where a
script of the round passes each line to the tool as an option.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import unicodedata
from typing import Any, Final, NamedTuple

from common.tree import ANYWHERE, RefusedFileError, Tree
from common.values import is_number
from compliance.model.layout import PARAMETERS_FILE
from compliance.model.package_files import FILE, LINK, PackageEntry

RCP_BYPASS: Final = "rcp-bypass"
SEED_BYPASS: Final = "seed-checker-bypass"
MAX_BYTES: Final = 64 << 10
_NO_LETTERS: Final = re.compile("[^a-z]+")


class Bypass(NamedTuple):
    """A line that asks to leave a check out. folder, name: of the file, both relative to the organisation's folder."""

    path: str
    line: int
    text: str
    folder: str
    name: str

    @property
    def about_convergence(self) -> bool:
        """Whether the line means the convergence test."""
        return "rcp" in _ascii_letters(self.text)

    def covers(self, folder: str) -> bool:
        """Tell whether a folder, relative to the organisation's, lies below that of the file."""
        return not self.folder or folder == self.folder or folder.startswith(self.folder + "/")

    def __str__(self) -> str:
        return f"{self.name} line {self.line}: {self.text}"


class ParameterFile(NamedTuple):
    """A parameter file. obeyed: what the official tool would leave out if it read the file."""

    folder: str
    exact: bool
    asked: tuple[Bypass, ...]
    obeyed: frozenset[str]


def read_parameters(root: str, contents: list[PackageEntry], tree: Tree = ANYWHERE) -> list[ParameterFile]:
    """Return all parameter files in an organisation's folder, in whatever letter case and place."""
    wanted = _ascii_letters(PARAMETERS_FILE)
    candidates = (entry for entry in contents if entry.kind in (FILE, LINK) and "hecker" in entry.name.lower())
    return [_read_file(root, entry, tree) for entry in candidates if _ascii_letters(entry.name).startswith(wanted)]


def _read_file(root: str, entry: PackageEntry, tree: Tree) -> ParameterFile:
    path = os.path.join(root, entry.path)
    text = _read_text(path, tree)
    lines = text.split("\n")
    bypasses = tuple(
        Bypass(path, number, line.strip(), entry.folder, entry.path)
        for number, line in enumerate(lines, 1)
        if "bypass" in _ascii_letters(line) and not line.lstrip().startswith("#")
    )
    obeyed = frozenset(lines[-1:]) & {RCP_BYPASS, SEED_BYPASS}
    return ParameterFile(entry.folder, entry.name == PARAMETERS_FILE, bypasses, obeyed)


def _read_text(path: str, tree: Tree) -> str:
    """Return the beginning of a file, every line ending a line feed; "" for what is not a readable regular file."""
    data = tree.begin(path, MAX_BYTES)
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return re.sub("\r\n?", "\n", data.decode("utf-16" if wide else "utf-8", "replace"))


def _ascii_letters(text: str) -> str:
    """Return the ASCII letters of a text, in lower case: equal for rcp_bypass, --RCP-BYPASS and 'rcp bypass'."""
    return _NO_LETTERS.sub("", unicodedata.normalize("NFKC", text).casefold())


# -- scaling.json ------------------------------------------------------------------------------------------


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
