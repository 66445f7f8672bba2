"""The words of all formats for paths, numbers, scores and verdicts; safe to print on a terminal."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Sequence
from typing import TypeVar

from common.command import clean, counted
from common.reference import OWN
from common.rounds import label_round
from common.values import is_number
from compliance.formats.style import Style
from compliance.model.judging import JudgedRun, choose_texts, first_text
from compliance.model.layout import WEAK
from compliance.model.result_set import ResultSet
from compliance.model.score import BOTH, IN, OUT, SHORTEST_STAGING, TimeToTrain

T = TypeVar("T")

STAGED = {IN: "inside the time", OUT: "outside the time", BOTH: "partly inside the time"}
"""Where the staging lies, in words."""
DIFFERENT_SPEED = ("exact", "interpolated", "smaller batch")
"""Cases in which a result was compared with a point; if it did not pass, it is too fast."""


def relative(path: str, style: Style) -> str:
    """Return the path relative to the style's base if it lies below; `.` for the base itself."""
    if style.base:
        path = "." if path == style.base else path.removeprefix(posixpath.join(style.base, ""))
    return path.removeprefix("./") or path


def shown_path(path: str, style: Style) -> str:
    """Return the path for people.

    A name cannot start a line with a workflow command such as `::error` or `##[error]`.
    """
    if path == "-":
        return "standard input"
    path = clean(relative(path, style))
    return f"./{path}" if path.startswith((":", "#")) else path


def write_location(path: str, line: int, style: Style) -> str:
    """Return `path:line`, or the path if the finding is about the whole file, or "" without a path."""
    return f"{shown_path(path, style)}:{line}" if line > 0 and path else shown_path(path, style)


def locate_docs(rule_id: str) -> str:
    """Return where the documentation explains a rule of the suite."""
    return f"docs/reference/rules.md#{rule_id.lower()}"


def minutes(value: float | None) -> str:
    """Return minutes with two decimals, small ones with three digits; `–` for none."""
    if value is None:
        return "–"
    return f"{value:.2f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def aligned(cells: Sequence[T | float | None], least: int = 2) -> list[T | str]:
    """Return the cells of a column, its floats as text with equal decimals and None as "".

    There are at least `least` decimals, and up to four so that the smallest number has three digits.
    """
    smallest = min((abs(cell) for cell in cells if isinstance(cell, float) and cell), default=1.0)
    decimals = min(max(2 - math.floor(math.log10(smallest)), least), 4)
    texts = (f"{cell:,.{decimals}f}" if isinstance(cell, float) else cell for cell in cells)
    return ["" if text is None else text for text in texts]


def rate(value: float | None) -> str:
    """Return models per minute with four digits; `–` for none."""
    return "–" if value is None else f"{value:.4g}"


def energy(joules: float | None) -> str:
    """Return an energy in kJ, the unit of all tables and pages: `12.35 kJ`, `5,312 kJ`; "" for none."""
    if joules is None:
        return ""
    return f"{joules / 1000:,.0f} kJ" if joules >= 1e6 else f"{joules / 1000:.4g} kJ"


def matters(staging_minutes: float | None) -> bool:
    """Tell whether data were staged at all."""
    return staging_minutes is not None and staging_minutes >= SHORTEST_STAGING


def staging_cell(staging_minutes: float | None, clock: str) -> str:
    """Return the minutes of staging for a column, and whether they lie in the time or out of it; "" without any."""
    return "" if staging_minutes is None or not matters(staging_minutes) else f"{staging_minutes:,.2f} {clock:<3}"


def plain(value: object) -> str:
    """Return a number without trailing zeros, with thousands separators; `–` if it is not a number."""
    return f"{value:,.2f}".rstrip("0").rstrip(".") if is_number(value) else "–"


def score_text(results: ResultSet) -> str:
    """Return the score in a few words; "" without score."""
    score = results.score
    if score is None:
        return ""
    mini, is_normalized = "mini " if score.mini else "", score.normalization > 1
    if isinstance(score, TimeToTrain):
        staging = f"staging {minutes(score.staging_minutes)} min {STAGED.get(score.staging_clock, '')}".rstrip()
        parts = (
            (True, f"{mini}TTT {minutes(score.minutes)} min"),
            (is_normalized, f"normalised {minutes(score.normalized)} min"),
            (score.scaled is not None, f"scaled {minutes(score.scaled)} min (scaling.json)"),
            (matters(score.staging_minutes), staging),
            (score.energy_joules is not None, f"energy {energy(score.energy_joules)}"),
        )
        return ", ".join(choose_texts(parts)) if score.minutes is not None else "no time to train"
    rates = (
        (True, counted(score.models, f"{mini}model")),
        (score.models_per_minute is not None, f"{rate(score.models_per_minute)} models/min"),
        (is_normalized and score.minutes, f"normalised {rate(score.normalized_models_per_minute)} models/min"),
        (score.energy_joules is not None, f"energy {energy(score.energy_joules)} in all"),
    )
    return ", ".join(choose_texts(rates)) if score.minutes is not None else "no throughput"


def set_name(results: ResultSet, style: Style, rounds: bool) -> str:
    """Return the name of the set, with its round if the report has several, and whether it is of MLPerf."""
    prefix = f"v{label_round(results.round)} " if rounds else ""
    name = shown_path(results.name, style) if results.name == results.folder else clean(results.name)
    remark = first_text(((results.plugin, " (not an MLPerf benchmark)"), (results.mini, " (mini problem)")))
    return f"{prefix}{name}{remark}"


def convergence_text(results: ResultSet) -> str:
    """Return the verdict on convergence in a few words; "" if there is none."""
    verdict = results.judged_convergence
    if verdict is None:
        return ""
    reason = "converges too fast" if verdict.case in DIFFERENT_SPEED else verdict.case
    words = {"missing": "no reference point", "no batch size": "no common batch size"}
    is_judged = any(finding.rule == "RCP01" for finding in results.findings)  # else it is ignored, or not selected
    return first_text(
        (
            (verdict.passed and verdict.case == "exact", "RCP passed"),
            (verdict.passed, f"RCP passed ({verdict.case})"),
            (
                results.missing_runs and verdict.case in (*DIFFERENT_SPEED, "too few runs"),
                "RCP pending (runs are missing)",
            ),
            (not is_judged, f"RCP unjudged ({reason})"),
            (results.waiver, f"RCP waived: {clean(results.waiver)} ({reason})"),
            (True, f"RCP failed: {words.get(verdict.case, reason)}"),
        )
    )


def runs_text(results: ResultSet) -> str:
    """Return the numbers of runs, required, failing and pruned: `9/10 runs, 1 failing`."""
    required = results.reference.runs if results.reference else None
    number = len(results.runs)
    runs = (
        (required is None, counted(number, "run")),
        (results.scaling != WEAK, f"{number}/{required} runs"),
        (number < (required or 0), f"{number} runs (at least {required})"),
        (True, f"{number} runs"),
    )
    parts = (
        (True, first_text(runs)),
        (results.failing, f"{len(results.failing)} failing"),
        (results.pruned, f"{len(results.pruned)} pruned"),
    )
    return ", ".join(choose_texts(parts))


def run_text(run: JudgedRun) -> str:
    """Return a single log in a few words: `cosmoflow closed, round 3.0, 114.35 min, 47 epochs`."""
    if run.only_rule:
        return "no log of MLPerf HPC"
    names = " ".join(clean(name) for name in (run.benchmark, run.division) if name)
    count = f"{plain(run.convergence)} {run.convergence_unit}"
    failed = "trained without a target for" if run.without_target else "not converged in"
    parts = (
        (True, names or "unknown benchmark"),
        (True, f"round {label_round(run.round)}"),
        (run.plugin, "not an MLPerf benchmark"),
        (run.mini, "own data" if run.variant == OWN else "mini problem"),
        (run.minutes is not None, f"{minutes(run.minutes)} min"),
        (is_number(run.convergence), count if run.converged else f"{failed} {count}"),
    )
    return ", ".join(choose_texts(parts))
