"""Judge whether a result converges like the reference, within what chance explains.

A point records how long several reference runs at one batch size took to reach the quality target. A result passes
if its olympic mean (without the lowest and the highest run) is not below what chance explains; if it is
faster than the reference mean and passes, its score is multiplied by reference mean / result mean.

Source: mlperf-logging 4.1.68, rcp_checker (behaviour), hpc_training_rules.adoc. Two modes:
"official" reproduces the official tool digit by digit; "envelope" fixes two of its defects: points above the
lower convex envelope are all left out (official: only some, issue #368), and an interpolated point counts
2R - 2 reference runs, the number that olympic statistics keep out of 2R (official: 2R).

Command line: `python -m compliance.rcp --help`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from common.values import is_number
from compliance.rcp.means import olympic_mean
from compliance.rcp.points import Mode, ReferencePoint, interpolate, prune

VerdictCase = Literal[
    "exact",
    "interpolated",
    "smaller batch",
    "missing",
    "no table",
    "no batch size",
    "insufficient convergence",
    "too few runs",
    "no verdict",
]
NOT_CONVERGED: Final = 1e9
"""The official tool's number for a run that did not converge."""
BYPASSED: Final = ("RCP found", "RCP Interpolation", "Missing RCP")
"""How the messages begin with which the official tool lets a result pass if the submitter asks for the bypass."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of the test of one result.

    point: what the result was compared with. submission_mean: olympic, in the unit of the point.
    normalization: factor >= 1 on the result's time; 1 where it did not pass. message: for people.
    official_message: the phrase of the official tool for this case.
    """

    passed: bool
    case: VerdictCase
    official_message: str
    message: str
    point: ReferencePoint | None = None
    submission_mean: float | None = None
    normalization: float = 1.0


_Match = tuple[VerdictCase, ReferencePoint, str]
"""The point that a result is compared with, in which case, and a sentence that says why."""


def _match_batch_size(
    points: Sequence[ReferencePoint], batch_size: int, required_runs: int, mode: Mode
) -> _Match | None:
    """Return what a batch size is compared with; None if it is larger than all points."""
    below = [point for point in points if point.batch_size <= batch_size]
    above = [point for point in points if point.batch_size > batch_size]
    if below and below[-1].batch_size == batch_size:
        return "exact", below[-1], f"There are reference runs at global_batch_size {batch_size}."
    if not below:
        text = (
            f"No reference has a global_batch_size of {batch_size} or less, the smallest is used instead "
            f"({above[0].batch_size}): a smaller batch must not converge faster."
        )
        return "smaller batch", above[0], text
    if not above:
        return None
    low, high = below[-1], above[0]
    text = f"global_batch_size {batch_size} lies between the points at {low.batch_size} and {high.batch_size}."
    return "interpolated", interpolate(low, high, batch_size, required_runs, mode), text


def _has_converged(value: float, mode: Mode) -> bool:
    """Tell whether a run converged; the official tool goes by the status, and takes any epoch."""
    return value != NOT_CONVERGED if mode == "official" else is_number(value) and value < NOT_CONVERGED


def no_verdict(reason: str) -> Verdict:
    """Return the verdict for logs on which the official RCP checker ends with a traceback."""
    return Verdict(False, "no verdict", "traceback", f"The official RCP checker ends with a traceback: {reason}.")


def _missing_text(batch_size: int) -> str:
    return f"Missing RCP, please submit RCP with BS = {batch_size}"


def judge(
    points: Sequence[ReferencePoint],
    batch_size: int | None,
    epochs: Sequence[float],
    required_runs: int,
    mode: Mode = "envelope",
) -> Verdict:
    """Return whether a result converges in accordance with the reference; prunes the points itself.

    points: the whole table of the round, by batch size. batch_size: None if the logs do not state it, or
    disagree. epochs: convergence of each run, in the unit of the points; 1e9, infinity or not a number
    if it did not converge. required_runs: runs of a time-to-train result (also for throughput results).
    """
    if not points:
        return Verdict(False, "no table", "Cannot find any RCPs", "There are no reference points to compare with.")
    if not isinstance(batch_size, int | float) or not batch_size > 0:
        text = "The batch size is unknown: every log of a result must state the same global_batch_size."
        return Verdict(False, "no batch size", "Could not detect global_batch_size", text)
    failed = sum(not _has_converged(value, mode) for value in epochs)
    if failed > 1:
        text = f"{failed} of {len(epochs)} runs did not reach the quality target; at most one may fail."
        return Verdict(False, "insufficient convergence", "Insufficient convergence", text)
    kept = prune(points, mode)
    match = _match_batch_size(kept, batch_size, required_runs, mode)
    if match is None:
        text = (
            f"No reference has a global_batch_size of {batch_size} or more (the largest is "
            f"{kept[-1].batch_size}), so the expected convergence is unknown. Submit "
            f"{2 * required_runs} reference runs at this batch size."
        )
        return Verdict(False, "missing", _missing_text(batch_size), text)
    return _compare_epochs(match, batch_size, epochs, mode)


def _compare_epochs(match: _Match, batch_size: int, epochs: Sequence[float], mode: Mode) -> Verdict:
    """Return the verdict for a result whose reference is known."""
    case, point, introduction = match
    accepted = point.accepts_from(mode)
    phrase = "RCP found" if case == "exact" else "RCP Interpolation"
    mean = olympic_mean(value if _has_converged(value, mode) else math.inf for value in epochs)
    if mean is None:
        text = f"{len(epochs)} runs; at least 3 are needed, because the mean leaves out the fastest and the slowest."
        return Verdict(False, "too few runs", phrase, text, point)
    # With a spread of zero, a result equal to the reference must pass, whatever was rounded.
    passed = mean > 0 and mean >= accepted * (1 - 1e-9)
    if case == "smaller batch":
        phrase = "RCP not found but slower convergence on smaller batch size" if passed else _missing_text(batch_size)
    factor = max(1.0, point.mean / mean) if passed else 1.0
    text = _explain_verdict(point, accepted, mean, passed, factor)
    text = f"{introduction} {text}" if passed else f"{text} {introduction}"
    return Verdict(passed, case, phrase, text, point, mean, factor)


def _explain_verdict(point: ReferencePoint, accepted: float, mean: float, passed: bool, factor: float) -> str:
    average = f"{mean:.6g} {point.unit} on average (fastest and slowest run left out)"
    if not passed:
        return f"too fast: {average}; the reference takes {point.mean:.6g}, by chance at least {accepted:.6g}."
    numbers = (
        f"The result converges in {average}, the reference in {point.mean:.6g}, and down to {accepted:.6g} is "
        "explained by chance."
    )
    if factor == 1:
        return f"{numbers} It passes without normalization."
    return f"{numbers} It passes; the time is multiplied by {point.mean:.6g} / {mean:.6g} = {factor:.6f}."
