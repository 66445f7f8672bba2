"""The card of a result on the page: charts, score, findings and system."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Final

from common.command import counted
from common.rounds import HPC
from common.values import is_number
from compliance.formats.words import STAGED, aligned, convergence_text, matters, minutes, plain, runs_text
from compliance.logs.timeline import PARTS
from compliance.model.judging import INCOMPLETE, NOT_A_RESULT, JudgedRun
from compliance.model.layout import WEAK
from compliance.model.result_set import ResultSet
from compliance.model.score import IN, OUT, Throughput, TimeToTrain
from compliance.model.system import OPEN
from submission.results.figures import result_charts as charts
from submission.results.page.findings import Site, draw_badge, draw_findings, facts_table, shared_facts, shown_of
from submission.results.page.glance import ResultLine
from submission.results.page.html import Html, disclosure, draw_table, element, join_parts, make_scrollable, shorten_end

Score = TimeToTrain | Throughput | None
KEPT, DROPPED, FAILED = "kept", "dropped", "failed"


def draw_card(line: ResultLine, site: Site, is_open: bool) -> Html:
    """Return the card of a result, which folds."""
    results, name = line.results, line.name
    curves, goal = curves_of(results), goal_of(results)
    provenance = shared_facts([run.details.provenance for run in results.runs])
    body = [
        key_figures(results),
        element("div", *draw_charts(name, curves, goal, results.score), class_="charts"),
        element("h4", "Score"),
        *(element("p", sentence) for sentence in how_scored(results)),
        disclosure(
            "Table of the runs",
            runs_table(curves, goal.unit if goal else "epochs", _name_clock(results.score)),
        ),
        element("h4", "Findings"),
        draw_findings(shown_of(results), results.folder, site, name),
        *draw_description(results, site),
        *([facts_table("Provenance in the logs", provenance)] if provenance else []),
    ]
    head = element("summary", element("h3", draw_badge(line.row.verdict), " ", *_draw_title(line)))
    # A link to what is inside of closed details opens them, a link to the details themselves does not.
    content = element("div", *body, id=name)
    key = line.key if line.is_result else None  # what is in no table is in no filter
    return element("details", head, content, class_="result", data_result=key, open=is_open)


def _draw_title(line: ResultLine) -> list[object]:
    row = line.row
    kind = " throughput" if row.scaling == WEAK else ""
    words = [
        element("span", row.benchmark or "unknown benchmark", kind, class_="benchmark"),
        " on ",
        line.system,
    ]
    words += [element("span", f" {row.division}", class_="quiet")] if row.division else []
    labels = [INCOMPLETE] if row.incomplete and row.verdict != INCOMPLETE else []
    labels += [
        *line.results.states,
        *(["MINI"] if row.mini else []),
        *(["NOT MLPERF"] if row.plugin else []),
    ]
    return [*words, *(join_parts([" ", draw_label(word)]) for word in labels)]


def draw_label(word: str) -> Html:
    """Return a label in capitals: INCOMPLETE, MINI, NOT MLPERF."""
    return element("strong", word, class_="label-word")


def curves_of(results: ResultSet) -> list[charts.Curve]:
    """Return the curves of all runs, in the order of the set."""
    states = run_states(results)
    return [
        charts.Curve(
            name=run_name(run.path, results.folder if results.loose else ""),
            state=states[run.path],
            points=tuple(
                (
                    float(at if evaluation.epoch is None else evaluation.epoch),
                    float(evaluation.value),
                )
                for at, evaluation in enumerate(run.details.evaluations, 1)
            ),
            minutes=run.minutes,
            seconds=run.details.seconds,
        )
        for run in results.runs
    ]


def goal_of(results: ResultSet) -> charts.Goal | None:
    """Return what the result is compared with; None if its benchmark is unknown."""
    if results.reference is None:
        return None
    verdict = results.judged_convergence
    mean = verdict.submission_mean if verdict else None
    if mean is None and isinstance(results.score, TimeToTrain):
        mean = results.score.convergence
    point = verdict.point if verdict else None
    return charts.Goal(
        results.reference.target,
        results.convergence_unit,
        mean if mean is not None and is_number(mean) else None,
        point.mean if point else None,
        point.min_mean if point else None,
    )


def _name_clock(score: Score) -> str:
    """Return where the staging lies, as the end of a title; "" without any."""
    return f" (staging {STAGED[score.staging_clock]})" if score and score.staging_clock else ""


# -- figures -----------------------------------------------------------------------------------------------


def key_figures(results: ResultSet) -> Html:
    """Return the list of the most important numbers."""
    score, unit = results.score, results.convergence_unit if results.reference else ""
    pairs: list[tuple[str, str]] = []
    if isinstance(score, TimeToTrain):
        pairs.append(
            (
                "time to train",
                f"{minutes(score.minutes)} min" if score.minutes is not None else "none",
            )
        )
        if score.normalization > 1:
            pairs.append(("normalised", f"{minutes(score.normalized)} min"))
        pairs += _list_staging(score)
        if score.convergence is not None:
            pairs.append(("convergence", f"{plain(score.convergence)} {unit}"))
            of_hpc = results.case.usage == HPC  # which counts whole epochs
            if of_hpc and unit == "epochs" and any(run.epochs_trained != run.convergence for run in results.runs):
                trained = fmean(run.epochs_trained for run in results.runs)
                pairs.append(("epochs trained", f"{plain(trained)} on average"))
    elif isinstance(score, Throughput):
        rate = score.models_per_minute
        pairs.append(("throughput", f"{rate:.4g} models/min" if rate is not None else "none"))
        pairs += _list_staging(score)
        whole = "~" if results.states_whole_system else ""
        pairs.append(("accelerators per model", f"{whole}{plain(score.instance_scale)}"))
    pairs += [
        ("logs", str(len(results.runs))) if results.not_judged else ("runs", runs_text(results)),
        ("global batch size", plain(results.batch_size)),
        ("reference", convergence_text(results)),
    ]
    items = [element("div", element("dt", name), element("dd", text)) for name, text in pairs if text]
    return element("dl", *items, class_="figures")


def _list_staging(score: TimeToTrain | Throughput) -> list[tuple[str, str]]:
    """Return how long staging took and where it lies, and the time with it if the score lacks it."""
    if not matters(score.staging_minutes):
        return []
    pairs = [
        (
            "staging",
            f"{minutes(score.staging_minutes)} min {STAGED.get(score.staging_clock, '')}".rstrip(),
        )
    ]
    if score.staging_clock not in ("", IN) and score.time_with_staging_minutes is not None:
        pairs.append(("with staging", f"{minutes(score.time_with_staging_minutes)} min"))
    return pairs


def draw_charts(name: str, curves: Sequence[charts.Curve], goal: charts.Goal | None, score: Score) -> list[Html]:
    """Return the figures for which the logs have data."""
    figures = []
    if goal and any(curve.points for curve in curves):
        keys = _state_keys(curves) if sum(bool(c.points) for c in curves) <= charts.MANY else MANY_KEYS
        keys = [*keys, ("target", "target"), *(REFERENCE_KEYS if goal.band else [])]
        figures.append(
            _draw_figure(
                "Convergence",
                charts.draw_convergence(f"{name}-convergence", curves, goal),
                keys,
                disclosure("Table", convergence_table(curves, goal.unit)),
            )
        )
    if any(curve.minutes is not None for curve in curves):
        keys = _state_keys(curves) if len(curves) <= charts.MANY else []
        mean = score.minutes if isinstance(score, TimeToTrain) else None
        spread = charts.draw_spread(f"{name}-spread", curves, mean)
        figures.append(_draw_figure(f"Spread of the runs{_name_clock(score)}", spread, keys))
    if any(curve.seconds for curve in curves):
        keys = [(f"part {part}", part) for part in PARTS]
        title = "Time breakdown" + (" (selected runs)" if len(curves) > charts.MANY_BARS else "")
        figures.append(_draw_figure(title, charts.draw_breakdown(f"{name}-time", curves), keys))
    return figures


REFERENCE_KEYS: Final = [
    ("band", "means below the limit fail: too fast"),
    ("reference", "mean of the reference"),
]
MANY_KEYS: Final = [
    ("run kept", "median"),
    ("area", "middle 80 %"),
    ("end kept", "ends of runs"),
]


def _state_keys(curves: Sequence[charts.Curve]) -> list[tuple[str, str]]:
    states = {curve.state for curve in curves}
    return [(f"end {state}", text) for state, text in charts.STATES.items() if state in states]


def _draw_figure(title: str, chart: Html, keys: Sequence[tuple[str, str]], *more: Html) -> Html:
    items = [element("li", _draw_swatch(class_), text) for class_, text in keys]
    legend = element("ul", *items, class_="legend") if items else ""
    return element("figure", element("figcaption", title), make_scrollable(chart, title), legend, *more)


def _draw_swatch(class_: str) -> Html:
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


def convergence_table(curves: Sequence[charts.Curve], unit: str) -> Html:
    """Return the table of minimum, median and maximum quality at each evaluation."""
    rows = [
        (
            plain(epoch),
            f"{values[0]:.5g}",
            f"{values[len(values) // 2]:.5g}",
            f"{values[-1]:.5g}",
            len(values),
        )
        for epoch, values in sorted(charts.quality_by_epoch(curves).items())
    ]
    return draw_table((unit, "minimum", "median", "maximum", "runs"), rows, "Quality at each evaluation", 0)


def runs_table(curves: Sequence[charts.Curve], unit: str, clock: str) -> Html:
    """Return the table of the runs: state, minutes, evaluations, last quality and minutes by part.

    clock: where the staging lies, for the title.
    """
    head = (
        "run",
        "status",
        "minutes",
        unit,
        "evaluations",
        "last quality",
        *(f"{part}, min" for part in PARTS),
    )
    rows = []
    for curve in curves:
        epoch, value = curve.points[-1] if curve.points else (None, None)
        seconds = curve.seconds or {}
        parts = [seconds[part] / 60 if part in seconds else "–" for part in PARTS]
        facts = (
            "–" if curve.minutes is None else curve.minutes,
            plain(epoch),
            len(curve.points),
            "–" if value is None else f"{value:.5g}",
        )
        rows.append((curve.name, charts.STATES[curve.state], *facts, *parts))
    columns = [aligned(column) for column in zip(*rows, strict=True)]
    return draw_table(head, zip(*columns, strict=True), f"Runs{clock}", 2)


# -- the score in sentences ----------------------------------------------------------------------------------


def run_states(results: ResultSet) -> dict[str, str]:
    """Return the state of each run by path: KEPT, DROPPED (fastest and slowest) or FAILED (rejected)."""
    states = {run.path: FAILED if run.verdict == "FAIL" else KEPT for run in results.runs}
    return states | {run.path: DROPPED for run in left_out(results)}


def left_out(results: ResultSet) -> list[JudgedRun]:
    """Return the accepted runs outside the olympic mean: the fastest, and the slowest if no run is rejected."""
    if not isinstance(results.score, TimeToTrain) or results.score.minutes is None:
        return []
    timed = [(run.minutes, at, run) for at, run in enumerate(results.runs) if run.verdict != "FAIL"]
    ranked = [run for _, _, run in sorted((m, at, run) for m, at, run in timed if m is not None)]
    return ranked[:1] if results.score.rejected else [ranked[0], ranked[-1]]


def run_name(path: str, base: str = "") -> str:
    """Return the name of a run: result_3, or relative to a folder: first/result_0."""
    name = os.path.relpath(path, base) if base and path != "-" else os.path.basename(path)
    return name.removesuffix(".gz").removesuffix(".txt") or path


def how_scored(results: ResultSet) -> list[str]:
    """Return sentences that derive the score from the runs, or say why there is none."""
    score = results.score
    if isinstance(score, TimeToTrain):
        return [*_explain_time(results, score), *_explain_convergence(results)]
    if isinstance(score, Throughput):
        return [*_explain_throughput(results, score), *_explain_convergence(results)]
    if results.not_judged:
        return [f"{NOT_A_RESULT.capitalize()}: {results.not_judged}."]
    return ["No score: the benchmark is unknown."]


def _count_missing(results: ResultSet) -> str:
    return f"{counted(results.missing_runs, 'run')} of {len(results.runs) + results.missing_runs} missing"


def _explain_time(results: ResultSet, score: TimeToTrain) -> Iterator[str]:
    accepted, rejected = len(score.run_minutes), ", ".join(map(run_name, score.rejected[:20]))
    if score.minutes is None:
        if results.missing_runs:
            yield f"No score: {_count_missing(results)}."
        elif len(score.rejected) > 1:
            yield f"No score: {len(score.rejected)} runs are rejected ({rejected}); at most one is allowed."
        else:
            yield (
                f"No score: {counted(accepted, 'run')} with a time; the mean without the fastest and the slowest "
                "needs at least three."
            )
        return
    dropped = [f"{run_name(run.path)} with {minutes(run.minutes)} min" for run in left_out(results)]
    if score.rejected:
        yield (
            f"One run is rejected ({rejected}); it counts as the slowest and is left out, as is the fastest "
            f"({dropped[0]})."
        )
    else:
        yield f"Of {accepted} runs the fastest ({dropped[0]}) and the slowest ({dropped[-1]}) are left out."
    kept = len(results.runs) - 2
    yield f"The mean of the {'other run' if kept == 1 else f'other {kept} runs'} is {minutes(score.minutes)} minutes."
    yield from _explain_staging(score)
    if score.normalization > 1:
        yield (
            f"The reference converges more slowly, so the time is multiplied by {score.normalization:.6f}: "
            f"{minutes(score.normalized)} minutes."
        )
    if score.scaled is not None:
        factor = f"{score.committee_factor:.6g}"
        yield f"scaling.json has the committee's factor {factor}: {minutes(score.scaled)} minutes."


def _explain_throughput(results: ResultSet, score: Throughput) -> Iterator[str]:
    if score.rejected:
        yield f"{counted(len(score.rejected), 'instance')} of this result failed the check and do not count."
    if score.minutes is None or score.models_per_minute is None:
        timeless = "no accepted instance has both run_start and run_stop"
        yield f"No score: {_count_missing(results) if results.missing_runs else timeless}."
        return
    yield (
        f"{counted(score.models, 'model')} trained in {minutes(score.minutes)} minutes, from the first run_start to "
        f"the last run_stop: {score.models_per_minute:.4g} models per minute."
    )
    yield from _explain_staging(score)
    whole = f" (the logs state the whole system; {counted(results.at_once, 'instance')} ran at once)"
    whole = whole if results.states_whole_system else ""
    yield (
        f"The system has {plain(score.system_scale)} accelerators (or processors); each instance uses "
        f"{plain(score.instance_scale)}{whole}."
    )
    if score.normalization > 1 and score.normalized_models_per_minute is not None:
        yield (
            f"The reference converges more slowly, so the rate is divided by {score.normalization:.6f}: "
            f"{score.normalized_models_per_minute:.4g} models per minute."
        )


def _explain_staging(score: TimeToTrain | Throughput) -> Iterator[str]:
    """Yield how long staging took, which clock the score has, and the score on the other clock."""
    if not matters(score.staging_minutes) or score.staging_clock not in STAGED:
        return
    others = []
    if score.staging_clock != IN:
        others.append(f"{minutes(score.time_with_staging_minutes)} minutes with all of it")
    if score.staging_clock != OUT:
        others.append(f"{minutes(score.time_without_staging_minutes)} minutes without it")
    where = STAGED[score.staging_clock]
    of_runs, ends = isinstance(score, TimeToTrain), " (the mean without the shortest and the longest)"
    yield f"Staging took {minutes(score.staging_minutes)} minutes{ends if of_runs else ''}, {where}."
    again = ", its fastest and slowest run left out anew" if of_runs else ""
    yield f"Scored by another clock{again}, the result takes {' and '.join(others)}."


def _explain_convergence(results: ResultSet) -> Iterator[str]:
    verdict = results.judged_convergence
    if verdict is not None:
        yield f"Convergence: {verdict.message}"
    if verdict is None or verdict.passed:
        return
    if results.waiver:
        yield f"A failed convergence test is waived: {results.waiver}"
    elif results.bypasses:
        yield f"The submitter asked to bypass this test: {results.bypasses[0]}"


# -- system ------------------------------------------------------------------------------------------------


def draw_description(results: ResultSet, site: Site) -> list[Html]:
    """Return the system description, [] without one."""
    system = results.description
    if system is None:
        return []
    values = {name.replace("_", " "): shorten_end(str(value), 2000) for name, value in system.fields.items()}
    empty = element("span", "empty", class_="quiet")
    rows = [(name, element("mark", text) if OPEN in text else text or empty) for name, text in values.items()]
    nodes, accelerator = system.fields.get("number_of_nodes"), system.fields.get("accelerator_model_name")
    words = [
        f"{nodes} nodes" if nodes else "",
        str(accelerator or ""),
        str(system.fields.get("framework") or ""),
    ]
    summary = f"System {system.name}: {', '.join(filter(None, words))[:200] or 'no fields'}"
    source = element("p", site.link_file(system.path, results.folder), class_="quiet")
    problem = [element("p", f"The file cannot be read: it {system.problem}")] if system.problem else []
    return [
        disclosure(
            summary,
            *problem,
            draw_table(("field", "value"), rows, "System description", 2),
            source,
        )
    ]
