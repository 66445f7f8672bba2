"""The committee's rule files, read as data, give the verdicts of the committee's checker, which runs them.

The logs: published ones of MLPerf Training v4.1 and of all rounds of MLPerf HPC, and for each round those that
bench/committee_logs.py makes from its rules: valid ones, and for each rule one that breaks it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from common.rounds import TRAINING, Round
from common.tree import NAMED
from compliance.committee.rule_files import UnreadableError, find_rules, list_rounds, read_rule_file
from compliance.committee.verdict import judge_records
from compliance.engine import Options, check_paths
from compliance.logs.log import KEYS, LogReader, read_with
from compliance.model.judging import OFFICIAL, JudgedRun
from tests.bench_script import bench_script
from tests.compliance.committee.written import needs_rule_files

pytestmark = needs_rule_files
committee_logs, making, breaking, committee_rules = (
    bench_script(f"committee_{name}") for name in ("logs", "making", "breaking", "rules")
)
UNREADABLE = {f"training_{version}.0" for version in ("3.1", "4.0", "4.1", "5.0")}
"""Rounds with a file that this package refuses, as it imports a module: closed_stable_diffusion.yaml."""
REFUSED = 250
"""Logs of MLPerf Training v4.1 that need this file."""
STEP = 8
"""In the gate every so many rules of a round are broken once."""
MALFORMED = {"json", "no object", "missing field", "deep", "time type"}
"""Problems of a line with which the committee's checker refuses a log whatever the rules say."""
ROUNDS = [f"{usage}_{version}.0" for usage, version in list_rounds(find_rules(None)) if version != "0.6"]


@cache
def keys_of(folder: str) -> frozenset[str]:
    """Return the keys that the rule files of a round name."""
    keys = set(KEYS)
    for path in Path(find_rules(None), folder).glob("*.yaml"):
        try:
            keys |= read_rule_file(find_rules(None), f"{folder}/{path.name}").keys.keys()
        except UnreadableError:
            assert folder in UNREADABLE and "stable_diffusion" in path.name
    return frozenset(keys)


def accepts(path: Path, folder: str) -> bool | None:
    """Return the verdict by the rule files of a round; None if one that the log needs is refused."""
    log = read_with(LogReader(str(path), keys_of(folder)), NAMED)
    records = sorted((record for each in log.records.values() for record in each), key=lambda record: record.line)
    try:
        refusals = judge_records(records, find_rules(None), folder)
    except UnreadableError:
        return None
    return not refusals and bool(records) and not any(problem.kind in MALFORMED for problem in log.problems)


def is_unjudged(run: JudgedRun) -> bool:
    return any(finding.incomplete for finding in run.findings)


def check_logs(folder: Path, version: str) -> dict[str, bool | None]:
    """Return the verdicts of the profile official on logs of MLPerf Training; None where a file is refused."""
    report = check_paths([folder], Options(profile=OFFICIAL, usage=TRAINING, round=Round(TRAINING, version).name))
    return {
        os.path.relpath(run.path, folder): None if is_unjudged(run) else run.verdict != "FAIL" for run in report.runs
    }


# -- logs that are made from the rules -----------------------------------------------------------------------


def make_some(committee: Any, number: int, folder: str) -> Iterator[tuple[str, Any]]:
    """Yield valid logs of a benchmark of a round, and some that break a rule, each with a name."""
    usage, _, version = folder.partition("_")
    names = committee_logs.find_benchmarks(committee, folder, "closed")
    sources = list(making.make_all(committee, making.Task(usage, version, "closed", names[number % len(names)])))
    for index, (_, made) in enumerate(sources):
        yield f"valid_{index}", made.log
    maker, made = sources[0]
    breaker = breaking.Breaker(maker, made)
    for rule in [rule for file in made.files for rule in committee.rules(file)][number % STEP :: STEP]:
        if found := breaker.break_rule(rule):
            yield f"broken_{rule.name}", found[0]


def test_some_rules_of_every_round(tmp_path):
    committee = committee_rules.Committee(committee_logs.find_package(None))
    writer = committee_rules.Writer(committee_logs.ROOT)
    count: Counter[bool | None] = Counter()
    for number, folder in enumerate(ROUNDS):
        usage, _, version = folder.partition("_")
        for name, log in make_some(committee, number, folder):
            path = tmp_path / folder / f"{name}.txt"
            writer.write(path, log)
            said, _ = committee.judge(usage, version, path)
            ours = accepts(path, folder)
            assert ours in (said, None), path
            count[ours] += 1
    assert len(ROUNDS) >= 16 and count[True] >= len(ROUNDS) and count[False] > 100 and count[None] < 30


@pytest.mark.exhaustive
@pytest.mark.parametrize("folder", ROUNDS)
def test_all_rules_of_a_round(folder, tmp_path):
    script = Path(committee_logs.__file__)
    for option in ((), ("--compare",)):
        subprocess.run([sys.executable, script, tmp_path, "--rounds", folder, *option], check=True, capture_output=True)
    said = {row["log"]: row["valid"] for row in committee_logs.read_verdicts(tmp_path)}
    found = {log: accepts(tmp_path / log, folder) for log in said}
    unjudged = {log for log, verdict in found.items() if verdict is None}
    assert all("stable_diffusion" in log for log in unjudged) and bool(unjudged) == (folder in UNREADABLE)
    assert {log: said[log] for log in found.keys() - unjudged} == {log: found[log] for log in found.keys() - unjudged}
    assert len(found) > 200 and set(said.values()) == {True, False}
    if folder.startswith(TRAINING):
        whole = check_logs(tmp_path / folder, folder.removeprefix("training_").removesuffix(".0"))
        assert {f"{folder}/{log}": verdict for log, verdict in whole.items()} == found


# -- published logs ------------------------------------------------------------------------------------------


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.exhaustive
def test_published_logs_of_training(shared, tmp_path):
    said = {
        entry["log"]: entry["official_valid"] for entry in read_lines(shared / "corpus/training_v4.1_verdicts.jsonl")
    }
    with tarfile.open(shared / "corpus/training_v4.1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    found = {log: accepts(tmp_path / log, "training_4.1.0") for log in said}
    unjudged = {log for log, verdict in found.items() if verdict is None}
    assert len(said) == 1309 and len(unjudged) == REFUSED
    assert {log: verdict for log, verdict in found.items() if verdict is not None} == {
        log: verdict for log, verdict in said.items() if log not in unjudged
    }


@pytest.mark.exhaustive
def test_published_logs_of_hpc_get_the_verdicts_of_our_own_facts(official, corpus):
    ours = {os.path.relpath(run.path, corpus): run.verdict != "FAIL" for run in official.runs}
    first = check_paths([corpus / "v0.7"], Options(profile=OFFICIAL, round="1.0"))  # there are no files of round 0.7
    ours |= {os.path.relpath(run.path, corpus): run.verdict != "FAIL" for run in first.runs}
    folders = {"v0.7": "hpc_1.0.0", "v1.0": "hpc_1.0.0", "v2.0": "hpc_2.0.0", "v3.0": "hpc_3.0.0"}
    found = {log: accepts(corpus / log, folders[log.partition("/")[0]]) for log in ours}
    assert found == ours and len(ours) == 1545
