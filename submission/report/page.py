"""The page: header, tables of results, a section for each result, what else there is to say."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Final

from common.provenance import source_hash
from compliance.benchmarks import reference_of
from compliance.formats.findings import all_shown, alone, inputs_by_round, lowered, result_sets, summary
from compliance.formats.words import counted
from compliance.logs.run import Run
from compliance.model.finding import INCOMPLETE
from compliance.model.package import Package
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.version import VERSION
from submission.report.findings import Site, badge, findings
from submission.report.html import Html, disclosure, element, joined
from submission.report.provenance import package_provenance, provenance_of
from submission.report.results_table import ResultLine, filter_form, tables
from submission.report.sections import Context, label, section
from submission.summary.rows import Row, rows

MEANING: Final = {
    "PASS": "Nothing is wrong.",
    "WARN": "No rule is broken; some findings deserve a look.",
    "FAIL": "At least one rule is broken.",
    "MINI": "Runs on the mini problems, which show that everything works. They are no MLPerf results.",
    "INCOMPLETE": "Some results have fewer runs than the rules ask for; make the missing ones.",
}

GLOSSARY: Final = (
    ("Time to train", "Minutes from run_start to run_stop; the mean of the runs without the fastest and the slowest."),
    ("Throughput", "Models trained per minute by many instances at once, from the first start to the last stop."),
    ("Reference", "How many epochs the reference runs needed at this batch size. A result may not be faster than "
     "chance explains; one that is faster than the reference mean and passes is normalised by the ratio."),
    ("Normalised", "Time to train times the ratio of the reference's mean to the result's, where that is above 1."),
    ("Staging", "Time in which data were copied to storage near the processors."),
    ("Time breakdown", "Staging, evaluation, training, initialisation and the rest, from init_start to run_stop; time "
     "in which two overlap counts once."),
)  # fmt: skip
MOST_INPUTS: Final = 20
GENERATOR: Final = '<meta name="generator" content="mlperf-hpc-suite report">'
"""By this the command knows its own pages."""


def render(report: Report, folder: str, title: str = "") -> str:
    """Return the page as HTML; `folder` is where it will lie, for links to files.

    Equal reports give equal pages.
    """
    site = Site(folder)
    context = Context(report, site)
    sets = [*result_sets(report), *single_logs(report)]
    lines = [ResultLine(f"result-{at}", results, _row(results, report)) for at, results in enumerate(sets, 1)]
    body = [
        element("a", "Skip to the results", href="#results", class_="skip"),
        _header(report, lines, title or _title(report)),
        element(
            "main",
            element("section", element("h2", "Results"), filter_form(lines), *tables(lines), id="results"),
            *_packages(report, lines, context),
            _whole(report, site),
            _reading(report, site),
        ),
    ]
    return _document(title or _title(report), joined(body))


def _row(results: ResultSet, report: Report) -> Row:
    """Return the row of one result: the summary of a report that holds no other."""
    return rows(replace(report, sets=[results]))[0]


def _document(title: str, body: Html) -> str:
    style, script = _part("report.css"), _part("report.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = [
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html(GENERATOR),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", style),
    ]
    whole = element("html", element("head", *head), element("body", body, element("script", script)), lang="en")
    return f"<!DOCTYPE html>\n{whole}\n"


def _part(name: str) -> Html:
    return Html(files("submission.report").joinpath(name).read_text(encoding="utf-8"))


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# -- parts of the page -------------------------------------------------------------------------------------


def _title(report: Report) -> str:
    names = dict.fromkeys(package.organisation for package in report.packages)
    return f"Results of {', '.join(names)}" if 0 < len(names) <= 3 else "MLPerf HPC results"


def _header(report: Report, lines: Sequence[ResultLine], title: str) -> Html:
    labels = labels_of(report, lines)
    rounds = ", ".join(dict.fromkeys(round_ for _, round_, _ in report.rounds))
    rules = f"mlperf-hpc-suite {VERSION}, sources {source_hash(('common', 'compliance'))[:12]}"
    said = summary(report, all_shown(report)).partition(": ")[2]
    facts_ = [("Round", rounds), ("Rules", f"{report.profile} profile of {rules}"), ("Found", said)]
    pairs = [element("div", element("dt", name), element("dd", text)) for name, text in facts_]
    return element(
        "header",
        element("div", element("h1", title), _theme(), class_="title"),
        element("p", badge(report.verdict), " ", MEANING[report.verdict], class_="verdict"),
        *(element("p", label(word), " ", MEANING[word], class_="verdict") for word in labels),
        element("dl", *pairs, class_="facts"),
    )


def _theme() -> Html:
    """Return the switch between light and dark; it works by style alone."""
    choices = [
        element(
            "label", element("input", type="radio", name="theme", value=name, id=f"theme-{name}", checked=first), name
        )
        for name, first in (("auto", True), ("light", False), ("dark", False))
    ]
    return element("fieldset", element("legend", "Colours"), *choices, class_="theme")


def labels_of(report: Report, lines: Sequence[ResultLine]) -> list[str]:
    """Return the labels that the whole page carries: INCOMPLETE, MINI."""
    short = any(line.incomplete for line in lines)
    known = [provenance_of(package.root)[0] for package in report.packages]
    declared = any(provenance is not None and not provenance.complete for provenance in known)
    labels = [INCOMPLETE] if (short or declared) and report.verdict != INCOMPLETE else []
    return [*labels, "MINI"] if any(run.mini for run in report.runs) else labels


def single_logs(report: Report) -> Iterator[ResultSet]:
    """Yield the logs that belong to no result as loose sets, one for each round, benchmark and problem."""
    kinds: dict[tuple[str, str | None, str], list[Run]] = {}
    for run in alone(report):
        kinds.setdefault((run.round, run.benchmark, run.variant), []).append(run)
    for (round_, benchmark, variant), runs in kinds.items():
        folder = os.path.commonpath([os.path.dirname(os.path.abspath(run.path)) for run in runs])
        results = ResultSet(folder, round_, report.profile, benchmark=benchmark, variant=variant, loose=True)
        results.runs, results.reference = runs, reference_of(benchmark, variant)
        yield results


def _packages(report: Report, lines: Sequence[ResultLine], context: Context) -> Iterator[Html]:
    """Yield each organisation with its results, then what belongs to no submission."""
    by_set = {id(line.results): line for line in lines}
    for package in report.packages:
        inside = [by_set.pop(id(results)) for results in package.sets if id(results) in by_set]
        head = element("h2", package.organisation, " ", element("span", f"round {package.round}", class_="quiet"))
        parts = [section(line, context) for line in sorted(inside, key=ResultLine.place)]
        yield element("section", head, _package(package, context.site), *parts, class_="package")
    if by_set:
        head = element("h2", "Logs outside of a submission" if report.packages else "Logs")
        yield element("section", head, *(section(line, context) for line in by_set.values()), class_="package")


def _package(package: Package, site: Site) -> Html:
    """Return what concerns the submission as a whole."""
    provenance, problem = provenance_of(package.root)
    parts = [findings(lowered(package.findings, False), package.root, site)]
    parts += [element("p", problem)] if problem else []
    parts += [package_provenance(provenance)] if provenance else []
    return joined(parts)


def _whole(report: Report, site: Site) -> Html:
    """Return the findings between submissions, and what was ignored."""
    ignored: dict[tuple[str, str], int] = {}
    for finding, reason in report.ignored:
        ignored[finding.rule, reason] = ignored.get((finding.rule, reason), 0) + 1
    items = [
        element("li", f"{counted(number, 'finding')} of {rule}: {reason}") for (rule, reason), number in ignored.items()
    ]
    parts = []
    if report.own:
        parts += [element("h2", "Across the submissions"), findings(lowered(report.own, False), site.folder, site)]
    if items:
        parts += [element("h2", "Ignored findings"), element("ul", *items)]
    return element("section", *parts, class_="package") if parts else Html("")


def _reading(report: Report, site: Site) -> Html:
    """Return how to read the page and what it was made from."""
    words = [element("div", element("dt", word), element("dd", meaning)) for word, meaning in GLOSSARY]
    inputs = [
        element("li", *_inputs(paths, site), f": round {round_}, {why}")
        for (round_, why), paths in inputs_by_round(report).items()
    ]
    return element(
        "footer",
        element("h2", "How to read this page"),
        element("dl", *words, class_="glossary"),
        disclosure("What was checked", element("ul", *inputs)),
        element("p", "Links to files work while the logs lie where they lay when the page was made.", class_="quiet"),
    )


def _inputs(paths: Sequence[str], site: Site) -> Iterator[Html]:
    for at, path in enumerate(paths[:MOST_INPUTS]):
        yield joined([", " if at else "", site.link(path, site.folder)])
    if len(paths) > MOST_INPUTS:
        yield Html(f" and {len(paths) - MOST_INPUTS} more")
