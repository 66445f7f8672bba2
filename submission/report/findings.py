"""Findings as parts of a page: each says what was found where, with the log's lines around it."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from compliance.formats.findings import Group, Shown, extent, grouped
from compliance.formats.words import counted
from compliance.model.finding import ERROR, FAIL, INCOMPLETE, NOTE, PASS, SKIPPED, WARN, WARNING, Finding
from compliance.rule import RULES
from submission.report.html import Html, disclosure, element, escaped, file_link, joined

FEW_PLACES: Final = 3
"""So many places of one finding come with an excerpt."""
FEW_TEXTS: Final = 4
"""So many findings of one rule are shown at once, further ones after a click."""
MOST: Final = 100
"""What is more often found is counted."""
MOST_EXCERPTS: Final = 500
AROUND: Final = 2
"""So many lines are shown before and after the one that is meant."""
LONGEST_LINE: Final = 240
"""Letters of a line that are shown."""
READ_CHARACTERS: Final = 16 << 20
"""What lies deeper in a file is not looked for."""
PIECE: Final = 1 << 16
SIGNS: Final = {ERROR: "✕", WARNING: "!", NOTE: "i", SKIPPED: "–", FAIL: "✕", INCOMPLETE: "…", WARN: "!", PASS: "✓"}


@dataclass(slots=True)
class Site:
    """Where the page will lie, and how many more excerpts it may hold."""

    folder: str
    excerpts_left: int = MOST_EXCERPTS

    def link(self, path: str, base: str, line: int = 0) -> Html:
        """Return a link to a file, called as seen from `base`."""
        return file_link(path, self.folder, called(path, base, line))


def called(path: str, base: str, line: int = 0) -> str:
    """Return `path:line` as seen from a folder."""
    if path in ("", "-"):
        name = "standard input" if path else ""
    else:
        name = os.path.relpath(path, base or os.curdir)
        name = os.path.basename(os.path.abspath(path)) if name == os.curdir else name
    return f"{name}:{line}" if line > 0 else name


def badge(word: str) -> Html:
    """Return a verdict or severity as a sign and a word, so that colour is not needed."""
    sign = element("span", SIGNS.get(word, ""), aria_hidden="true")
    return element("span", sign, " ", word, class_=f"badge {word.lower()}")


def findings(found: Sequence[Shown], base: str, site: Site) -> Html:
    """Return all findings: errors and warnings in full, notes and skipped rules after a click."""
    grave = [_group(group, base, site) for group in grouped(found, ERROR, WARNING)]
    minor = grouped(found, NOTE, SKIPPED)
    notes, skipped = (sum(len(g.shown) for g in minor if g.severity == kind) for kind in (NOTE, SKIPPED))
    if minor:
        said = [counted(notes, "note")] if notes else []
        said += [f"{counted(skipped, 'rule')} not checked"] if skipped else []
        grave.append(disclosure(", ".join(said), *(_group(group, base, site) for group in minor), class_="minor"))
    return joined(grave) if grave else element("p", "Nothing to report.", class_="quiet")


def _group(group: Group, base: str, site: Site) -> Html:
    rule = RULES.get(group.rule)
    texts = list(group.texts().items())
    shown = [_text(text, found, base, site) for text, found in texts[:FEW_TEXTS]]
    rest = [_bare(text, found, base) for text, found in texts[FEW_TEXTS:MOST]]
    if rest:
        beyond = [element("li", f"and {len(texts) - MOST} more")] if len(texts) > MOST else []
        shown.append(disclosure(f"{len(texts) - FEW_TEXTS} more of {group.rule}", element("ul", *rest, *beyond)))
    reasons = (
        [
            element("p", element("b", label), " ", text)
            for label, text in (("Why:", rule.why), ("How to fix:", rule.fix), ("Source:", rule.cite))
            if text
        ]
        if rule
        else []
    )
    head = element("p", badge(group.severity), " ", element("code", group.rule), " ", group.title, class_="rule")
    return element(
        "div", head, *shown, disclosure("why, and how to fix", *reasons) if reasons else "", class_="finding"
    )


def _text(text: str, found: Sequence[Finding], base: str, site: Site) -> Html:
    first = {(finding.path, finding.line): None for finding in found}
    places = [_place(path, line, base, site) for path, line in list(first)[:FEW_PLACES] if path]
    others = list(first)[FEW_PLACES:]
    if others:
        links = [site.link(path, base, line) for path, line in others[:MOST]]
        beyond = [f"and {len(others) - MOST} more"] if len(others) > MOST else []
        places.append(disclosure(f"{len(others)} more places", joined([*links, *beyond], ", ")))
    return element("div", element("p", text), *places, class_="said")


def _bare(text: str, found: Sequence[Finding], base: str) -> Html:
    where = called(found[0].path, base, found[0].line) if found[0].path else ""
    return element(
        "li", text, f" ({where}; {extent(list(found))})" if len(found) > 1 else f" ({where})" if where else ""
    )


def _place(path: str, line: int, base: str, site: Site) -> Html:
    lines = excerpt(path, line) if site.excerpts_left > 0 else []
    if not lines:
        return element("p", site.link(path, base, line), class_="place")
    site.excerpts_left -= 1
    rows = list(_lines(lines, line))
    text = element("pre", joined(rows), tabindex="0")
    return disclosure(called(path, base, line), text, site.link(path, base), class_="place")


def _lines(lines: Sequence[tuple[int, str]], line: int) -> Iterator[Html]:
    width = len(str(lines[-1][0]))
    for number, text in lines:
        content = joined([element("span", f"{number:>{width}}", class_="line-number"), "  ", escaped(text)])
        yield element("mark" if number == line else "span", content)


# -- lines of a log ----------------------------------------------------------------------------------------


def excerpt(path: str, line: int) -> list[tuple[int, str]]:
    """Return (line number, text) of the lines around one, cut to a bounded length; [] if they cannot be read.

    Lines are counted as the checker counts them (LF, CRLF and CR end a line; gzip is recognised).
    """
    if path == "-" or line < 1:
        return []
    try:
        with open(path, "rb") as raw:
            compressed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream: BinaryIO = gzip.GzipFile(fileobj=raw) if compressed else raw  # type: ignore[assignment]  # reads bytes
            return [found for found in _first_lines(stream, line + AROUND) if found[0] >= line - AROUND]
    except (OSError, EOFError, zlib.error):
        return []


def _first_lines(stream: BinaryIO, last: int) -> Iterator[tuple[int, str]]:
    """Yield (number, beginning) of the lines up to `last`."""
    text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline=None)
    number, begin, read = 1, "", 0
    while number <= last and read < READ_CHARACTERS and (piece := text.readline(PIECE)):
        read += len(piece)
        begin = begin or piece.rstrip("\n")[: LONGEST_LINE + 1]
        if piece.endswith("\n"):
            yield number, _cut(begin)
            number, begin = number + 1, ""
    if begin:
        yield number, _cut(begin)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_LINE else text[:LONGEST_LINE] + " …"
