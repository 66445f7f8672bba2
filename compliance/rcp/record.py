"""Record convergence points: add logs of reference runs to a table, which can be extended at any time."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from common.reference import COMMON_SETTINGS, FULL, VARIANTS, Target
from common.tree import ANYWHERE
from common.values import is_integer, is_number
from compliance.benchmarks import reference_of, require_reference, require_references
from compliance.logs.course import Course
from compliance.logs.log import Log, read_log
from compliance.logs.run import BAGGING, INIT_WEIGHTS, describe_own_code, find_completion
from compliance.rcp.points import compare_hyperparameters
from compliance.rcp.table import DIGEST, RcpTable, RecordedPoint, RecordedRun, read_table, write_table

MACHINE: Final = frozenset({"number_of_nodes", "accelerators_per_node"})
"""Settings that say where a run was made; they are not hyperparameters."""
HEADER: Final = "# Reference runs, recorded by `python -m compliance.rcp record` (format: compliance/rcp/table.py).\n"


class LoggedRun(NamedTuple):
    """What a table keeps of one log; `variant` is "full" or "mini"."""

    benchmark: str
    variant: str
    batch_size: int
    run: RecordedRun
    hyperparameters: dict[str, Any]


def read_reference_run(path: Path, name: str) -> LoggedRun:
    """Return what a reference run's log says, under the name `name`; ValueError if it says too little."""
    log = read_log(str(path), ANYWHERE)
    for problem in log.list_problems("unreadable"):
        raise ValueError(f"cannot be read: {problem.detail}")
    benchmark, batch_size = log.value("submission_benchmark"), log.value("global_batch_size")
    if not isinstance(benchmark, str):
        raise ValueError(f"submission_benchmark is {benchmark!r}; the name of a benchmark is needed")
    variants = [reference.variant for reference in require_references(benchmark)]
    if not is_integer(batch_size) or batch_size < 1:
        raise ValueError(f"global_batch_size is {batch_size!r}; a whole number is needed")
    variant = log.value("dataset_variant") if log["dataset_variant"] else FULL
    reference = reference_of(benchmark, variant) if variant in VARIANTS else None
    if reference is None:
        raise ValueError(f"dataset_variant is {variant!r}; {benchmark} has {' and '.join(variants)}")
    provenance = log.value("provenance")
    codes = describe_own_code(provenance)
    for is_other, why in (
        (log[BAGGING], "it is a run with bagging; a reference run trains on the whole training set"),
        (find_completion(log), "it is a run without a target; a reference run trains to that of the benchmark"),
        (log[INIT_WEIGHTS], "it started from given weights; a reference run starts from random ones"),
        (codes, f"{codes} computed in place of the suite's code; a reference run has that alone"),
    ):
        if is_other:
            raise ValueError(why)
    epochs = _last_epoch(log, reference.target)
    keys = [s.key for s in (*COMMON_SETTINGS, *reference.settings) if s.identity and s.key not in MACHINE]
    hyperparameters = {key: log.value(key) for key in keys if log[key]}
    with ANYWHERE.open(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    sources = provenance.get("source_sha256") if isinstance(provenance, dict) else None
    is_digest = isinstance(sources, str) and re.match(DIGEST, sources)
    run = RecordedRun(name, digest, epochs, sources if is_digest else None)
    return LoggedRun(benchmark, reference.variant, int(batch_size), run, hyperparameters)


def _last_epoch(log: Log, target: Target) -> float | None:
    """Return the epoch_num of the last evaluation that counts; None for a run that did not succeed.

    ValueError if the log does not say how the run ended, or says success without meeting the target.
    """
    stop = log.first("run_stop")
    if stop is None:
        raise ValueError("no run_stop: the run is not finished or was interrupted")
    if stop.meta("status") != "success":
        return None
    evaluations = log.derive(Course, target.key).counted
    epoch: Any = evaluations[-1].meta("epoch_num") if evaluations else None
    if not is_number(epoch) or epoch <= 0:
        raise ValueError(f"success, but no {target.key} with an epoch_num between epoch_start and run_stop")
    if not target.met(evaluations[-1].value):
        raise ValueError(f"success, but the last {target.key} is {evaluations[-1].value!r}, not {target.range_text}")
    return float(round(epoch, 3))


def _read_runs(folder: Path) -> list[LoggedRun]:
    """Return what the logs under a folder (or one log) say, without copies; report the unusable ones."""
    runs: dict[str, LoggedRun] = {}
    for path in sorted(folder.rglob("result_*.txt")) if folder.is_dir() else [folder]:
        try:
            logged = read_reference_run(path, str(path.relative_to(folder)) if folder.is_dir() else path.name)
        except ValueError as error:
            _report_left_out(path, str(error))
        else:
            first = runs.setdefault(logged.run.sha256, logged)
            if first is not logged:
                _report_left_out(path, f"a copy of {first.run.file}")
    return list(runs.values())


def _report_left_out(path: Path | str, reason: str) -> None:
    print(f"left out {path}: {reason}", file=sys.stderr)


def _add_run(entries: list[RecordedPoint], logged: LoggedRun, prefix: str | None) -> None:
    """Add a run to its point, which the first run creates; ValueError if it does not belong there."""
    key = (logged.variant, logged.batch_size)
    index = next((i for i, entry in enumerate(entries) if (entry.variant, entry.batch_size) == key), None)
    if index is None:
        prefix = prefix or f"{logged.benchmark}_{'ref' if logged.variant == FULL else logged.variant}"
        index, name = len(entries), f"{prefix}_{logged.batch_size}"
        entries.append(RecordedPoint(name, logged.batch_size, (), logged.hyperparameters, variant=logged.variant))
    entry = entries[index]
    if entry.epochs and not entry.runs:
        raise ValueError(
            f"point {entry.name!r} does not list its runs (a published point?), so "
            f"{logged.run.file} cannot be added; record to another table"
        )
    differing = compare_hyperparameters(entry, logged.hyperparameters)
    if differing:
        differences = "; ".join(f"{key} {ours!r} -> {theirs!r}" for key, ours, theirs in differing)
        raise ValueError(
            f"{logged.run.file} has other hyperparameters than point {entry.name!r}: {differences}. The runs "
            "of a point differ in the seed only; move the log away or record to another table"
        )
    runs = (*entry.runs, logged.run)
    epochs = tuple(sorted(run.epochs for run in runs if run.epochs is not None))
    entries[index] = replace(entry, epochs=epochs, runs=runs)


def record(folder: Path, output: Path, prefix: str | None, benchmark: str | None) -> None:
    """Write or extend the table at `output` from the logs under `folder`, all or nothing.

    ValueError, and no change, if the table is broken or of another benchmark, if a log does not fit its
    point, or if there is no run.
    """
    old = _read_if_there(output)
    if old and benchmark not in (None, old.benchmark):
        raise ValueError(f"{output}: a table of {old.benchmark}, not of {benchmark}; record to another file")
    finished_runs = _read_runs(folder)
    benchmark = benchmark or (old.benchmark if old else _only_benchmark(finished_runs))
    logged_runs = [logged for logged in finished_runs if logged.benchmark == benchmark]
    for logged in finished_runs:
        if logged.benchmark != benchmark:
            _report_left_out(logged.run.file, f"a run of {logged.benchmark}, not of {benchmark}")
    if not logged_runs or benchmark is None:
        raise ValueError(f"no finished reference run of {benchmark or 'any benchmark'} in {folder} (result_*.txt)")
    reference = require_reference(benchmark)
    table = old or RcpTable(benchmark, reference.epoch_unit, (), HEADER)
    recorded = {run.sha256 for entry in table.entries for run in entry.runs}
    fresh = [logged for logged in logged_runs if logged.run.sha256 not in recorded]
    entries = list(table.entries)
    for logged in fresh:
        _add_run(entries, logged, prefix)
    if fresh:
        if _read_if_there(output) != old:
            raise ValueError(f"{output}: changed in the meantime by another process; run the command again")
        write_table(output, replace(table, entries=tuple(entries)))
    print(f"{output}: {len(fresh)} new runs, {len(logged_runs) - len(fresh)} already known")
    _print_progress(entries, 2 * reference.runs)


def _read_if_there(path: Path) -> RcpTable | None:
    return read_table(path) if path.exists() else None


def _only_benchmark(runs: Iterable[LoggedRun]) -> str | None:
    names = sorted({logged.benchmark for logged in runs})
    if len(names) > 1:
        raise ValueError(f"there are runs of {' and '.join(names)}: choose one with --benchmark")
    return names[0] if names else None


def _print_progress(entries: Iterable[RecordedPoint], wanted: int) -> None:
    for entry in entries:
        if entry.runs:
            failed = len(entry.runs) - len(entry.epochs)
            more = f", {failed} more did not converge" if failed else ""
            print(f"  {entry.name} ({entry.variant}): {len(entry.epochs)} of {wanted} runs{more}")
