"""The page: header, tables of results, a section for each result, findings across results, and a glossary."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from common.command import counted
from common.files import write_whole_file
from common.provenance import source_hash
from common.tree import ANYWHERE
from common.version import VERSION
from compliance.formats.findings import all_shown, inputs_by_round, lowered, summary
from compliance.model.finding import INCOMPLETE
from compliance.model.package import Package
from compliance.model.report import Report
from submission.results.figures.labels import by_benchmark
from submission.results.figures.panel import HALF, NARROW
from submission.results.figures.scaling import time_to_solution
from submission.results.page.findings import Site, badge, findings
from submission.results.page.glance import ACROSS, failures, glance, package_id
from submission.results.page.html import Html, asset, disclosure, document, element, joined, theme_switch
from submission.results.page.provenance import package_provenance, provenance_of
from submission.results.page.results_table import ResultLine, filter_form, tables
from submission.results.page.sections import label, section
from submission.results.read_rows import every_set, row_of, rows
from submission.results.rows import Row
from submission.results.sets import analyse, known_facts

MEANING: Final = {
    "PASS": "No rule is broken.",
    "WARN": "No rule is broken; read the warnings.",
    "FAIL": "At least one rule is broken.",
    "MINI": "Runs on the mini problems, which test the workflow. They are not MLPerf results.",
    "INCOMPLETE": "Some results have fewer runs than the rules require; add the missing runs.",
}

GLOSSARY: Final = (
    ("Time to train", "Mean minutes from run_start to run_stop, without the fastest and the slowest run."),
    ("Throughput", "Models per minute, trained by many concurrent instances, from the first start to the last stop."),
    ("Score", "Time to train or throughput, normalised where the table of results has a normalised value."),
    ("Reference", "Mean epochs to converge of the reference runs at this batch size. A result that converges in fewer "
     "epochs than chance allows fails; one between this limit and the reference mean passes and is normalised."),
    ("Normalised", "Time to train multiplied by (reference mean / mean of the result), if this ratio is above 1."),
    ("Staging", "Copying the data to storage close to the processors. Up to round 2.0 it lies in the time of a run; in "
     "3.0 it may lie out of it. Compare results by the time with staging."),
    ("Time breakdown", "Initialisation, staging, training, evaluation and the rest, from init_start to run_stop; "
     "overlapping time counts once."),
)  # fmt: skip
MAX_INPUTS: Final = 20
GENERATOR: Final = Html('<meta name="generator" content="mlperf-hpc-suite report">')
"""The tag by which the command recognises its own pages."""


def render(report: Report, folder: str, title: str = "", previous: Sequence[Row] = ()) -> str:
    """Return the page as HTML.

    folder: of the page, for relative links to files. previous: results of the previous round, for the speed-ups.
    Equal reports give equal pages.
    """
    site = Site(folder)
    sets = enumerate(every_set(report), 1)
    lines = [ResultLine(f"result-{at}", results, row_of(results, report)) for at, results in sets]
    body = [
        element("a", "Skip to the results", href="#results", class_="skip"),
        _header(report, lines, title or _title(report)),
        element(
            "main",
            glance(lines, failures(lines, report), previous, _time_to_solution(report)),
            element("section", element("h2", "Results"), filter_form(lines), *tables(lines), id="results"),
            *_packages(report, lines, site),
            _across_submissions(report, site),
            _footer(report, site),
        ),
    ]
    return document(title or _title(report), joined(body), GENERATOR, asset("submission.results.page", "page.js"))


def _time_to_solution(report: Report) -> Html:
    """Return figure 1 of the analysis, for each benchmark."""
    sets = [one for one in analyse(report, known_facts()) if not one.problem]
    drawings = [
        joined(time_to_solution(found, f"time-{at}", width) for width in (HALF, NARROW))
        for at, found in enumerate(by_benchmark(sets).values(), 1)
    ]
    figures = [element("figure", drawing, class_="plots") for drawing in drawings if drawing]
    return joined([element("h3", "Time to solution"), element("div", *figures, class_="pairs")] if figures else [])


# -- parts of the page -------------------------------------------------------------------------------------


def _title(report: Report) -> str:
    names = dict.fromkeys(package.organisation for package in report.packages)
    return f"Results of {', '.join(names)}" if 0 < len(names) <= 3 else "MLPerf HPC results"


def _header(report: Report, lines: Sequence[ResultLine], title: str) -> Html:
    labels = labels_of(report, lines)
    rounds = ", ".join(dict.fromkeys(round_ for _, round_, *_ in report.rounds))
    rules = f"mlperf-hpc-suite {VERSION}, sources {source_hash(('common', 'compliance'))[:12]}"
    said = summary(report, all_shown(report)).partition(": ")[2]
    facts_ = [("Round", rounds), ("Rules", f"{report.profile} profile of {rules}"), ("Findings", said)]
    pairs = [element("div", element("dt", name), element("dd", text)) for name, text in facts_]
    return element(
        "header",
        element("div", element("h1", title), theme_switch(), class_="title"),
        element("p", badge(report.verdict), " ", MEANING[report.verdict], class_="verdict"),
        *(element("p", label(word), " ", MEANING[word], class_="verdict") for word in labels),
        element("dl", *pairs, class_="facts"),
    )


def labels_of(report: Report, lines: Sequence[ResultLine]) -> list[str]:
    """Return the labels of the whole page: INCOMPLETE, MINI."""
    short = any(line.incomplete for line in lines)
    known = [provenance_of(package.root)[0] for package in report.packages]
    declared = any(provenance is not None and not provenance.complete for provenance in known)
    labels = [INCOMPLETE] if (short or declared) and report.verdict != INCOMPLETE else []
    return [*labels, "MINI"] if any(run.mini for run in report.runs) else labels


def _packages(report: Report, lines: Sequence[ResultLine], site: Site) -> Iterator[Html]:
    """Yield each submission with its results, then the logs outside of submissions."""
    by_set = {id(line.results): line for line in lines}
    for at, package in enumerate(report.packages, 1):
        inside = [by_set.pop(id(results)) for results in package.sets if id(results) in by_set]
        head = element("h2", package.organisation, " ", element("span", f"round {package.round}", class_="quiet"))
        parts = [section(line, report, site) for line in sorted(inside, key=ResultLine.sort_key)]
        yield element("section", head, _package(package, site), *parts, id=package_id(at), class_="package")
    if by_set:
        head = element("h2", "Logs outside of a submission" if report.packages else "Logs")
        yield element("section", head, *(section(line, report, site) for line in by_set.values()), class_="package")


def _package(package: Package, site: Site) -> Html:
    """Return findings and provenance of a whole submission."""
    provenance, problem = provenance_of(package.root)
    parts = [findings(lowered(package.findings, False), package.root, site)]
    parts += [element("p", problem)] if problem else []
    parts += [package_provenance(provenance)] if provenance else []
    return joined(parts)


def _across_submissions(report: Report, site: Site) -> Html:
    """Return the findings across submissions, and the ignored findings."""
    ignored = Counter((finding.rule, reason) for finding, reason in report.ignored)
    items = [
        element("li", f"{counted(number, 'finding')} of {rule}: {reason}") for (rule, reason), number in ignored.items()
    ]
    parts = []
    if report.own:
        parts += [element("h2", "Across the submissions"), findings(lowered(report.own, False), site.folder, site)]
    if items:
        parts += [element("h2", "Ignored findings"), element("ul", *items)]
    return element("section", *parts, id=ACROSS, class_="package") if parts else Html("")


def _footer(report: Report, site: Site) -> Html:
    """Return the glossary and the inputs of the page."""
    words = [element("div", element("dt", word), element("dd", meaning)) for word, meaning in GLOSSARY]
    inputs = [
        element("li", f"{kind} ", *_inputs(paths, site), f": round {round_}, {why}")
        for (round_, why, kind), paths in inputs_by_round(report).items()
    ]
    return element(
        "footer",
        element("h2", "How to read this page"),
        element("dl", *words, class_="glossary"),
        disclosure("What was checked", element("ul", *inputs)),
        element("p", "Links to files work as long as neither the page nor the logs are moved.", class_="quiet"),
    )


def _inputs(paths: Sequence[str], site: Site) -> Iterator[Html]:
    for at, path in enumerate(paths[:MAX_INPUTS]):
        yield joined([", " if at else "", site.link(path, site.folder)])
    if len(paths) > MAX_INPUTS:
        yield Html(f" and {len(paths) - MAX_INPUTS} more")


# -- writing ---------------------------------------------------------------------------------------------------


def write_report(report: Report, output: Path, title: str = "", previous: Report | None = None) -> None:
    """Write the page of a report to `output`, atomically; an existing page is replaced.

    report: of a check with `details`. previous: on the previous round, to compare the best results with.
    Raises FileExistsError if `output` is another kind of file, OSError if the page cannot be written, ValueError for
    a report without details.
    """
    if os.path.lexists(output) and GENERATOR.encode() not in ANYWHERE.begin(output, 1024):
        raise FileExistsError(f"{output} exists and is not a page of this command; choose another name")
    text = render(report, str(output.absolute().parent), title, rows(previous) if previous else ())
    output.parent.mkdir(parents=True, exist_ok=True)
    write_whole_file(output, text, errors="backslashreplace")
