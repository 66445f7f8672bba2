"""A table of measured numbers: each with what measured it, when and on what, beside a peer of the same run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from table import mark_missed


@dataclass(frozen=True)
class Number:
    """A row of a table. ratio: more than 1 is better than the peer. goal: what it misses, "" if it misses none."""

    what: str
    value: str
    peer: str = ""
    ratio: str = ""
    goal: str = ""


@dataclass(frozen=True)
class Source:
    """What measured some numbers, when and on what. about: a record, or the part of it that says so."""

    script: str
    about: dict[str, Any]
    numbers: Iterable[Number]


@dataclass(frozen=True)
class Subject:
    """A table. text: what a reader needs to trust its numbers. pages: what has more of them, by path."""

    title: str
    sources: Sequence[Source]
    text: str = ""
    pages: Sequence[str] = ()


def write_subject(subject: Subject, letters: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a subject; columns that no row fills are left out."""
    names = name_sources(subject.sources, letters)
    measured: dict[str, list[str]] = {}
    for name, source in zip(names, subject.sources, strict=True):
        measured.setdefault(f"{source.about['date']}, {letters[source.about['machine']]}", []).append(f"`{name}`")
    said = [f"{', '.join(dict.fromkeys(scripts))}: {when}." for when, scripts in measured.items()]
    more = ", ".join(f"[{path.split('/')[-1]}]({path})" for path in subject.pages)
    yield f"## {subject.title}"
    yield ""
    text = " ".join(filter(None, (*said, subject.text, f"More: {more}." if more else "")))
    yield textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False)
    yield ""
    rows = [
        (name, *write_cells(number))
        for name, source in zip(names, subject.sources, strict=True)
        for number in source.numbers
    ]
    heads = {"by": "---", "what": "---", "this suite": "---:", "peer": "---:", "ratio": "---:"}
    shown = [i for i in range(len(heads)) if any(row[i] for row in rows)]
    if len(set(names)) == 1:
        shown.remove(0)
    for row in (tuple(heads), tuple(heads.values()), *rows):
        yield f"| {' | '.join(row[i] for i in shown)} |"


def name_sources(sources: Sequence[Source], letters: dict[str, str]) -> list[str]:
    """Return the names of the sources on the page: the scripts, with the machine where one has run on several."""
    machines: dict[str, set[str]] = {}
    for source in sources:
        machines.setdefault(source.script, set()).add(letters[source.about["machine"]])
    return [
        source.script if len(machines[source.script]) == 1 else f"{source.script} {letters[source.about['machine']]}"
        for source in sources
    ]


def write_cells(number: Number) -> tuple[str, str, str, str]:
    """Return the cells of a row; the goal that it misses stands beside the ratio, or the value if there is none."""
    value, ratio = number.value, number.ratio
    if number.goal and ratio:
        ratio = f"{mark_missed(ratio, True)} (goal {number.goal})"
    elif number.goal:
        value = f"{mark_missed(value, True)} (goal {number.goal})"
    return number.what, value, number.peer, ratio


def write_ms(seconds: float) -> str:
    milliseconds = 1e3 * seconds
    return f"{milliseconds:,.0f} ms" if milliseconds >= 100 else f"{milliseconds:.1f} ms"


def compare(what: str, ours: float, peer: tuple[str, float], unit: str, digits: str = ".2f") -> Number:
    """Return the row of two amounts of which less is better. peer: name and amount."""
    name, theirs = peer
    return Number(what, f"{ours:{digits}} {unit}", f"{name} {theirs:{digits}} {unit}", f"{theirs / ours:.1f}")
