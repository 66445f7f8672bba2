"""The findings on the page, with excerpts of the log; the provenance of a package and its logs; the files of the page.

Its sections stay on the page, or go into HTML files beside it if they are many.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from common.command import counted
from common.data.manifest import ManifestError
from common.files import open_whole_file
from common.tree import ANYWHERE
from compliance.formats.findings import Group, Shown, extent, grouped, lowered
from compliance.logs.file_kind import InflateError, pieces
from compliance.model.judging import ERROR, FAIL, INCOMPLETE, NOTE, PASS, SKIPPED, WARN, WARNING, Finding
from compliance.model.layout import PROVENANCE_FILE
from compliance.model.package import Provenance, read_provenance
from compliance.model.result_set import ResultSet
from compliance.rules.rule import RULES
from submission.results.page.html import (
    Html,
    disclosure,
    draw_table,
    element,
    file_link,
    generator_tag,
    join_parts,
    render_document,
    shorten_end,
    stream_element,
    theme_switch,
)

MAX_ROWS: Final = 400
MAX_DEPTH: Final = 12


def shown_of(results: ResultSet) -> list[Shown]:
    """Return the set's own findings and those of its logs, as shown."""
    shown_findings = lowered(results.findings, False)
    for run in results.all_runs:
        shown_findings += lowered(run.findings, run.path in results.tolerated)
    return shown_findings


def provenance_of(root: str) -> tuple[Provenance | None, str]:
    """Return the provenance of a package, and the problem if it cannot be read; (None, "") without provenance."""
    try:
        return read_provenance(Path(root)), ""
    except (ManifestError, OSError) as error:
        return None, str(error).replace(root, "").lstrip(f"/{os.sep}") or "cannot be read"


def package_provenance(provenance: Provenance) -> Html:
    """Return the provenance of a package as tables: the package, its logs and configurations."""
    state = "complete" if provenance.complete else "incomplete"
    items = [
        ("package", f"{state}, {len(provenance.files)} files recorded"),
        *provenance.incomplete.items(),
        *((name, f"sources {_shorten_hash(digest)}") for name, digest in provenance.implementations.items()),
    ]
    logs = [
        (
            name,
            _shorten_value(record.seed),
            _shorten_hash(provenance.files[name].sha256 if name in provenance.files else None),
            _shorten_hash(record.source_sha256),
            _shorten_hash(record.git_revision),
            _shorten_hash(record.configuration),
            "yes" if record.redaction else "",
        )
        for name, record in provenance.logs.items()
    ]
    head = ("log", "seed", "hash", "sources", "revision", "configuration", "redacted")
    configurations = list(provenance.configurations.items())[:MAX_ROWS]
    return disclosure(
        f"Provenance ({PROVENANCE_FILE})",
        draw_table(("item", "state"), items, "The package", 2),
        draw_table(head, logs[:MAX_ROWS], "Logs", len(head)),
        _more_rows(len(logs)),
        *(facts_table(f"Configuration {_shorten_hash(name)}", list(list_facts(tree))) for name, tree in configurations),
    )


def _shorten_hash(text: str | None) -> str:
    """Return the first characters of a hash."""
    return "–" if text is None else text[:12]


def _shorten_value(value: Any) -> str:
    """Return a JSON value as text of bounded length."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shorten_end(text, 300)


def _more_rows(number: int) -> Html:
    return element("p", f"and {number - MAX_ROWS} more") if number > MAX_ROWS else Html("")


def list_facts(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield (dotted name, text) of all plain values inside a JSON value."""
    if isinstance(value, Mapping) and value and depth < MAX_DEPTH:
        for key, inside in value.items():
            yield from list_facts(inside, f"{name}.{key}" if name else str(key), depth + 1)
    else:
        yield name, _shorten_value(value)


def shared_facts(several: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the facts of several provenances, with the number of values for those that differ."""
    several_facts = [dict(list_facts(provenance)) for provenance in several if provenance]
    names = dict.fromkeys(name for provenance in several_facts for name in provenance)
    values = {name: {provenance.get(name, "") for provenance in several_facts} for name in names}
    return [
        (name, texts.pop() if len(texts) == 1 else f"differs: {len(texts)} values") for name, texts in values.items()
    ]


def facts_table(summary: str, rows: Sequence[tuple[str, str]]) -> Html:
    """Return the facts as a table that opens after a click."""
    return disclosure(
        summary,
        draw_table(("fact", "value"), rows[:MAX_ROWS], summary, 2),
        _more_rows(len(rows)),
    )


MAX_SHOWN_PLACES: Final = 3
"""Places of a finding that are shown with an excerpt; further ones are links after a click."""
MAX_SHOWN_TEXTS: Final = 4
"""Findings of a rule that are shown at once; further ones after a click."""
MAX_LISTED: Final = 100
"""Findings or places that are listed; further ones are only counted."""
CONTEXT_LINES: Final = 2
"""Lines shown before and after that of a finding."""
MAX_LINE: Final = 240
"""Characters of a line that are shown."""
READ_BYTES: Final = 16 << 20
"""Excerpts are taken only from about this many bytes of a file."""
SIGNS: Final = {
    ERROR: "✕",
    WARNING: "!",
    NOTE: "i",
    SKIPPED: "–",
    FAIL: "✕",
    INCOMPLETE: "…",
    WARN: "!",
    PASS: "✓",
}


@dataclass(slots=True)
class Site:
    """The page and what is linked in it: its folder, the file of each section beside it, how many more excerpts fit."""

    folder: str
    excerpts_left: int = 500
    pages: dict[str, str] = field(default_factory=dict)

    def find_address(self, section: str, finding: str = "") -> str:
        """Return the address of a section, or of a finding in it, for links from the main page."""
        page = self.pages.get(section)
        return f"{f'./{quote(page)}' if page else ''}#{finding or section}"

    def link_file(self, path: str, base: str, line: int = 0) -> Html:
        """Return a link to a file, named relative to `base`."""
        return file_link(path, self.folder, display_name(path, base, line))


def display_name(path: str, base: str, line: int = 0) -> str:
    """Return `path:line`, relative to the folder `base`."""
    if path in ("", "-"):
        name = "standard input" if path else ""
    else:
        name = os.path.relpath(path, base or os.curdir)
        name = os.path.basename(os.path.abspath(path)) if name == os.curdir else name
    return f"{name}:{line}" if line > 0 else name


def draw_badge(word: str) -> Html:
    """Return a verdict or severity as a sign and a word, readable without colour."""
    sign = element("span", SIGNS.get(word, ""), aria_hidden="true")
    return element("span", sign, " ", word, class_=f"badge {word.lower()}")


def finding_id(section: str, rule: str) -> str:
    """Return the id of the first findings of a rule in a section."""
    return f"{section}-{rule}"


def draw_findings(entries: Sequence[Shown], base: str, site: Site, section: str) -> Html:
    """Return all findings: errors and warnings at once, notes and skipped rules after a click.

    section: the id of where they stand.
    """
    major, minor = grouped(entries, ERROR, WARNING), grouped(entries, NOTE, SKIPPED)
    drawn: set[str] = set()

    def draw(group: Group) -> Html:
        name = finding_id(section, group.rule)
        first = name not in drawn
        drawn.add(name)
        return _draw_group(group, base, site, name if first else None)

    parts = [draw(group) for group in major]
    notes, skipped = (sum(len(g.entries) for g in minor if g.severity == kind) for kind in (NOTE, SKIPPED))
    if minor:
        counts = [counted(notes, "note")] if notes else []
        counts += [f"{counted(skipped, 'rule')} not checked"] if skipped else []
        parts.append(disclosure(", ".join(counts), *map(draw, minor), class_="minor"))
    return join_parts(parts) if parts else element("p", "No findings.", class_="quiet")


def _draw_group(group: Group, base: str, site: Site, name: str | None) -> Html:
    rule = RULES.get(group.rule)
    texts = list(group.texts().items())
    parts = [_draw_text(text, entries, base, site) for text, entries in texts[:MAX_SHOWN_TEXTS]]
    if texts[MAX_SHOWN_TEXTS:]:
        items = [_list_item(text, entries, base) for text, entries in texts[MAX_SHOWN_TEXTS:MAX_LISTED]]
        items += [element("li", f"and {len(texts) - MAX_LISTED} more")] if len(texts) > MAX_LISTED else []
        parts.append(
            disclosure(
                f"{len(texts) - MAX_SHOWN_TEXTS} more findings of {group.rule}",
                element("ul", *items),
            )
        )
    texts_of_rule = (("Why:", rule.why), ("How to fix:", group.fix), ("Source:", rule.cite)) if rule else ()
    reasons = [element("p", element("b", label), " ", text) for label, text in texts_of_rule if text]
    head = element(
        "p",
        draw_badge(group.severity),
        " ",
        element("code", group.rule),
        " ",
        group.title,
        class_="rule",
    )
    why = disclosure("Why, and how to fix it", *reasons) if reasons else ""
    return element("div", head, *parts, why, class_="finding", id=name)


def _draw_text(text: str, entries: Sequence[Finding], base: str, site: Site) -> Html:
    first = {(finding.path, finding.line): None for finding in entries}
    places = [_draw_position(path, line, base, site) for path, line in list(first)[:MAX_SHOWN_PLACES] if path]
    others = list(first)[MAX_SHOWN_PLACES:]
    if others:
        links = [site.link_file(path, base, line) for path, line in others[:MAX_LISTED]]
        beyond = [f"and {len(others) - MAX_LISTED} more"] if len(others) > MAX_LISTED else []
        places.append(disclosure(f"{len(others)} more places", join_parts([*links, *beyond], ", ")))
    return element("div", element("p", text), *places, class_="said")


def _list_item(text: str, entries: Sequence[Finding], base: str) -> Html:
    where = display_name(entries[0].path, base, entries[0].line) if entries[0].path else ""
    where = f"{where}; {extent(list(entries))}" if where and entries[1:] else where
    return element("li", text, f" ({where})" if where else "")


def _draw_position(path: str, line: int, base: str, site: Site) -> Html:
    lines = read_excerpt(path, line) if site.excerpts_left > 0 else []
    if not lines:
        return element("p", site.link_file(path, base, line), class_="place")
    site.excerpts_left -= 1
    width = len(str(lines[-1][0]))
    rows = [
        element(
            "mark" if number == line else "span",
            element("span", f"{number:>{width}}", class_="line-number"),
            "  ",
            text,
        )
        for number, text in lines
    ]
    code = element("pre", *rows, tabindex="0")
    return disclosure(display_name(path, base, line), code, site.link_file(path, base), class_="place")


# -- lines of a log ----------------------------------------------------------------------------------------


def read_excerpt(path: str, line: int) -> list[tuple[int, str]]:
    """Return (line number, text) of a line and its context, cut to MAX_LINE; [] if they cannot be read.

    Lines are counted as in the checker: LF, CRLF and CR end a line; gzip is decompressed.
    """
    if path == "-" or line < 1:
        return []
    text, last = bytearray(), line + CONTEXT_LINES
    with suppress(OSError, EOFError, InflateError, zlib.error), ANYWHERE.open(path) as file:
        for piece in pieces(file)[1]:
            text += piece
            if len(text) > READ_BYTES or text.count(b"\n") > last:
                break
    numbered = enumerate(text.splitlines()[:last], 1)
    begins = ((number, content[: 4 * MAX_LINE + 4]) for number, content in numbered if number >= line - CONTEXT_LINES)
    return [(number, shorten_end(begin.decode("utf-8", "replace"), MAX_LINE)) for number, begin in begins]


MOST_CHARACTERS: Final = 4_000_000
"""Characters of the sections in one file; the main page has tables and figures besides."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a section of the page. section: the id of the section. name: the id of something in this piece."""

    section: str
    heading: str
    body: Html
    name: str = ""


def draw_sections(parts: Iterable[Part]) -> Iterator[Html]:
    """Yield each section with its heading and its pieces, which follow one another."""
    for section, several in groupby(parts, attrgetter("section")):
        pieces = list(several)
        head = element("h2", pieces[0].heading)
        yield from stream_element("section", [head, *(piece.body for piece in pieces)], id=section, class_="part")


@dataclass(slots=True)
class Sheets:
    """Takes the sections of a page and writes them into files beside it when they are too many for one.

    headings: of the sections, by id, in their order.
    """

    output: Path
    title: str
    site: Site
    headings: dict[str, str] = field(default_factory=dict)
    _parts: list[Part] = field(default_factory=list)
    _size: int = 0
    _number: int = 1

    def add_part(self, part: Part) -> None:
        """Take the next piece of a section."""
        if self._size + len(part.body) > MOST_CHARACTERS and self._parts:
            self._write_page(is_last=False)
        self.headings.setdefault(part.section, part.heading)
        self._parts.append(part)
        self._size += len(part.body)

    def finish_pages(self) -> Sequence[Part]:
        """Return the pieces for the main page: all, or none if they have become files; remove what an earlier page had.

        Call it once, before a link to a section is made.
        """
        if self._number > 1:
            self._write_page(is_last=True)
        number = self._number + 1
        while is_own_page(self._name_page(number), self.output.name):
            self._name_page(number).unlink()
            number += 1
        return self._parts

    def _name_page(self, number: int) -> Path:
        return self.output.with_name(f"{self.output.stem}-{number}{self.output.suffix}")

    def _write_page(self, is_last: bool) -> None:
        """Write the pieces into the next file."""
        self._number += 1
        path = self._name_page(self._number)
        for part in self._parts:
            self.site.pages.setdefault(part.section, path.name)
            self.site.pages[part.name] = path.name
        links = [("All results", self.output)]
        links += [("Previous page", self._name_page(self._number - 1))] if self._number > 2 else []
        links += [] if is_last else [("Next page", self._name_page(self._number + 1))]
        items = [element("li", element("a", text, href=f"./{quote(target.name)}")) for text, target in links]
        title = f"{self.title}, page {self._number}"
        header = element(
            "header",
            element("div", element("h1", title), theme_switch(), class_="title"),
            element("nav", element("ul", *items), aria_label="Pages", class_="contents"),
        )
        write_page(
            path,
            title,
            chain([header], stream_element("main", draw_sections(self._parts))),
            self.output.name,
        )
        self._parts, self._size = [], 0


def is_own_page(path: Path, main_page: str = "") -> bool:
    """Return whether there is a file, and it is a page of this command: a main page, or one beside `main_page`."""
    return os.path.lexists(path) and generator_tag(main_page).encode() in ANYWHERE.begin(path, 1024)


def check_replaceable(path: Path, main_page: str = "") -> None:
    """Raise FileExistsError if there is something else than such a page. main_page: see `is_own_page`."""
    if os.path.lexists(path) and not is_own_page(path, main_page):
        kind = f"a page beside {main_page}" if main_page else "a page of this command"
        raise FileExistsError(f"{path} exists and is not {kind}; choose another name")


def write_page(path: Path, title: str, body: Iterable[Html], main_page: str = "") -> None:
    """Write a page atomically; FileExistsError if there is another kind of file. main_page: see `is_own_page`."""
    check_replaceable(path, main_page)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_whole_file(path) as file:
        for piece in render_document(title, body, main_page):
            file.write(piece.encode(errors="backslashreplace"))
