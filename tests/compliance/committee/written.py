"""Rule files and logs that the tests of the committee's rules write."""

import importlib.util
import json

import pytest

from common.tree import NAMED
from compliance.committee.rule_files import examine_rule_file, find_rules, list_rounds
from compliance.committee.verdict import judge_records
from compliance.logs.log import KEYS, LogReader, read_with

ROUND = "training_9.9.0"
COMMON = f"{ROUND}/common.yaml"
RUN = (
    ("submission_benchmark", "llama31_8b"),
    ("submission_division", "closed"),
    ("init_start", None),
    ("init_stop", None),
    ("run_start", None),
    ("seed", 1),
    ("eval_accuracy", 3.4),
    ("eval_accuracy", 3.2),
    ("run_stop", None),
)


def write_rules(folder, files):
    """Write rule files, by their names below the folder of a round, or by their paths; return the folder."""
    for name, text in files.items():
        path = folder / (name if "/" in name else f"{ROUND}/{name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for cached in (find_rules, list_rounds, examine_rule_file):
        cached.cache_clear()
    return folder


def key(name, **fields):
    """Return the block of a key; a field may be a text or several."""
    lines = [f"    {field}: {json.dumps(value)}\n" for field, value in fields.items()]
    return f"- KEY:\n    NAME: {name}\n" + "".join(lines)


def begin(code):
    return f"- BEGIN:\n    CODE: {json.dumps(code)}\n"


def end(**fields):
    return "- END:\n" + "".join(f"    {field}: {json.dumps(value)}\n" for field, value in fields.items())


def write_log(path, records=RUN, start=1_700_000_000_000):
    """Write a log of records: key, value, and metadata if there are any; return its path."""
    lines = []
    for number, (name, value, *metadata) in enumerate(records):
        kind = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}.get(name.rpartition("_")[2], "POINT_IN_TIME")
        said = metadata[0] if metadata else {"file": "train.py", "lineno": 1, "status": "success", "epoch_num": 1}
        record = {"namespace": "", "time_ms": start + 1000 * number, "event_type": kind, "key": name}
        lines.append(f":::MLLOG {json.dumps({**record, 'value': value, 'metadata': said})}\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


def judge(folder, files, *records):
    """Return the refusals of a log by rule files that are written into a folder."""
    write_rules(folder, files)
    log = write_log(folder / "log.txt", records)
    named = frozenset(record[0] for record in records)
    read = read_with(LogReader(str(log), KEYS | named), NAMED)
    found = sorted((record for each in read.records.values() for record in each), key=lambda record: record.line)
    return judge_records(found, str(folder), ROUND)


INSTALLED = importlib.util.find_spec("mlperf_logging")  # which imports nothing
needs_rule_files = pytest.mark.needs("mlperf-logging", INSTALLED is not None, "the rule files of mlperf-logging")
