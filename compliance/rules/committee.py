"""The rule that the committee's own rule files are: those of MLPerf Training, read as data."""

from __future__ import annotations

from collections.abc import Iterator

from common.command import list_some
from common.rounds import find_round
from compliance.committee.rule_files import DISTRIBUTION, ROOT_FILE, UnreadableError, read_rule_file
from compliance.committee.verdict import Refusal, judge_records
from compliance.logs.log import Log
from compliance.model.judging import COMMITTEE_RULE, NOTE, Case, Finding
from compliance.rules.rule import LogRule


class Accepted(LogRule):
    """The committee's checker accepts the log."""

    id = COMMITTEE_RULE
    follows = ("FRM03", "FRM04")
    cite = "mlperf-logging: compliance_checker/training_<version>/*.yaml"
    why = "What the committee asks of a log of MLPerf Training is in its rule files: without them nothing was judged."
    fix = "Log what the rule asks for, and repeat the run; ask the committee about finished logs."
    differs = "not at all: strict asks the same, and more"
    rounds = ()  # of HPC: its facts are the suite's own

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        round_ = find_round(case.round)
        if not case.rules_folder:
            message = f"not judged: there are no rule files of round {round_.title}"
            fix = f"pip install --upgrade {DISTRIBUTION}, or name its folder or a clone: --committee-rules DIR."
            yield self.finding(log.path, 0, message, f"{DISTRIBUTION} with {round_.folder}/", fix=fix, incomplete=True)
            return
        try:
            refusals = log.derive(_judge, case.rules_folder, round_.folder)
        except UnreadableError as error:
            fix = "Ask the committee's own checker, which runs the code in this file; if it is yours, correct it."
            yield self.finding(log.path, 0, f"not judged: {error}", fix=fix, incomplete=True)
            return
        for key, line, message, expected in refusals:
            yield self.finding(log.path, line, message, expected, key)


class Disclosed(LogRule, strict_only=True):
    """The log has what the committee's rule files name as optional: precision, parallelism and configuration."""

    id = "COM02"
    severity = NOTE
    once = True
    cite = "mlperf-logging: compliance_checker/training_6.0.0/common.yaml"
    why = "A reader wants to know it, and a later round may require it: 6.1 does what was optional in 6.0."
    fix = "Log these keys once each, from rank 0; nothing to fix in finished logs."
    differs = "the official tool does not ask for them"
    rounds = ()

    def check(self, log: Log, case: Case) -> Iterator[Finding]:
        if not case.rules_folder:
            return  # COM01
        keys = read_rule_file(case.rules_folder, f"{find_round(case.round).folder}/{ROOT_FILE}").keys
        missing = [key for key, rule in keys.items() if rule.required == "OPTIONAL" and key not in log.records]
        if missing:
            yield self.finding(log.path, 0, f"not disclosed: {list_some(missing, 20)}", "a record of each")


def _judge(log: Log, folder: str, round_folder: str) -> list[Refusal]:
    """Return why the committee's checker refuses the log, which reads it in the order of its lines."""
    records = sorted((record for of_key in log.records.values() for record in of_key), key=lambda record: record.line)
    return judge_records(records, folder, round_folder)
