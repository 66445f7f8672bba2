"""The files of the page: its sections stay on it, or go into HTML files beside it if they are many."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import Final
from urllib.parse import quote

from common.files import open_whole_file
from common.tree import ANYWHERE
from submission.results.page.findings import Site
from submission.results.page.html import Html, document, element, generator_tag, stream, theme_switch

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
        yield from stream("section", [head, *(piece.body for piece in pieces)], id=section, class_="part")


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

    def add(self, part: Part) -> None:
        """Take the next piece of a section."""
        if self._size + len(part.body) > MOST_CHARACTERS and self._parts:
            self._write(is_last=False)
        self.headings.setdefault(part.section, part.heading)
        self._parts.append(part)
        self._size += len(part.body)

    def finish(self) -> Sequence[Part]:
        """Return the pieces for the main page: all, or none if they have become files; remove what an earlier page had.

        Call it once, before a link to a section is made.
        """
        if self._number > 1:
            self._write(is_last=True)
        number = self._number + 1
        while is_own_page(self._path(number), self.output.name):
            self._path(number).unlink()
            number += 1
        return self._parts

    def _path(self, number: int) -> Path:
        return self.output.with_name(f"{self.output.stem}-{number}{self.output.suffix}")

    def _write(self, is_last: bool) -> None:
        """Write the pieces into the next file."""
        self._number += 1
        path = self._path(self._number)
        for part in self._parts:
            self.site.pages.setdefault(part.section, path.name)
            self.site.pages[part.name] = path.name
        links = [("All results", self.output)]
        links += [("Previous page", self._path(self._number - 1))] if self._number > 2 else []
        links += [] if is_last else [("Next page", self._path(self._number + 1))]
        items = [element("li", element("a", text, href=f"./{quote(target.name)}")) for text, target in links]
        title = f"{self.title}, page {self._number}"
        header = element(
            "header",
            element("div", element("h1", title), theme_switch(), class_="title"),
            element("nav", element("ul", *items), aria_label="Pages", class_="contents"),
        )
        write_page(path, title, chain([header], stream("main", draw_sections(self._parts))), self.output.name)
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
        for piece in document(title, body, main_page):
            file.write(piece.encode(errors="backslashreplace"))
