"""Compare what published logs state twice: how many have both statements, and every log where they differ.

    python bench/amounts.py                                 reads ../shared/corpus, shows the page
    python bench/amounts.py -o docs/reference/amounts.md
    python bench/amounts.py -o compliance/amounts.json      the ranges that rules take as their bounds
    python bench/amounts.py --corpus FOLDER                 with published_v*.tar.xz, or packages to check

The severities of the rules AMT01 to AMT08, ORD01, ORD09, ORD19 and RUN21 follow from this table.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import ceil, floor
from pathlib import Path
from statistics import median

from checker import ROOT
from published import write_page

from common.reference import ROUNDS
from common.values import is_number
from compliance.logs.log import METRICS, Log, read_log
from compliance.logs.record import Record
from compliance.logs.run import benchmark_of
from compliance.model.judging import Case
from compliance.rules.amounts import Amounts
from compliance.rules.catalog import import_all_rules
from compliance.rules.epochs import course_of
from compliance.rules.evidence import REFERENCE_RECORDS
from compliance.rules.order import PAUSE_MS, Forward, Init
from compliance.rules.rule import Rule

BOUNDS = ROOT / "compliance" / "amounts.json"
MOST_LOGS = 12
"""Logs of a result that are named; of more, their number is given."""

HEAD = """# What logs state twice

Each pair of fields that state the same amount, in {count} published logs: how many have both, the extremes, and every
result in which they differ. The severity of each rule follows from it: an error or a warning only where honest logs
agree. Written by `python bench/amounts.py -o docs/reference/amounts.md`; do not edit.

| pair | of {count} logs | least | most | logs that differ | judged by |
|---|--:|--:|--:|--:|---|
"""
Measured = tuple[float, bool]
"""A ratio or difference, and whether it is as expected."""


def table(folder: Path) -> str:
    """Return the text of the table of bounds: the least and the most of each kind of pair, by benchmark.

    Times are ratios, of pairs of at least a second; steps are compared with those of whole batches.
    """
    import_all_rules()
    numbers: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _, log, case in read_logs(folder):
        for pair in (pair for rule in Amounts.__subclasses__() for pair in rule().compare(log, case) if pair.kind):
            if pair.kind == "steps":
                numbers[pair.kind][case.benchmark or ""].append(pair.stated - pair.implied // 1)
            elif pair.implied >= 1:
                numbers[pair.kind][case.benchmark or ""].append(pair.stated / pair.implied)
        numbers["pause"][case.benchmark or ""] += [pause for pause, _ in measure_pause(log, case)]
    bounds = {
        kind: {name: [floor(1e4 * min(each)) / 1e4, ceil(1e4 * max(each)) / 1e4] for name, each in sorted(of.items())}
        for kind, of in sorted(numbers.items())
    }
    return "{\n" + ",\n".join(f' "{kind}": {json.dumps(ranges)}' for kind, ranges in bounds.items()) + "\n}\n"


def read_logs(folder: Path) -> Iterator[tuple[str, Log, Case]]:
    """Yield the logs of known benchmarks below a folder, with their paths and cases."""
    for path in sorted(folder.rglob("result_*.txt*")):
        log = read_log(str(path))
        case = Case(round_of(path), benchmark=benchmark_of(log), division="closed")
        if case.reference:
            yield path.relative_to(folder).as_posix(), log, case


def page(folder: Path) -> str:
    """Return the page about the logs below a folder."""
    import_all_rules()
    measures = {**{rule.pair: (measure_rule(rule), judged(rule)) for rule in Amounts.__subclasses__()}, **MEASURES}
    numbers: dict[str, dict[str, list[Measured]]] = {pair: {} for pair in measures}
    for name, log, case in read_logs(folder):
        for pair, (measure, _) in measures.items():
            if measured := list(measure(log, case)):
                numbers[pair][name] = measured
    count = sum(1 for _ in folder.rglob("result_*.txt*"))
    lines, exceptions = [HEAD.format(count=f"{count:,}")], []
    for pair, (_, judge) in measures.items():
        values = [value for measured in numbers[pair].values() for value, _ in measured]
        odd = [name for name, measured in numbers[pair].items() if not all(fits for _, fits in measured)]
        extremes = f"{min(values):.4g} | {max(values):.4g}" if values else " | "
        lines.append(f"| {pair} | {len(numbers[pair]):,} | {extremes} | {len(odd):,} | {judge} |\n")
        exceptions += [f"| {pair} | {results} |" for results in by_result(odd)]
    head = "\n## Where they differ\n\n| pair | result: logs |\n|---|---|\n"
    return "".join(lines) + head + "\n".join(exceptions) + "\n"


def measure_rule(rule: type[Amounts]) -> Callable[[Log, Case], Iterator[Measured]]:
    """Return the function that yields the ratio of each pair that the rule compares, and whether it agrees."""

    def measure(log: Log, case: Case) -> Iterator[Measured]:
        for pair in rule().compare(log, case):
            yield pair.stated / pair.implied if pair.implied else pair.stated, not pair.severity

    return measure


def judged(rule: type[Rule]) -> str:
    """Return the rule and its severity."""
    return f"{rule.id} ({rule.severity})"


def round_of(path: Path) -> str:
    """Return the round whose folder a log is in, 3.0 if in none."""
    return next((part.removeprefix("v") for part in path.parts if part.removeprefix("v") in ROUNDS), ROUNDS[-1])


def by_result(names: list[str]) -> Iterator[str]:
    """Yield the folder of each result with the numbers of its logs."""
    logs: dict[str, list[str]] = defaultdict(list)
    for name in names:
        folder, _, file = name.rpartition("/")
        logs[folder].append(file.removeprefix("result_").partition(".")[0])
    for folder, numbers in logs.items():
        yield f"{folder}: {', '.join(numbers)}" if len(numbers) <= MOST_LOGS else f"{folder}: {len(numbers)} logs"


# -- pairs that are no ratio of two statements, or that no rule compares --------------------------------------


def measure_pause(log: Log, case: Case) -> Iterator[Measured]:
    """Yield the seconds from init_stop to run_start."""
    if log["init_stop"] and log["run_start"]:
        pause = (log["run_start"][0].time_ms - log["init_stop"][-1].time_ms) / 1000
        yield pause, pause <= PAUSE_MS / 1000


def measure_start(log: Log, case: Case) -> Iterator[Measured]:
    """Yield the seconds from run_start to the first record of training or evaluation."""
    if start := log.first("run_start"):
        delay = min((record.time_ms for record in _trained(log, case)), default=start.time_ms) - start.time_ms
        yield delay / 1000, delay >= 0


def measure_stop(log: Log, case: Case) -> Iterator[Measured]:
    """Yield the seconds from the last record of training or evaluation before run_stop to it."""
    if stop := log.first("run_stop"):
        inside = [record.time_ms for record in _trained(log, case) if record.order < stop.order]
        delay = stop.time_ms - max(inside, default=stop.time_ms)
        yield delay / 1000, delay >= 0


def _trained(log: Log, case: Case) -> list[Record]:
    keys = [f"{kind}_{end}" for kind in ("epoch", "eval", "block") for end in ("start", "stop")]
    return log.in_order(*keys, *METRICS)


def measure_staging(log: Log, case: Case) -> Iterator[Measured]:
    """Yield the seconds from run_start to the first staging_start."""
    if log["staging_start"] and log["run_start"]:
        delay = (log["staging_start"][0].time_ms - log["run_start"][0].time_ms) / 1000
        yield delay, delay >= 0 or case.round == ROUNDS[-1]


def measure_ranks(log: Log, case: Case) -> Iterator[Measured]:
    """Yield number_of_ranks / (number_of_nodes * accelerators_per_node); a system without accelerators has any."""
    ranks, nodes, each = (log.value(key) for key in ("number_of_ranks", "number_of_nodes", "accelerators_per_node"))
    if is_number(ranks) and is_number(nodes) and is_number(each):
        yield ranks / (nodes * (each or 1)), each > 0 and ranks == nodes * each


def measure_longest_epoch(log: Log, case: Case) -> Iterator[Measured]:
    """Yield the time of the slowest epoch, over that of the median one."""
    times = sorted(course_of(log, case).training_ms.values())
    if len(times) > 2 and median(times) > 0:
        yield times[-1] / median(times), times[-1] <= 4 * median(times)


def measure_shortest_epoch(log: Log, case: Case) -> Iterator[Measured]:
    """Yield the time of the fastest epoch but the last, over that of the median one."""
    times = [*course_of(log, case).training_ms.values()][:-1]
    if len(times) > 2 and median(times) > 0:
        share = min(times) / median(times)
        yield share, share >= 0.8


def measure_caches(log: Log, case: Case) -> Iterator[Measured]:
    """Yield 0 for each cache_clear that is false."""
    yield from ((record.value is not False, record.value is not False) for record in log["cache_clear"])


def measure_reference_records(log: Log, case: Case) -> Iterator[Measured]:
    """Yield 1 for each record of a reference implementation with a usual value, 0 for others."""
    for key, is_usual, _, _ in REFERENCE_RECORDS:
        yield from ((is_usual(record.value, case), is_usual(record.value, case)) for record in log[key])


MEASURES: dict[str, tuple[Callable[[Log, Case], Iterator[Measured]], str]] = {
    "init_stop, and run_start (s)": (measure_pause, judged(Init)),
    "run_start, and the first record of training or evaluation (s)": (measure_start, judged(Forward)),
    "the last record of training or evaluation, and run_stop (s)": (measure_stop, judged(Forward)),
    "run_start, and staging_start (s; up to round 2.0)": (measure_staging, "ORD03, ORD09 (error)"),
    "cache_clear (0: false)": (measure_caches, "ORD02 (warning)"),
    "checkpoint, data_oversampling_factor and target_accuracy_reached (0: unusual)": (
        measure_reference_records,
        "SET15 (warning)",
    ),
    "the slowest epoch, and the median one": (measure_longest_epoch, "none: machines get busy"),
    "the fastest epoch but the last, and the median one": (measure_shortest_epoch, "ORD18 (warning under 0.5)"),
    "number_of_ranks, and nodes * accelerators, in all logs (0 accelerators: nodes)": (
        measure_ranks,
        "AMT05, but for these",
    ),
}


if __name__ == "__main__":
    sys.exit(write_page(__doc__, page, table))
