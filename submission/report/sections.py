"""The section of a result on the page: charts, score, findings and system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from common.values import is_number
from compliance.formats.findings import shown_of
from compliance.formats.words import STAGED, aligned, convergence_text, matters, minutes, plain, runs_text
from compliance.logs.timeline import PARTS
from compliance.model.finding import INCOMPLETE
from compliance.model.layout import WEAK
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.model.score import IN, Throughput, TimeToTrain
from compliance.model.system import OPEN
from submission.report.charts import (
    MANY,
    MANY_BARS,
    STATES,
    Curve,
    Goal,
    breakdown,
    convergence,
    quality_by_epoch,
    spread,
)
from submission.report.findings import Site, badge, findings
from submission.report.provenance import facts_table, shared_facts
from submission.report.results_table import ResultLine, filtered
from submission.report.score_text import how_scored, run_name, run_states
from submission.web.html import Html, disclosure, element, joined, shorten_end, table

Score = TimeToTrain | Throughput | None
MAX_VALUE: Final = 2000
"""Characters of a value of a system description that are shown."""


def section(line: ResultLine, report: Report, site: Site) -> Html:
    """Return the section of a result of a report. site: the place of the page."""
    results, name = line.results, line.name
    curves, goal = curves_of(results), goal_of(results)
    found = shown_of(results, report.tolerated)
    provenance = shared_facts([run.details.provenance for run in results.runs])
    head = element("h3", badge(line.row.verdict), " ", *_title(line))
    body = [
        key_figures(results),
        element("div", *charts(name, curves, goal, results.score), class_="charts"),
        element("h4", "Score"),
        *(element("p", sentence) for sentence in how_scored(results)),
        disclosure("Table of the runs", runs_table(curves, goal.unit if goal else "epochs", _clock(results.score))),
        element("h4", "Findings"),
        findings(found, results.folder, site),
        *description(results, site),
        *([facts_table("Provenance in the logs", provenance)] if provenance else []),
    ]
    return element("section", head, *body, id=name, class_="result", **filtered(line))


def _title(line: ResultLine) -> list[object]:
    row = line.row
    kind = " throughput" if row.scaling == WEAK else ""
    words = [element("span", row.benchmark or "unknown benchmark", kind, class_="benchmark"), " on ", line.system]
    words += [element("span", f" {row.division}", class_="quiet")] if row.division else []
    labels = [INCOMPLETE] if line.incomplete and row.verdict != INCOMPLETE else []
    return [*words, *(joined([" ", label(word)]) for word in [*labels, *(["MINI"] if row.mini else [])])]


def label(word: str) -> Html:
    """Return a label in capitals: INCOMPLETE, MINI."""
    return element("strong", word, class_="label-word")


def curves_of(results: ResultSet) -> list[Curve]:
    """Return the curves of all runs, in the order of the set."""
    state = run_states(results)
    curves = []
    for run in results.runs:
        points = tuple(
            (float(at if found.epoch is None else found.epoch), float(found.value))
            for at, found in enumerate(run.details.evaluations, 1)
        )
        name = run_name(run.path, results.folder if results.loose else "")
        curves.append(Curve(name, state[run.path], points, run.minutes, run.details.seconds))
    return curves


def goal_of(results: ResultSet) -> Goal | None:
    """Return what the result is compared with; None if its benchmark is unknown."""
    if results.reference is None:
        return None
    verdict = results.judged_convergence
    mean = verdict.submission_mean if verdict else None
    if mean is None and isinstance(results.score, TimeToTrain):
        mean = results.score.convergence
    point = verdict.point if verdict else None
    return Goal(
        results.reference.target,
        results.reference.epoch_unit,
        mean if mean is not None and is_number(mean) else None,
        point.mean if point else None,
        point.min_mean if point else None,
    )


def _clock(score: Score) -> str:
    """Return where the staging lies, as the end of a title; "" without any."""
    return f" (staging {STAGED[score.staging_clock]})" if score and score.staging_clock else ""


# -- figures -----------------------------------------------------------------------------------------------


def key_figures(results: ResultSet) -> Html:
    """Return the list of the most important numbers."""
    score, unit = results.score, results.reference.epoch_unit if results.reference else ""
    pairs: list[tuple[str, str]] = []
    if isinstance(score, TimeToTrain):
        pairs.append(("time to train", f"{minutes(score.minutes)} min" if score.minutes is not None else "none"))
        if score.normalization > 1:
            pairs.append(("normalised", f"{minutes(score.normalized)} min"))
        pairs += _staging(score)
        if score.convergence is not None:
            pairs.append(("convergence", f"{plain(score.convergence)} {unit}"))
    elif isinstance(score, Throughput):
        rate = score.models_per_minute
        pairs.append(("throughput", f"{rate:.4g} models/min" if rate is not None else "none"))
        pairs += _staging(score)
        whole = "~" if results.states_whole_system else ""
        pairs.append(("accelerators per model", f"{whole}{plain(score.instance_scale)}"))
    pairs.append(("runs", runs_text(results)))
    pairs.append(("global batch size", plain(results.batch_size)))
    pairs.append(("reference", convergence_text(results)))
    shown = [element("div", element("dt", name), element("dd", text)) for name, text in pairs if text]
    return element("dl", *shown, class_="figures")


def _staging(score: TimeToTrain | Throughput) -> list[tuple[str, str]]:
    """Return how long staging took and where it lies, and the time with it if the score lacks it."""
    if not matters(score.staging_minutes):
        return []
    pairs = [("staging", f"{minutes(score.staging_minutes)} min {STAGED.get(score.staging_clock, '')}".rstrip())]
    if score.staging_clock not in ("", IN) and score.time_with_staging_minutes is not None:
        pairs.append(("with staging", f"{minutes(score.time_with_staging_minutes)} min"))
    return pairs


def charts(name: str, curves: Sequence[Curve], goal: Goal | None, score: Score) -> list[Html]:
    """Return the figures for which the logs have data."""
    shown = []
    if goal and any(curve.points for curve in curves):
        keys = _state_keys(curves) if sum(bool(c.points) for c in curves) <= MANY else MANY_KEYS
        keys = [*keys, ("target", "target"), *(REFERENCE_KEYS if goal.band else [])]
        table_ = disclosure("Table", convergence_table(curves, goal.unit))
        shown.append(_figure("Convergence", convergence(f"{name}-convergence", curves, goal), keys, table_))
    if any(curve.minutes is not None for curve in curves):
        keys = _state_keys(curves) if len(curves) <= MANY else []
        mean = score.minutes if isinstance(score, TimeToTrain) else None
        shown.append(_figure(f"Spread of the runs{_clock(score)}", spread(f"{name}-spread", curves, mean), keys))
    if any(curve.seconds for curve in curves):
        keys = [(f"part {part}", part) for part in PARTS]
        title = "Time breakdown" + (" (selected runs)" if len(curves) > MANY_BARS else "")
        shown.append(_figure(title, breakdown(f"{name}-time", curves), keys))
    return shown


REFERENCE_KEYS: Final = [("band", "means below the limit fail: too fast"), ("reference", "mean of the reference")]
MANY_KEYS: Final = [("run kept", "median"), ("area", "middle 80 %"), ("end kept", "ends of runs")]


def _state_keys(curves: Sequence[Curve]) -> list[tuple[str, str]]:
    found = {curve.state for curve in curves}
    return [(f"end {state}", text) for state, text in STATES.items() if state in found]


def _figure(title: str, chart: Html, keys: Sequence[tuple[str, str]], *more: Html) -> Html:
    items = [element("li", _swatch(class_), text) for class_, text in keys]
    legend = element("ul", *items, class_="legend") if items else ""
    canvas = element("div", chart, class_="canvas", tabindex="0", role="region", aria_label=title)
    return element("figure", element("figcaption", title), canvas, legend, *more)


def _swatch(class_: str) -> Html:
    kind, _, state = class_.partition(" ")
    if state == "failed":
        mark = element("path", class_=class_, d="M7 2l8 8m0 -8l-8 8")
    elif kind == "end":
        mark = element("circle", class_=class_, cx=11, cy=6, r=4)
    elif kind in ("part", "area", "band"):
        mark = element("rect", class_=class_, x=3, y=1, width=16, height=10)
    else:
        mark = element("line", class_=class_, x1=1, y1=6, x2=21, y2=6)
    return element("svg", mark, viewBox="0 0 22 12", class_="swatch", aria_hidden="true")


def convergence_table(curves: Sequence[Curve], unit: str) -> Html:
    """Return the table of minimum, median and maximum quality at each evaluation."""
    rows = [
        (plain(epoch), f"{found[0]:.5g}", f"{found[len(found) // 2]:.5g}", f"{found[-1]:.5g}", len(found))
        for epoch, found in sorted(quality_by_epoch(curves).items())
    ]
    return table((unit, "minimum", "median", "maximum", "runs"), rows, "Quality at each evaluation", 0)


def runs_table(curves: Sequence[Curve], unit: str, clock: str) -> Html:
    """Return the table of the runs: state, minutes, evaluations, last quality and minutes by part.

    clock: where the staging lies, for the title.
    """
    head = ("run", "status", "minutes", unit, "evaluations", "last quality", *(f"{part}, min" for part in PARTS))
    rows = []
    for curve in curves:
        epoch, value = curve.points[-1] if curve.points else (None, None)
        seconds = curve.seconds or {}
        parts = [seconds[part] / 60 if part in seconds else "–" for part in PARTS]
        quality = f"{value:.5g}" if value is not None else "–"
        facts = ("–" if curve.minutes is None else curve.minutes, plain(epoch), len(curve.points), quality)
        rows.append((curve.name, STATES[curve.state], *facts, *parts))
    columns = [aligned(column) for column in zip(*rows, strict=True)]
    return table(head, zip(*columns, strict=True), f"Runs{clock}", 2)


# -- system ------------------------------------------------------------------------------------------------


def description(results: ResultSet, site: Site) -> list[Html]:
    """Return the system description, [] without one."""
    found = results.description
    if found is None:
        return []
    rows = [(name.replace("_", " "), _value(value)) for name, value in found.fields.items()]
    nodes, accelerator = found.fields.get("number_of_nodes"), found.fields.get("accelerator_model_name")
    words = [f"{nodes} nodes" if nodes else "", str(accelerator or ""), str(found.fields.get("framework") or "")]
    summary = f"System {found.name}: {', '.join(filter(None, words))[:200] or 'no fields'}"
    source = element("p", site.link(found.path, results.folder), class_="quiet")
    problem = [element("p", f"The file cannot be read: it {found.problem}")] if found.problem else []
    return [disclosure(summary, *problem, table(("field", "value"), rows, "System description", 2), source)]


def _value(value: Any) -> Html | str:
    text = shorten_end(str(value), MAX_VALUE)
    return element("mark", text) if OPEN in text else text or element("span", "empty", class_="quiet")
