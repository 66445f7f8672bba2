"""Read results as rows.

All numbers come from the report of `compliance.engine.check_paths`, so that there is one verdict and one score.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from common.command import as_called, clean, counted
from common.console import print_error, print_warning
from common.own_code import OWN_CODE
from common.rounds import label_round
from common.values import as_count, group_pairs, is_number, shared_value
from compliance.cli import refuse_missing
from compliance.engine import Options, check_paths
from compliance.formats.findings import all_shown, alone, grouped, result_sets
from compliance.formats.style import Style
from compliance.formats.words import convergence_text, write_location
from compliance.logs.run import Run
from compliance.model.judging import ERROR, FAIL, PASSING
from compliance.model.layout import find_submission
from compliance.model.report import Report
from compliance.model.result_set import ResultSet
from compliance.model.score import Throughput, TimeToTrain
from compliance.model.system import SystemDescription
from submission.results.operations import rate_result
from submission.results.rows import NOT_JUDGED, NoResultsError, ResultOperations, Row

OF_SCORES: Final = (
    "minutes staging_minutes staging_clock time_with_staging_minutes time_without_staging_minutes run_minutes "
    "convergence scaled models models_per_minute instance_scale".split()
)
"""The fields of a row that scores of one kind or both have under the same name."""
MOST_ERRORS: Final = 4
"""Rules whose errors a table or a page is shown with."""
SINGLE_LOGS: Final = "logs that are named alone, or in the profile official, are judged one by one"


def read_report(paths: Sequence[str], options: Options) -> Report:
    """Return the report on the results below the paths.

    Raises NoResultsError if there are none, UsageError for a path that does not exist.
    """
    report = read_logs(paths, options)
    if not report.sets:
        raise NoResultsError(explain_no_results(paths))
    return report


def read_previous(paths: Sequence[str], report: Report, options: Options) -> Report:
    """Return the report on the results of the previous round; warn if it is later than the round of a report."""
    previous = read_report(paths, replace(options, round=None, details=False))
    before, now = (max((results.round for results in each.sets), default="") for each in (previous, report))
    if before > now > "":
        rounds = f"round {label_round(before)}, later than round {label_round(now)}, which is shown"
        print_warning(f"--previous {clean(' '.join(paths))} is {rounds}: exchange them, or the speed-ups are inverted")
    earlier, later = ({run.fingerprint.times for run in each.runs} - {0} for each in (previous, report))
    if same := len(earlier & later):
        shown = f"{counted(same, 'log')} of what is shown: give the results of the other round"
        print_warning(f"--previous {clean(' '.join(paths))} holds {shown}")
    return previous


def print_errors(report: Report, paths: Sequence[str]) -> None:
    """Print the first error of a rule and its fix, for the first rules, on standard error; not what follows from it."""
    groups = grouped([entry for entry in all_shown(report) if not entry.finding.cause], ERROR)
    for group in groups[:MOST_ERRORS]:
        first, more = group.entries[0], len(group.entries) - 1
        place = write_location(first.finding.path, first.finding.line, Style())
        others = f" (and {counted(more, 'other')} of {group.rule})" if more else f" ({group.rule})"
        print_error(": ".join(filter(None, (place, first.text))) + others)
        print(f"  fix: {group.fix.partition(chr(10))[0]}", file=sys.stderr)
    if groups:
        print(as_called(f"  all findings: python -m compliance.check {shlex.join(paths)}"), file=sys.stderr)


def explain_no_results(paths: Sequence[str]) -> str:
    """Return what is expected of paths below which there are no results, or the submission that they are a part of."""
    above = find_submission(paths[0])
    expected = "submissions (<organisation>/results/...), folders with the logs of several runs, or logs"
    return f"no results in {', '.join(paths)}: expected {f'the submission itself, {above}' if above else expected}"


def read_logs(paths: Sequence[str], options: Options) -> Report:
    """Return the report on the logs below the paths, in results or not; UsageError for a path that does not exist."""
    refuse_missing(paths)
    report = check_paths(paths, options)
    for finding in report.broken_plugins:
        print_warning(clean(finding.message))
    return report


def list_rows(report: Report) -> list[Row]:
    """Return a row for each result set, by round, kind of scaling, benchmark, division, organisation and system."""
    return sorted(
        (row_of(results, report) for results in report.sets),
        key=lambda row: (*row.table_order, row.organisation.lower(), row.system.lower()),
    )


def every_set(report: Report) -> list[ResultSet]:
    """Return the results, and the logs outside of them."""
    return result_sets(report) + sort_logs(report)


def sort_logs(report: Report) -> list[ResultSet]:
    """Return the logs that were judged as logs, together those of a folder, round, benchmark and variant."""
    kinds = group_pairs(
        ((os.path.dirname(os.path.abspath(run.path)), run.round, run.benchmark, run.variant), run)
        for run in alone(report)
    )
    return [
        ResultSet(
            folder,
            replace(runs[0].case, division=shared_value(run.division for run in runs)),
            variant=variant,
            runs=runs,
            loose=True,
            not_judged=SINGLE_LOGS,
        )
        for (folder, _, _, variant), runs in kinds.items()
    ]


def row_of(results: ResultSet, report: Report) -> Row:
    """Return the row of one result of a report."""
    required = results.reference.runs if results.reference else None
    count, is_detailed = len(results.runs), any(run.detailed for run in results.runs)
    verdict = report.verdict_of(results)
    return Row(
        verdict=NOT_JUDGED if results.not_judged and verdict in PASSING else verdict,
        round=results.round,
        organisation=results.organisation or _common_value(results, "submission_org"),
        division=results.division or "",
        system=results.system or _common_value(results, "submission_platform"),
        scaling=results.scaling,
        benchmark=results.benchmark or results.folder_benchmark,
        mini=results.mini,
        batch_size=results.batch_size if is_number(results.batch_size) else None,
        runs=count,
        required_runs=required,
        incomplete=f"{count} of {required} runs" if required and count < required and not results.not_judged else "",
        not_judged=results.not_judged,
        folder=results.name if results.loose else "",
        states=results.states,
        own_code=next((run.software[OWN_CODE] for run in results.runs if OWN_CODE in run.software), ""),
        plugin=results.plugin,
        operations=ResultOperations() if results.not_judged or not is_detailed else rate_result(results),
        **_describe_machine(results),
        **_describe_outcome(results),
    )


def _common_value(results: ResultSet, key: str) -> str:
    """Return the value of a submission key if all logs agree, else ""."""
    texts = (run.submission.get(key) for run in results.runs)
    return str(shared_value((text for text in texts if isinstance(text, str)), ""))


def _describe_machine(results: ResultSet) -> dict[str, Any]:
    """Return the fields of a row about the system."""
    described = results.description or SystemDescription("", "")
    run = results.runs[0] if results.runs else Run("")
    nodes, each = described.count("number_of_nodes"), described.count("accelerators_per_node")
    if nodes is None:
        nodes, each = as_count(run.nodes), as_count(run.accelerators_per_node)
    processors = described.count("host_processors_per_node")
    return {
        "availability": described.text("status") or _common_value(results, "submission_status"),
        "nodes": nodes,
        "processor": described.text("host_processor_model_name"),
        "processors": None if nodes is None or processors is None else nodes * processors,
        "accelerator": described.text("accelerator_model_name"),
        "accelerators": None if nodes is None or each is None else nodes * each,
        "framework": described.text("framework"),
    }


def _describe_outcome(results: ResultSet) -> dict[str, Any]:
    """Return the fields of a row about score and convergence."""
    verdict, score = results.judged_convergence, results.score
    factor = verdict.normalization if verdict and verdict.passed else None
    fields: dict[str, Any] = {
        "rcp": convergence_text(results).removeprefix("RCP "),
        "rcp_factor": factor,
        "waiver": results.waiver if verdict and not verdict.passed else "",
        "bypass": str(results.bypasses[0]) if results.bypasses and verdict and not verdict.passed else "",
        "convergence": verdict.submission_mean if verdict else None,
        "convergence_unit": results.convergence_unit,
        "energy_joules": results.energy_joules,
    }
    fields |= {name: getattr(score, name) for name in OF_SCORES if hasattr(score, name)}
    if isinstance(score, TimeToTrain) and factor:
        fields["normalised"] = score.normalized
    if isinstance(score, Throughput):
        accepted = [run for run in results.runs if run.verdict != FAIL]
        fields["run_minutes"] = tuple(sorted(run.minutes for run in accepted if run.minutes is not None))
        fields["states_whole_system"] = results.states_whole_system
        fields["normalised"] = score.normalized_models_per_minute if factor else None
    return fields
