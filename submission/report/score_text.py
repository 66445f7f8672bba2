"""Explain a score in sentences: which runs count, which are left out, which factors apply."""

from __future__ import annotations

import os
from collections.abc import Iterator

from common.command import counted
from compliance.formats.words import STAGED, matters, minutes, plain
from compliance.model.judged_run import JudgedRun
from compliance.model.result_set import ResultSet
from compliance.model.score import IN, OUT, Throughput, TimeToTrain

KEPT, DROPPED, FAILED = "kept", "dropped", "failed"


def run_states(results: ResultSet) -> dict[str, str]:
    """Return the state of each run by path: KEPT, DROPPED (fastest and slowest) or FAILED (rejected)."""
    found = {run.path: FAILED if run.verdict == "FAIL" else KEPT for run in results.runs}
    for run in left_out(results):
        found[run.path] = DROPPED
    return found


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
        return [*_time_to_train(results, score), *_convergence(results)]
    if isinstance(score, Throughput):
        return [*_throughput(results, score), *_convergence(results)]
    if results.loose:
        return ["No score: these logs are outside of a submission, and each is checked on its own."]
    return ["No score: the benchmark is unknown."]


def _missing(results: ResultSet) -> str:
    return f"{counted(results.missing_runs, 'run')} of {len(results.runs) + results.missing_runs} missing"


def _time_to_train(results: ResultSet, score: TimeToTrain) -> Iterator[str]:
    accepted, rejected = len(score.run_minutes), ", ".join(map(run_name, score.rejected[:20]))
    if score.minutes is None:
        if results.missing_runs:
            yield f"No score: {_missing(results)}."
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
    yield from _staging(score)
    if score.normalization > 1:
        yield (
            f"The reference converges more slowly, so the time is multiplied by {score.normalization:.6f}: "
            f"{minutes(score.normalized)} minutes."
        )
    if score.scaled is not None:
        factor = f"{score.committee_factor:.6g}"
        yield f"scaling.json has the committee's factor {factor}: {minutes(score.scaled)} minutes."


def _throughput(results: ResultSet, score: Throughput) -> Iterator[str]:
    if score.rejected:
        yield f"{counted(len(score.rejected), 'instance')} of this result failed the check and do not count."
    if score.minutes is None or score.models_per_minute is None:
        reason = _missing(results) if results.missing_runs else "no accepted instance has both run_start and run_stop"
        yield f"No score: {reason}."
        return
    yield (
        f"{counted(score.models, 'model')} trained in {minutes(score.minutes)} minutes, from the first run_start to "
        f"the last run_stop: {score.models_per_minute:.4g} models per minute."
    )
    yield from _staging(score)
    yield (
        f"The system has {plain(score.system_scale)} accelerators (or processors); each instance uses "
        f"{plain(score.instance_scale)}{_whole_system(results)}."
    )
    if score.normalization > 1 and score.normalized_models_per_minute is not None:
        yield (
            f"The reference converges more slowly, so the rate is divided by {score.normalization:.6f}: "
            f"{score.normalized_models_per_minute:.4g} models per minute."
        )


def _staging(score: TimeToTrain | Throughput) -> Iterator[str]:
    """Yield how long staging took, which clock the score has, and the score on the other clock."""
    if not matters(score.staging_minutes) or score.staging_clock not in STAGED:
        return
    others = []
    if score.staging_clock != IN:
        others.append(f"with all of it the score is {minutes(score.time_with_staging_minutes)} minutes")
    if score.staging_clock != OUT:
        others.append(f"without it the score is {minutes(score.time_without_staging_minutes)} minutes")
    where = STAGED[score.staging_clock]
    yield f"Staging took {minutes(score.staging_minutes)} minutes, {where}; {', '.join(others)}."


def _whole_system(results: ResultSet) -> str:
    if not results.states_whole_system:
        return ""
    return f" (the logs state the whole system; {counted(results.at_once, 'instance')} ran at once)"


def _convergence(results: ResultSet) -> Iterator[str]:
    verdict = results.judged_convergence
    if verdict is not None:
        yield f"Convergence: {verdict.message}"
    if verdict is None or verdict.passed:
        return
    if results.waiver:
        yield f"A failed convergence test is waived: {results.waiver}"
    elif results.bypasses:
        yield f"The submitter asked to bypass this test: {results.bypasses[0]}"
