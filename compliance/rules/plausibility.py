"""Notes on how plausible the speed of a run is: against its own records, its siblings and published systems.

None of them is an error: a faster system breaks no rule. They tell a reviewer where to look.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from common.reference import FULL
from common.values import is_number
from compliance.facts.published_rates import PUBLISHED
from compliance.logs.log import Log
from compliance.logs.timeline import samples_per_second
from compliance.model.case import STRICT, Case
from compliance.model.finding import NOTE, Finding
from compliance.model.result_set import ResultSet, names_of
from compliance.rules.rule import LogRule, SetRule

SPEED = "bench/published_rates.py"
FASTER_THAN_PUBLISHED: Final = 10
FASTER_THAN_OWN_RECORDS: Final = 2
SLOWER_THAN_OWN_RECORDS: Final = 10
FASTER_THAN_SIBLINGS: Final = 1.5
"""No published run is more than 1.17 times as fast as the median of its result."""
ENOUGH_RUNS: Final = 3


class OwnThroughput(LogRule):
    """The throughput that a log records agrees with the times of its epochs."""

    id = "ORD19"
    severity = NOTE
    cite = SPEED
    profiles = (STRICT,)
    differs = "the official tool does not read these records"
    why = "Times that were changed afterwards no longer fit the speed that the run recorded while it trained."
    fix = "Nothing to fix if the records count something else; say so in the README of the implementation."
    good = (
        lambda log: log(),
        lambda log: log().add("throughput", 20_000.0, before="run_stop"),
        lambda log: log(benchmark="oc20").add("throughput", 740.0, before="run_stop"),
    )
    bad = (
        lambda log: log().add("throughput", 900.0, before="run_stop"),
        lambda log: log().add("tracked_stats", {"throughput": 1e9}, before="run_stop"),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if not log.rates or case.reference is None or case.reference.variant != FULL:
            return
        rate = samples_per_second(log, case.reference)
        if rate is None:
            return
        (lowest, lowest_line), (highest, highest_line) = log.rates
        published = PUBLISHED.get(case.reference.name)
        usual = published.to_own_records if published else 1
        if rate > FASTER_THAN_OWN_RECORDS * usual * highest or rate * SLOWER_THAN_OWN_RECORDS < lowest:
            message = (
                f"by its times the run trains {rate:,.4g} samples/s, by its own throughput records"
                f" {lowest:,.4g} to {highest:,.4g}"
            )
            line = highest_line if rate > highest else lowest_line
            yield self.finding(log.path, line, message, "times and records of one run", "throughput")


class FasterThanPublished(LogRule):
    """The run trains at most ten times as fast as the fastest published one, in total and per accelerator."""

    id = "SET14"
    severity = NOTE
    cite = SPEED
    profiles = (STRICT,)
    differs = "the official tool does not compare speeds"
    why = "Such a speed more often comes from wrong times, node counts or sample counts than from a faster system."
    fix = "Check the times, number_of_nodes, accelerators_per_node and train_samples of the log."
    good = (lambda log: log(), lambda log: log(benchmark="openfold"))
    bad = (
        lambda log: log().times(lambda ms: 1_690_000_000_000 + (ms - 1_690_000_000_000) / 1000),
        lambda log: log().set("number_of_nodes", 1).set("accelerators_per_node", 1),
    )

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if case.reference is None or case.reference.variant != FULL:
            return
        rate, best = samples_per_second(log, case.reference), PUBLISHED.get(case.reference.name)
        if rate is None or best is None:
            return
        scale = _count_accelerators(log)
        each = rate / scale if scale else 0
        for scope, ours, theirs, result in (
            ("", rate, best.total, best.result),
            (" per accelerator", each, best.per_accelerator, best.result_per_accelerator),
        ):
            if ours > FASTER_THAN_PUBLISHED * theirs:
                message = (
                    f"the run trains {ours:,.4g} samples/s{scope}, {ours / theirs:,.3g} times as many as the fastest"
                    f" published result ({theirs:,.4g}, {result})"
                )
                expected = f"at most {FASTER_THAN_PUBLISHED} times the published rate"
                yield self.finding(log.path, log["run_start"][0].line if log["run_start"] else 0, message, expected)
                return


class FasterThanSiblings(SetRule):
    """No run of a result trains much faster than the others."""

    id = "RUN18"
    severity = NOTE
    cite = SPEED
    profiles = (STRICT,)
    differs = "the official tool does not compare the runs"
    why = "The runs of a result are made on one system; no published run is 1.2 times as fast as the median."
    fix = "Check the times of the run; nothing to fix if the system was busy with something else during the other runs."
    good = (lambda package: package(),)
    bad = (
        lambda package: package().edit(
            2, lambda log: log.times(lambda ms: 1_690_000_000_000 + (ms - 1_690_000_000_000) / 2)
        ),
    )

    def check(self, results: ResultSet) -> Iterator[Finding]:
        rates = [(run, run.samples_per_s) for run in results.runs if run.samples_per_s is not None and not run.mini]
        if len(rates) < ENOUGH_RUNS:
            return
        ascending = sorted(rate for _, rate in rates)
        usual, most = ascending[len(rates) // 2], ascending[-1]
        fast = [run for run, rate in rates if rate > FASTER_THAN_SIBLINGS * usual]
        if fast:
            message = (
                f"{names_of(fast)}: {most:,.4g} samples/s, {most / usual:.3g} times the median of the"
                f" {len(rates)} runs ({usual:,.4g})"
            )
            yield self.finding(fast[0].path, 0, message, f"at most {FASTER_THAN_SIBLINGS} times the median")


def _count_accelerators(log: Log) -> float:
    """Return the accelerators of the run; 0 if it has none or does not say."""
    nodes, each = log.value("number_of_nodes"), log.value("accelerators_per_node")
    return nodes * each if is_number(nodes) and is_number(each) and nodes > 0 and each > 0 else 0
