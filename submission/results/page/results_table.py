"""The tables of results at the top of the page, which page.js can sort and filter."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compliance.formats.table import shortened
from compliance.formats.words import aligned, plain
from compliance.model.layout import STRONG, WEAK
from compliance.model.result_set import ResultSet
from submission.results.page.findings import Site, badge
from submission.results.page.html import Html, element, joined, table_of_kinds
from submission.results.quantities import AnalysedSet
from submission.results.rows import Row

FILTERS: Final = ("round", "benchmark", "division", "organisation", "verdict")
TEXTS: Final = 6
"""Number of text columns at the left of a table."""


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
    values = (
        ("Round", {line.row.round for line in lines}),
        ("Organisation", {line.row.organisation for line in lines}),
    )
    same = {name for name, several in values if len(several) == 1}
    drawn = []
    for scaling, title, head, cells in (
        (STRONG, "Time to train", TIME_HEAD, _time_cells),
        (WEAK, "Throughput", RATE_HEAD, _rate_cells),
    ):
        several = sorted((line for line in lines if line.row.scaling == scaling), key=ResultLine.sort_key)
        if several:
            rows = [(line, (*_name_cells(line, site), *cells(line))) for line in several]
            drawn.append(_table(title, (*NAMES_HEAD, *head), rows, same))
    return drawn


NAMES_HEAD: Final = ("Verdict", "Round", "Benchmark", "Division", "Organisation", "System")
TIME_HEAD: Final = (
    "Accelerators", "Batch size", "Time to train, min", "Normalised, min", "Scaled, min", "Staging, min",
    "With staging, min", "Epochs to target", "Energy, kJ", "Runs", "Reference",
)  # fmt: skip
RATE_HEAD: Final = (
    "Accelerators", "Per model", "Models", "Time for all, min", "Models per min", "Normalised, per min",
    "Staging, min", "With staging, min", "Epochs to target", "Energy, kJ", "Runs", "Reference",
)  # fmt: skip
LONG: Final = ("System", "Reference")
"""Columns of text that may be broken into lines."""


def _name_cells(line: ResultLine, site: Site) -> tuple[object, ...]:
    row = line.row
    verdict = joined([badge(row.verdict), *(element("div", state, class_="quiet") for state in line.results.states)])
    benchmark = joined([row.benchmark, " ", element("span", "mini", class_="tag")]) if row.mini else row.benchmark
    framework = _with_title(short_framework(row.framework), row.framework)
    name = system(line, site, model(row), framework)
    return (verdict, row.round, benchmark, row.division, breakable(row.organisation), name)


def system(line: ResultLine, site: Site, *words: object) -> Html:
    """Return the link to the section of a result, and below it the words that are not empty."""
    link = element("a", breakable(line.system), href=site.address(line.name))
    parts = [word for word in words if word]
    return joined([link, element("div", joined(parts, ", "), class_="quiet") if parts else ""])


def model(row: Row) -> Html | str:
    """Return the short name of the accelerators, or of the processors of a system without; the full one on hover."""
    return _with_title(short_model(row.device), row.device)


def _with_title(short: str, name: str) -> Html | str:
    return short if short == name else element("span", short, title=name)


def breakable(name: str) -> Html:
    """Return a name that may be broken into lines after its punctuation."""
    return joined(re.split(r"(?<=[_+@-])", name), element("wbr"))


def _time_cells(line: ResultLine) -> tuple[object, ...]:
    row = line.row
    return (
        _processors(row),
        _number(row.batch_size),
        "–" if row.minutes is None else row.minutes,
        row.normalised if row.rcp_factor is not None and row.rcp_factor > 1 else "",
        row.scaled,
        *row.staging_cells,
        *_ends(line, str(row.runs)),
    )


def _rate_cells(line: ResultLine) -> tuple[object, ...]:
    row = line.row
    normalised = row.normalised if row.rcp_factor is not None and row.rcp_factor > 1 else None
    return (
        _processors(row),
        ("~" if row.states_whole_system else "") + _number(row.instance_scale),
        _number(row.models),
        "–" if row.minutes is None else row.minutes,
        "–" if row.models_per_minute is None else row.models_per_minute,
        normalised,
        *row.staging_cells,
        # The models are the runs, as long as none is rejected.
        *_ends(line, "" if row.runs == row.models else str(row.runs)),
    )


def _ends(line: ResultLine, runs: str) -> tuple[object, ...]:
    row = line.row
    converged = row.convergence
    if converged is not None and row.convergence_unit != "epochs":
        shown: object = joined([f"{converged:,.0f}", element("br"), row.convergence_unit])
    else:
        shown = converged
    energy = None if row.energy_joules is None else row.energy_joules / 1000
    short_of = element("strong", line.incomplete, class_="label-word") if line.incomplete else runs
    return (shown, energy, short_of, row.rcp)


def _processors(row: Row) -> Html | str:
    """Return the number of accelerators of the system, or of processors if it has none."""
    if row.accelerators == 0:
        return joined([_number(row.processors), element("br"), "CPU" if row.processors == 1 else "CPUs"])
    return _number(row.accelerators)


def _number(value: int | None) -> str:
    return "" if value is None else plain(value)


def _table(
    title: str, head: Sequence[str], rows: Sequence[tuple[ResultLine, tuple[object, ...]]], same: set[str]
) -> Html:
    """Return the table without empty columns and those named in `same`."""
    columns = [
        aligned(cells, 0 if name.startswith("Energy") else 2)
        for name, cells in zip(head, zip(*(cells for _, cells in rows), strict=True), strict=True)
    ]
    kept = [at for at, cells in enumerate(columns) if any(cells) and head[at] not in same]
    kinds = {at: "text long" if head[at] in LONG else "text" if at < TEXTS else "number" for at in kept}
    cells = zip(*(columns[at] for at in kept), strict=True)
    body = [(texts, filtered(line)) for texts, (line, _) in zip(cells, rows, strict=True)]
    return table_of_kinds([head[at] for at in kept], [kinds[at] for at in kept], body, title, "results")


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
