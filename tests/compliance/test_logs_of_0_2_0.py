"""Logs that version 0.2.0 wrote keep the findings of its checker, whichever keys come and go.

In logs_of_0_2_0/ are, for each benchmark, logs of commit 570ef3a, the last one of that version:

- `-mini`: the trainer's, of the mini problem;
- `-few`: the trainer's, of `config.yaml` with two samples or one, in open, as the whole dataset is too large here;
- `-closed`: a log as the rules want it, with the trainer's provenance of `config.yaml`.
"""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.reference import Closed, equals
from compliance.benchmarks import REFERENCES
from compliance.examine import LogTask, digest
from compliance.logs.log import parse_log

FOLDER = Path(__file__).parent / "logs_of_0_2_0"
BENCHMARKS = ("cosmoflow", "deepcam", "oc20")
PREFIX = ":::MLLOG "
MISSING = ("SET12", "error", "provenance")
UNKNOWN = ("SET12", "warning", "provenance")
HOW = "a new key of the closed division needs `since` in reference.py, a removed one stays there with `until`"


def few(quality: str) -> list[tuple[str, str, str]]:
    """Return the findings on a run with few samples that is judged as closed."""
    counts = ("train_samples", "eval_samples")
    configured = ("submission.division", "data.train_samples", "data.eval_samples")
    return [
        ("QUA01", "error", quality),
        ("QUA03", "error", "run_stop"),
        *(("SET05", "error", key) for key in counts),
        *(("SET11", "error", key) for key in configured),
    ]


def unchanged(config: dict[str, Any]) -> None:
    """Leave a configuration as it is."""


def findings_in(name: str, change: Callable[[dict[str, Any]], None] = unchanged) -> list[tuple[str, str, str]]:
    """Return the findings on a log whose configuration is changed, as (rule, severity, key), sorted."""
    found, _ = judge(name, change)
    return found


def judge(name: str, change: Callable[[dict[str, Any]], None] = unchanged) -> tuple[list[tuple[str, str, str]], str]:
    """Return the findings on a log as (rule, severity, key), sorted, and their messages."""
    lines = (FOLDER / f"{name}.txt").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if '"key": "provenance"' in line)
    record = json.loads(lines[at].removeprefix(PREFIX))
    assert record["value"]["versions"]["mlperf-hpc-suite"] == "0.2.0"
    change(record["value"]["config"])
    lines[at] = PREFIX + json.dumps(record)
    log = parse_log("\n".join([*lines, ""]).encode(), "result_0.txt")
    division = None if name.endswith("mini") else "closed"
    run = digest(log, LogTask("result_0.txt", "3.0", division=division, allow_mini=True))
    return (
        sorted((found.rule, found.severity, found.key) for found in run.findings),
        "\n".join(found.message for found in run.findings),
    )


def keys_of(section: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of a configuration; a mapping whose names are numbers is a value."""
    for name, value in section.items():
        if isinstance(value, dict) and value and all(map(str.isidentifier, value)):
            yield from keys_of(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def without(key: str) -> Callable[[dict[str, Any]], None]:
    """Return the change that drops a key from a configuration."""
    *sections, name = key.split(".")

    def drop(config: dict[str, Any]) -> None:
        for section in sections:
            config = config[section]
        del config[name]

    return drop


def add_unknown(config: dict[str, Any]) -> None:
    """Add a key that no version has."""
    config["model"]["unheard_of"] = 1


@pytest.mark.parametrize("name", BENCHMARKS)
def test_complete_logs(name: str) -> None:
    quality = REFERENCES[name].target.key
    assert findings_in(f"{name}-closed") == [], HOW
    assert findings_in(f"{name}-few") == sorted(few(quality)), HOW
    assert findings_in(f"{name}-mini") == []


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_key_that_was_written_is_asked_for(name: str) -> None:
    configs: list[dict[str, Any]] = []
    findings_in(f"{name}-closed", lambda config: configs.append(copy.deepcopy(config)))
    keys = list(keys_of(configs[0]))
    assert len(keys) > 70
    for key in keys:
        found, messages = judge(f"{name}-closed", without(key))
        assert found == [MISSING] and f"lacks {key} " in messages, f"{key}: {HOW}"


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_key_that_is_not_known_is_a_warning(name: str) -> None:
    assert findings_in(f"{name}-closed", add_unknown) == [UNKNOWN]
    assert findings_in(f"{name}-mini", add_unknown) == []


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_new_key_is_not_asked_of_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new = Closed("model.new", equals(1), "example.adoc", since="0.3.0")
    monkeypatch.setitem(REFERENCES, name, replace(REFERENCES[name], closed=(*REFERENCES[name].closed, new)))
    test_complete_logs(name)
