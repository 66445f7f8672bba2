"""Logs that version 0.2.0 wrote keep the findings of its checker, whichever keys come and go.

In logs_of_0_2_0/ are, for each benchmark, logs of commit 570ef3a, the last one of that version:

- `-mini`: the trainer's, of the first epoch or two of the mini problem;
- `-few`: the trainer's, of `config.yaml` with two samples or one, in open, as the whole dataset is too large;
- `-closed`: a log as the rules want it, with the provenance that the trainer writes for `config.yaml`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.reference import equals
from common.settings import keys
from common.settings.keys import Closed
from compliance.benchmarks import REFERENCES
from compliance.engine import Options
from compliance.engine.log_checker import LogTask, judge_log
from compliance.logs.log import parse_log
from compliance.model.judging import Case, JudgedRun

FOLDER = Path(__file__).parent / "logs_of_0_2_0"
BENCHMARKS = ("cosmoflow", "deepcam", "oc20")
PREFIX = ":::MLLOG "
LACKING = ("SET12", "error", "provenance")
UNKNOWN = ("SET12", "warning", "provenance")
ABORTED = ("QUA03", "error", "run_stop")
MINI = [ABORTED, ("SET07", "note", "dataset_variant")]
FEW = [
    ABORTED,
    ("SET05", "error", "eval_samples"),
    ("SET05", "error", "train_samples"),
    ("SET11", "error", "data.eval_samples"),
    ("SET11", "error", "data.train_samples"),
    ("SET11", "error", "submission.division"),
]
"""What is wrong with the short runs, beside the target that they miss."""
HOW = (
    "a new key needs `since` in its declaration; a removed one stays in `removed` of its Config, with its last version"
)

Records = list[dict[str, Any]]


def read_log(name: str) -> Records:
    """Return the records of a log."""
    return [json.loads(line.removeprefix(PREFIX)) for line in (FOLDER / f"{name}.txt").read_text().splitlines()]


def config_of(records: Records) -> dict[str, Any]:
    """Return the configuration in a log, to be changed."""
    provenance = next(record["value"] for record in records if record["key"] == "provenance")
    assert provenance["versions"]["mlperf-hpc-suite"] == "0.2.0"
    config: dict[str, Any] = provenance["config"]
    return config


def check_as(division: str, records: Records) -> JudgedRun:
    """Return the run of a log, with what the checker finds."""
    text = "".join(f"{PREFIX}{json.dumps(record)}\n" for record in records)
    log = parse_log(text.encode(), "result_0.txt")
    return judge_log(log, LogTask("result_0.txt", Case("3.0", allow_mini=True), Options(division=division)))


def verdict_of(run: JudgedRun) -> tuple[str, list[tuple[str, str, str]]]:
    """Return the verdict, and the findings as rule, severity and key."""
    return run.verdict, sorted((found.rule, found.severity, found.key) for found in run.findings)


def keys_of(section: dict[str, Any], prefix: str = "") -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield the keys of a configuration as (section, name, dotted key); a mapping from numbers is a value."""
    for name, value in section.items():
        if isinstance(value, dict) and value and all(map(str.isidentifier, value)):
            yield from keys_of(value, f"{prefix}{name}.")
        else:
            yield section, name, prefix + name


@pytest.mark.parametrize("name", BENCHMARKS)
def test_complete_logs(name: str) -> None:
    missed = ("QUA01", "error", REFERENCES[name].target.key)
    assert verdict_of(check_as("closed", read_log(f"{name}-closed"))) == ("PASS", []), HOW
    assert verdict_of(check_as("closed", read_log(f"{name}-few"))) == ("FAIL", [missed, *FEW]), HOW
    assert verdict_of(check_as("open", read_log(f"{name}-mini"))) == ("FAIL", [missed, *MINI])


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_key_that_was_written_is_asked_for(name: str) -> None:
    records = read_log(f"{name}-closed")
    keys = list(keys_of(config_of(records)))
    assert len(keys) > 70
    for section, key, dotted in keys:
        value = section.pop(key)
        run = check_as("closed", records)
        assert verdict_of(run) == ("FAIL", [LACKING]) and f"lacks {dotted} " in run.findings[0].message, HOW
        section[key] = value


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_key_that_is_not_known_is_a_warning(name: str) -> None:
    closed, mini = read_log(f"{name}-closed"), read_log(f"{name}-mini")
    for records in (closed, mini):
        config_of(records)["model"]["unheard_of"] = 1
    assert verdict_of(check_as("closed", closed)) == ("WARN", [UNKNOWN])
    assert UNKNOWN not in verdict_of(check_as("open", mini))[1]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_new_key_is_not_asked_of_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new = Closed("model.new", equals(1), "example.adoc", since="0.3.0")
    rows = keys.find_rows(REFERENCES[name])
    monkeypatch.setattr(keys, "find_rows", lambda reference: (*rows, new))
    test_complete_logs(name)
