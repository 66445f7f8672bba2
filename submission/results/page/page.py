"""The page: what failed, figures and tables of all results, the analysis, a card for each result, and a glossary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from common.command import clean, counted
from common.provenance import source_hash
from common.rounds import HPC, TITLES, label_round
from common.version import VERSION
from compliance.formats.findings import (
    all_shown,
    describe_unjudged,
    inputs_by_round,
    lowered,
    result_sets,
    summary,
)
from compliance.model.judging import INCOMPLETE
from compliance.model.layout import NEWEST
from compliance.model.package import Package
from compliance.model.report import Report
from submission.results.analysis import Analysis, analyse_report
from submission.results.figures.labels import by_benchmark
from submission.results.figures.panel import HALF
from submission.results.figures.scaling import time_to_solution
from submission.results.page.analysis import WHICH_RUNS, draw_analysis
from submission.results.page.findings import (
    Part,
    Sheets,
    Site,
    check_replaceable,
    draw_badge,
    draw_findings,
    draw_sections,
    package_provenance,
    provenance_of,
    write_page,
)
from submission.results.page.glance import (
    ACROSS,
    FAILED,
    PACKAGE,
    Failure,
    ResultLine,
    draw_best,
    draw_failures,
    draw_tables,
    filter_form,
    package_id,
    read_failures,
)
from submission.results.page.html import (
    Html,
    disclosure,
    draw_table,
    element,
    join_parts,
    make_scrollable,
    stream_element,
    theme_switch,
)
from submission.results.page.sections import draw_card, draw_label
from submission.results.quantities import list_definitions
from submission.results.read_rows import list_rows, row_of, sort_logs

MEANING: Final = {
    "PASS": "No rule is broken.",
    "WARN": "No rule is broken; read the warnings.",
    "PARTIAL": "No rule that counts is broken; others were left out.",
    "FAIL": "At least one rule is broken.",
    "MINI": "Runs on the mini problems, which test the workflow. They are not MLPerf results.",
    "NOT MLPERF": "Benchmarks from outside the suite. Their results are not MLPerf results.",
    "INCOMPLETE": "Some results lack runs, or logs cannot be told apart into results: below is which, and what to do.",
}
ALONE: Final = "Only single logs were judged, not a result."

GLOSSARY: Final = (
    ("Time to train, TTT", "Mean minutes from run_start to run_stop, without the fastest and the slowest run."),
    ("Throughput, TTTa", "Models per minute, trained by many concurrent instances, from the first start to the last "
     "stop: TTTa."),
    ("Score", "Time to train or throughput, normalised where the table of results has a normalised value."),
    ("Reference, RCP", "Mean epochs to converge of the reference runs at this batch size. A result that converges in "
     "fewer epochs than chance allows fails; one between this limit and the reference mean passes and is normalised."),
    ("Normalised", "Time to train multiplied by (reference mean / mean of the result), if this ratio is above 1."),
    ("Staging", "Copying the data to storage close to the processors. Up to round 2.0 it lies in the time of a run; in "
     "3.0 it may lie out of it. Compare results by the time with staging. The minutes of a result are the mean without "
     "the shortest and the longest; T_staging, in the analysis, is the mean of the runs that count by time."),
    ("Epochs and E", "Epochs of a score are those that logs state: the mean without the fewest and the most. E, in the "
     "analysis, counts from 1 and is the mean of the runs that count by time: without the fastest and the slowest."),
    ("Time breakdown", "Initialisation, staging, training, evaluation and the rest, from init_start to run_stop; "
     "overlapping time counts once."),
)  # fmt: skip
MAX_INPUTS: Final = 20
FEW: Final = 3
"""Up to this many results have cards that are open at first."""
MANY_SECTIONS: Final = 8
"""More submissions than this are folded in the list of contents."""
READING: Final = "how-to-read"
"""The id of the glossary."""


def write_report(
    report: Report, output: Path, title: str = "", previous: Report | None = None, analysis: Analysis | None = None
) -> None:
    """Write the page of a report to `output`, and sections beside it if they are many; existing pages are replaced.

    Each file is written atomically, the main page last. Equal reports give equal pages. report: of a check with
    `details`. previous: on the previous round, to compare the best results with. analysis: of the report, None: with
    the known facts and no projections.
    Raises FileExistsError if there is another kind of file, OSError if a page cannot be written, ValueError for a
    report without details.
    """
    check_replaceable(output)
    title = title or _choose_title(report)
    site = Site(str(output.absolute().parent))
    sets, logs = result_sets(report), sort_logs(report)
    every_line = [
        ResultLine(f"result-{at}", results, row_of(results, report), at <= len(sets))
        for at, results in enumerate(sets + logs, 1)
    ]
    lines = every_line[: len(sets)]
    analysis = analysis or analyse_report(report)
    sheets = Sheets(output, title, site)
    for part in chain(draw_analysis(analysis), _draw_packages(report, every_line, site)):
        sheets.add_part(part)
    parts = sheets.finish_pages()
    failures = read_failures(every_line, report)
    times = _times_to_solution(analysis)
    best = list(draw_best(lines, list_rows(previous) if previous else (), site))
    contents = {FAILED: "What failed"} if failures else {}
    contents |= {"times": "Time to solution"} if times else {}
    contents |= {"best": "Best results"} if best else {}
    contents |= {"results": "Results", **sheets.headings, READING: "How to read this page"}
    body = [
        element("a", "Skip to the results", href="#results", class_="skip"),
        _draw_header(report, lines, title, failures, site),
        _draw_contents(contents, site),
        *stream_element(
            "main",
            chain(
                [
                    times,
                    element("section", *best, id="best") if best else Html(""),
                    element(
                        "section",
                        element("h2", "Results"),
                        filter_form(lines),
                        *draw_tables(lines, site),
                        *(element("p", f"{sentence}.") for sentence in describe_unjudged(report)),
                        id="results",
                    ),
                ],
                draw_sections(parts),
            ),
        ),
        _draw_footer(report, site),
    ]
    write_page(output, title, body)


def _times_to_solution(analysis: Analysis) -> Html:
    """Return figure 1 of the analysis, for each benchmark."""
    sets = [each for each in analysis.sets if not each.problem]
    figures = []
    for at, (benchmark, several) in enumerate(by_benchmark(sets).items(), 1):
        if drawing := time_to_solution(several, f"time-{at}", HALF):
            frame = make_scrollable(drawing, f"Time to solution, {benchmark}")
            figures.append(element("figure", frame, class_="plots"))
    if not figures:
        return Html("")
    return element(
        "section",
        element("h2", "Time to solution"),
        element("div", *figures, class_="pairs"),
        id="times",
    )


# -- parts of the page -------------------------------------------------------------------------------------


def _choose_title(report: Report) -> str:
    names = dict.fromkeys(package.organisation for package in report.packages)
    if 0 < len(names) <= 3:
        return f"Results of {', '.join(names)}"
    if any(run.plugin for run in report.runs):
        return "Results"
    suites = {TITLES[run.case.usage] for run in report.runs}
    return f"{' and '.join(sorted(suites)) or TITLES[HPC]} results"


def _draw_header(
    report: Report, lines: Sequence[ResultLine], title: str, failures: Sequence[Failure], site: Site
) -> Html:
    rounds = ", ".join(
        dict.fromkeys(
            label_round(round_) + (f", assumed: {why}; --round sets it" if why == NEWEST else "")
            for _, round_, why, _ in report.rounds
        )
    )
    rules = f"mlperf-hpc-suite {VERSION}, sources {source_hash(('common', 'compliance'))[:12]}"
    facts = [
        ("Round", rounds),
        ("Rules", f"{report.profile} profile of {rules}"),
        ("Findings", summary(report, all_shown(report)).partition(": ")[2]),
    ]
    pairs = [element("div", element("dt", name), element("dd", text)) for name, text in facts]
    meaning = MEANING[report.verdict] if result_sets(report) else f"{ALONE} {MEANING[report.verdict]}"
    return element(
        "header",
        element("div", element("h1", title), theme_switch(), class_="title"),
        element(
            "p",
            draw_badge(report.verdict),
            " ",
            element("a", meaning, href=f"#{FAILED}") if failures else meaning,
            class_="verdict",
        ),
        *(element("p", draw_label(word), " ", MEANING[word], class_="verdict") for word in labels_of(report, lines)),
        draw_failures(failures, site),
        element("dl", *pairs, class_="facts"),
    )


def _draw_contents(headings: Mapping[str, str], site: Site) -> Html:
    """Return the list of contents. headings: by the id of a section."""
    links = {name: element("li", element("a", text, href=site.find_address(name))) for name, text in headings.items()}
    packages = [name for name in links if name.startswith(PACKAGE)]
    if len(packages) > MANY_SECTIONS:
        folded = disclosure(
            f"{len(packages)} submissions",
            element("ul", *(links.pop(name) for name in packages)),
        )
        links = {**links, READING: element("li", folded), "": links[READING]}
    return element("nav", element("ul", *links.values()), aria_label="Contents", class_="contents")


def labels_of(report: Report, lines: Sequence[ResultLine]) -> list[str]:
    """Return the labels of the whole page: INCOMPLETE, MINI, NOT MLPERF."""
    short = any(line.row.incomplete for line in lines)
    provenances = [provenance_of(package.root)[0] for package in report.packages]
    declared = any(provenance is not None and not provenance.complete for provenance in provenances)
    labels = [INCOMPLETE] if (short or declared) and report.verdict != INCOMPLETE else []
    labels += ["MINI"] if any(run.mini for run in report.runs) else []
    return labels + (["NOT MLPERF"] if any(run.plugin for run in report.runs) else [])


def _draw_packages(report: Report, lines: Sequence[ResultLine], site: Site) -> Iterator[Part]:
    """Yield each submission with its results, the logs outside of submissions, then what is across submissions."""
    by_set = {id(line.results): line for line in lines}
    for at, package in enumerate(report.packages, 1):
        inside = [by_set.pop(id(results)) for results in package.sets if id(results) in by_set]
        section, heading = package_id(at), f"{clean(package.organisation)}, round {label_round(package.round)}"
        yield Part(section, heading, _draw_package(package, site, section))
        for line in sorted(inside, key=ResultLine.sort_key):
            yield Part(section, heading, draw_card(line, site, len(lines) <= FEW), line.name)
    heading = "Logs outside of a submission" if report.packages else "Logs"
    for line in by_set.values():
        yield Part("logs", heading, draw_card(line, site, len(lines) <= FEW), line.name)
    if report.own:
        own = draw_findings(lowered(report.own, False), site.folder, site, ACROSS)
        yield Part(ACROSS, "Across the submissions", own)
    ignored = Counter((finding.rule, reason) for finding, reason in report.ignored)
    items = [
        element("li", f"{counted(number, 'finding')} of {rule}: {reason}") for (rule, reason), number in ignored.items()
    ]
    if items:
        yield Part("ignored", "Ignored findings", element("ul", *items))


def _draw_package(package: Package, site: Site, section: str) -> Html:
    """Return findings and provenance of a whole submission."""
    provenance, problem = provenance_of(package.root)
    parts = [draw_findings(lowered(package.findings, False), package.root, site, section)]
    parts += [element("p", problem)] if problem else []
    parts += [package_provenance(provenance)] if provenance else []
    return join_parts(parts)


def _draw_footer(report: Report, site: Site) -> Html:
    """Return the glossary and the inputs of the page."""
    words = [element("div", element("dt", word), element("dd", meaning)) for word, meaning in GLOSSARY]
    inputs = [
        element("li", f"{kind} ", *_link_inputs(paths, site), f": round {label_round(round_)}, {why}")
        for (round_, why, kind), paths in inputs_by_round(report).items()
    ]
    return element(
        "footer",
        element("h2", "How to read this page"),
        element("dl", *words, class_="glossary"),
        disclosure(
            "Definitions of the quantities of the analysis",
            element("p", WHICH_RUNS),
            draw_table(("name", "unit", "definition", "mean over runs"), list_definitions(), texts=4),
        ),
        disclosure("What was checked", element("ul", *inputs)),
        element(
            "p",
            "Links to files work as long as neither the page nor the logs are moved.",
            class_="quiet",
        ),
        id=READING,
    )


def _link_inputs(paths: Sequence[str], site: Site) -> Iterator[Html]:
    for at, path in enumerate(paths[:MAX_INPUTS]):
        yield join_parts([", " if at else "", site.link_file(path, site.folder)])
    if len(paths) > MAX_INPUTS:
        yield Html(f" and {len(paths) - MAX_INPUTS} more")
