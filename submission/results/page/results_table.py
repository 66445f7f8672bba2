"""The tables of results at the top of the page, which page.js can sort and filter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compliance.formats.table import shortened
from compliance.formats.words import aligned
from compliance.model.layout import STRONG, WEAK
from compliance.model.result_set import ResultSet
from submission.results.columns import HEADINGS, RESULT_COLUMNS, SHOWN
from submission.results.page.findings import Site, badge
from submission.results.page.html import Html, element, joined, table_of_kinds
from submission.results.quantities import AnalysedSet
from submission.results.rows import Difference, Row

FILTERS: Final = ("round", "benchmark", "division", "organisation", "verdict")


@dataclass(frozen=True, slots=True)
class ResultLine:
    """A result on the page: the id of its section, its result set, and its row of the summary."""

    name: str
    results: ResultSet
    row: Row

    @property
    def key(self) -> str:
        """The name of the result in the analysis, which marks it in figures."""
        return AnalysedSet(self.row, self.results.folder, None).full_name

    @property
    def system(self) -> str:
        """The name of the result inside its organisation."""
        return self.row.system or self.results.folder_benchmark or "logs"

    @property
    def incomplete(self) -> str:
        """The number of runs if too few, such as "1 of 10 runs"; "" for logs outside of a submission."""
        return "" if self.results.loose else self.row.incomplete

    def sort_key(self) -> tuple[str, str, str, str, float]:
        """Return the key for sorting: by round, scaling, benchmark and division, best score first."""
        score = self.row.score
        rank = float("inf") if score is None else -score if self.row.scaling == WEAK else score
        return (*self.row.table_order, rank)


def filtered(line: ResultLine) -> dict[str, str]:
    """Return the attributes of a row by which page.js filters, and of `data-result` all else that it is about."""
    row = line.row
    words = (row.organisation, line.system, row.benchmark, row.division, row.accelerator, row.processor, row.framework)
    choices = {f"data_{name}": str(getattr(row, name)) for name in FILTERS}
    return {"data_result": line.key, "data_text": " ".join(words).lower(), **choices}


def filter_form(lines: Sequence[ResultLine]) -> Html:
    """Return the controls of the filter, hidden until page.js runs; nothing for a single result."""
    if len(lines) < 2:
        return Html("")
    search = element("input", type="search", name="text", placeholder="system, accelerator, framework …")
    fields = [element("label", "Find ", search)]
    for name in FILTERS:
        values = sorted({str(getattr(line.row, name)) for line in lines})
        if len(values) > 1:
            options = [element("option", value or "unknown", value=value) for value in values]
            choice = element("select", element("option", "all", value="*"), *options, name=name)
            fields.append(element("label", f"{name.capitalize()} ", choice))
    count = element("output", f"{len(lines)} of {len(lines)} results", aria_live="polite")
    return element("form", *fields, count, id="filter", class_="filter", hidden=True)


def tables(lines: Sequence[ResultLine], site: Site) -> list[Html]:
    """Return the non-empty tables of time to train and throughput."""
    # Round and organisation are in the header of the page if all results share them.
    same = {name for name in ("Round", "Organisation") if len({getattr(line.row, name.lower()) for line in lines}) == 1}
    drawn = []
    for scaling, title in TITLES.items():
        several = sorted((line for line in lines if line.row.scaling == scaling), key=ResultLine.sort_key)
        if several:
            drawn.append(_table(title, scaling, several, site, same))
    return drawn


TITLES: Final = {STRONG: "Time to train", WEAK: "Throughput"}
NAMES_HEAD: Final = ("Verdict", "Round", "Benchmark", "Division", "Organisation", "System")
KEYS: Final = {
    scaling: [key for key in keys if key not in ("verdict", "organisation", "system", "states")]
    for scaling, keys in SHOWN.items()
}
"""The columns of numbers: those of the summary without names and states."""


def _name_cells(line: ResultLine, site: Site) -> tuple[object, ...]:
    row = line.row
    verdict = joined([badge(row.verdict), *(element("div", state, class_="quiet") for state in line.results.states)])
    framework = _with_title(short_framework(row.framework), row.framework)
    name = system(line, site, model(row), framework)
    return (verdict, row.round, joined([row.benchmark, tags(row)]), row.division, breakable(row.organisation), name)


def _table(title: str, scaling: str, lines: Sequence[ResultLine], site: Site, same: set[str]) -> Html:
    """Return the table without empty columns and those named in `same`."""
    head: list[object] = list(NAMES_HEAD)
    columns = [list(cells) for cells in zip(*(_name_cells(line, site) for line in lines), strict=True)]
    kinds = ["text long" if name == "System" else "text" for name in NAMES_HEAD]
    for key in KEYS[scaling]:
        column = RESULT_COLUMNS[key]
        name, unit = HEADINGS[scaling].get(key, (column.name, column.unit))
        head.append(element("span", " ".join(filter(None, (name, unit))), title=column.meaning))
        columns.append(aligned([_cell(line, key) for line in lines], column.decimals))
        kinds.append("text long rcp" if key == "rcp" else "number")
    kept = [at for at, cells in enumerate(columns) if any(cells) and head[at] not in same]
    rows = [([columns[at][row] for at in kept], filtered(line)) for row, line in enumerate(lines)]
    return table_of_kinds([head[at] for at in kept], [kinds[at] for at in kept], rows, title, "results")


def _cell(line: ResultLine, key: str) -> object:
    if key == "runs" and line.incomplete:
        return element("strong", line.incomplete, class_="label-word")
    return line.row.rcp if key == "rcp" else RESULT_COLUMNS[key].cell(line.row)


def system(line: ResultLine, site: Site, *words: object) -> Html:
    """Return the link to the section of a result, and below it the words that are not empty."""
    link = element("a", breakable(line.system), href=site.address(line.name))
    parts = [word for word in words if word]
    return joined([link, element("div", joined(parts, ", "), class_="quiet") if parts else ""])


def tags(item: Row | Difference) -> Html:
    """Return the marks of what is no MLPerf result: of a mini problem, and of a benchmark from outside the suite."""
    words = {"mini": item.mini, "not MLPerf": item.plugin}
    return joined([joined([" ", element("span", word, class_="tag")]) for word, applies in words.items() if applies])


def model(row: Row) -> Html | str:
    """Return the short name of the accelerators, or of the processors of a system without; the full one on hover."""
    return _with_title(short_model(row.device), row.device)


def _with_title(short: str, name: str) -> Html | str:
    return short if short == name else element("span", short, title=name)


def breakable(name: str) -> Html:
    """Return a name that may be broken into lines after its punctuation."""
    return joined(re.split(r"(?<=[_+@-])", name), element("wbr"))


# -- short names, so that they fit the table -------------------------------------------------------------------


VENDOR: Final = re.compile(r"\((?:R|TM)\)|\b(?:NVIDIA|Tesla|Quadro|FUJITSU|Intel|AMD|IBM|Processors?|CPU|GPU)\b", re.I)
VARIANT: Final = re.compile(r"\s*@.*|\s*\(.*|\s*\b\d+-Core.*|(?:\s*-\s*|\s+)(?:SXM|PCIe|NVL|\d+ ?GB).*", re.I)
"""What follows the name of a model: clock, form factor, size of the memory."""
FRAMEWORKS: Final = {
    "torch": "PyTorch", "tensorflow": "TensorFlow", "mxnet": "MXNet", "jax": "JAX", "paddle": "PaddlePaddle",
    "mindspore": "MindSpore",
}  # fmt: skip
VERSION: Final = re.compile(r"\d+(?:\.\d+)+")
LONGEST: Final = 20


def short_model(name: str) -> str:
    """Return the model of an accelerator or processor: A100 for NVIDIA A100-SXM4-40GB (400W)."""
    model = " ".join(VARIANT.sub("", VENDOR.sub(" ", name)).split())
    return shortened(model or name, LONGEST)


def short_framework(name: str) -> str:
    """Return a framework and its version: PyTorch 22.08 for PyTorch NVIDIA Release 22.08."""
    known = next((text for word, text in FRAMEWORKS.items() if word in name.lower()), "")
    version = VERSION.search(name)
    return shortened(f"{known} {version[0]}" if known and version else known or name, LONGEST)
