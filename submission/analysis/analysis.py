"""The whole analysis of trees of results, and the files that it writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from common.files import whole_file
from compliance.formats.json import finite
from compliance.options import Options
from submission.analysis.export import document
from submission.analysis.export import tables as csv_tables
from submission.analysis.facts import known_facts
from submission.analysis.model import AnalysedSet
from submission.analysis.page import Part, render, round_tables
from submission.analysis.sets import analyse
from submission.summary.rows import read_report

PAGE: Final = "analysis.html"
DATA: Final = "analysis.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user gives beside results: files of facts and ceilings, and the units to project to."""

    facts: str | None = None
    ceilings: str | None = None
    project: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Analysis:
    """The analysis of all results. said: what fits, projections and cost model say, in sentences."""

    sets: list[AnalysedSet]
    said: tuple[str, ...]


def analysis(paths: Sequence[str], options: Options, settings: Settings) -> Analysis:
    """Return the analysis of all results below the paths.

    Raises NoResultsError if there are none, UsageError for a path or a file of the user's that cannot be used.
    """
    facts = known_facts(settings.facts)
    sets = analyse(read_report(paths, options), facts)
    return Analysis(sets, ())


def write(found: Analysis, folder: Path) -> list[str]:
    """Write page, data, tables and figures into a folder; return their names, the page first."""
    folder.mkdir(parents=True, exist_ok=True)
    files = dict(_files(found))
    for name, text in files.items():
        with whole_file(folder / name) as part:
            part.write_text(text, encoding="utf-8", errors="backslashreplace")
    return list(files)


def _files(found: Analysis) -> Iterator[tuple[str, str]]:
    others = {DATA: json.dumps(finite(document(found.sets, _parts(found))), indent=1) + "\n"}
    others |= dict(csv_tables(found.sets))
    yield PAGE, render(found.sets, list(_rounds(found.sets)), [], list(others))
    yield from others.items()


def _parts(found: Analysis) -> dict[str, Any]:
    return {}


def _rounds(sets: Sequence[AnalysedSet]) -> Iterator[Part]:
    for round_ in dict.fromkeys(one.row.round for one in sets if not one.problem):
        inside = [one for one in sets if one.row.round == round_]
        yield Part(f"round-{round_.replace('.', '-')}", f"Round {round_}", tuple(round_tables(inside)))
