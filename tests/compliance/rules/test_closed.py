"""What logs of this suite state of themselves: which logs are its own, what they must have, and no crash on any."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest

from common.reference import FREE, equals
from common.settings import keys as closed
from common.settings.keys import Closed
from common.version import DISTRIBUTION, VERSION
from compliance.engine import Options, check_paths
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from tests.compliance.judged import judge_sample

TORCH = "benchmarks/cosmoflow/implementations/torch"


def found_in(log: SampleLog) -> list[tuple[str, str, str]]:
    """Return the findings of SET11 and SET12 as (rule, severity, key)."""
    run = judge_sample(log)
    assert not [finding for finding in run.findings if "itself failed" in finding.message]
    ours = [found for found in run.findings if found.rule in ("SET11", "SET12")]
    return [(found.rule, found.severity, found.key) for found in ours]


MISSING = ("SET12", "error", "provenance")
UNSURE = ("SET12", "warning", "provenance")


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (SampleLog(), []),
        (SampleLog().by_suite(), []),
        (SampleLog().add("provenance", {"author": "somebody else"}), []),
        (SampleLog().add("dataset_variant", "full"), [MISSING]),
        (SampleLog().by_suite().drop("provenance").drop("dataset_variant"), []),
        (SampleLog().meta("epoch_start", "file", "common/training/loop.py"), [MISSING]),
        (SampleLog().meta("eval_stop", "file", "common/training/loop.py"), [MISSING]),
        (SampleLog().meta("seed", "file", "/opt/suite/common/mllog.py"), [MISSING]),
        (SampleLog().meta("seed", "file", "./common/training/run.py"), [MISSING]),
        (SampleLog().meta("seed", "file", "uncommon/mllog.py"), []),
        (SampleLog().add("provenance", {"config": {"hidden": 3}}), []),
        (SampleLog().by_suite().drop("dataset_variant").provenance(versions=None, source_sha256=None), [MISSING]),
        (SampleLog().by_suite({"schedule.decay": {"soon": 0.5}}), [("SET11", "error", "schedule.decay")]),
        (SampleLog().by_suite().drop("dataset_variant").provenance(versions={"torch": "2"}), [MISSING]),
        (SampleLog().by_suite().provenance(source_sha256="5"), [MISSING]),
        (SampleLog().by_suite().provenance(config=[]), [MISSING]),
        (SampleLog().by_suite().provenance(config={}), [MISSING]),
        (SampleLog().by_suite(version="newest"), [MISSING]),
        (SampleLog().by_suite().double("provenance", value=1), [MISSING]),
        (SampleLog().by_suite().move("provenance", after="run_stop"), [MISSING]),
        (SampleLog().by_suite().move("provenance", before="run_start"), []),
        (SampleLog().by_suite().drop("number_of_parameters"), [("SET12", "error", "number_of_parameters")]),
        (SampleLog(division="open").by_suite().drop("provenance"), []),
    ],
)
def test_a_closed_log_of_the_suite_shows_what_was_trained(log: SampleLog, expected: list[Any]) -> None:
    assert found_in(log) == expected


@pytest.mark.parametrize("version", ["0.1.9", "9.0.0", None])
def test_no_version_makes_leaving_out_cheaper_than_stating(version: str | None) -> None:
    log = SampleLog().by_suite({"model.conv_size": ...}, version).drop("number_of_parameters")
    assert found_in(log) == [MISSING, ("SET12", "error", "number_of_parameters")]
    assert ("SET11", "error", "model.fc1") in found_in(SampleLog().by_suite({"model.fc1": 4}, version))


def test_a_key_that_this_version_writes_is_there() -> None:
    log = SampleLog().by_suite()
    del log.records_of("provenance")[0]["value"]["config"]["model"]["conv_size"]
    assert found_in(log) == [MISSING]
    assert found_in(SampleLog().by_suite({"model.new": 1}, "99.0")) == [UNSURE]
    hidden = SampleLog().by_suite({"model.conv_size": 4})
    hidden.records_of("provenance")[0]["value"]["config"]["model.conv_size"] = 32
    assert ("SET11", "error", "model.conv_size") in found_in(hidden)


@pytest.mark.parametrize(
    ("version", "changes", "dropped", "expected"),
    [
        ("0.2.0", {}, None, []),
        ("0.2.0", {}, "old", [MISSING]),
        ("0.2.0", {"model.new": 1}, None, [UNSURE]),
        ("0.3.0.dev0", {}, None, []),
        ("0.3.0.dev0", {}, "new", [MISSING]),
        ("0.3.0", {}, "new", [MISSING]),
        ("0.3.0", {"model.new": 2}, None, [("SET11", "error", "model.new")]),
        ("0.3.0", {"model.old": 1}, None, [UNSURE]),
        ("0.2.0", {"model.new": 2}, None, [("SET11", "error", "model.new"), UNSURE]),
        ("99.0", {}, "new", [MISSING]),
        ("0.1.0", {}, "old", [MISSING]),
        (None, {}, None, []),
    ],
)
def test_a_log_is_judged_by_the_keys_of_its_version(
    version: str | None, changes: Any, dropped: str | None, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`by_suite` writes the keys that its version has."""
    added = Closed("model.new", equals(1), "example.adoc", since="0.3.0")
    removed = Closed("model.old", FREE, "example.adoc", until="0.2.0")
    rows = closed.find_rows(SampleLog().reference)
    monkeypatch.setattr(closed, "find_rows", lambda reference: (*rows, added, removed))
    log = SampleLog().by_suite(changes, version)
    if dropped:
        del log.records_of("provenance")[0]["value"]["config"]["model"][dropped]
    assert found_in(log) == expected


def test_many_departures_are_few_findings() -> None:
    keys = [row.key for row in closed.find_rows(SampleLog().reference)]
    found = found_in(SampleLog().by_suite(dict.fromkeys(keys, "other")))
    assert len([one for one in found if one[0] == "SET11"]) < 30


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        pytest.param(SamplePackage(), set(), id="another"),
        pytest.param(SamplePackage().remove("benchmarks").code(DISTRIBUTION), {"SET12"}, id="named"),
        pytest.param(
            SamplePackage().remove("benchmarks").code(DISTRIBUTION).by_suite(), set(), id="named, with records"
        ),
        pytest.param(
            SamplePackage().remove("benchmarks").code(DISTRIBUTION.upper().replace("-", "_")),
            {"SET12"},
            id="named in capitals",
        ),
        pytest.param(
            SamplePackage()
            .remove("benchmarks")
            .replace(f"benchmarks/cosmoflow/implementations/{DISTRIBUTION}/train.py", b"x"),
            {"SET12"},
            id="a folder of its name",
        ),
        pytest.param(SamplePackage().replace(f"{TORCH}/common/provenance.py", b"x"), set(), id="one of its files"),
        *(
            pytest.param(
                SamplePackage()
                .replace(f"{folder}/common/provenance.py", b"x")
                .replace(f"{folder}/cosmoflow/train.py", b"x"),
                {"SET12"},
                id=f"two of its files in {folder}",
            )
            for folder in (TORCH, f"{TORCH}/src")
        ),
    ],
)
def test_a_package_that_names_the_suite_has_its_records_in_every_log(
    package: SamplePackage, expected: set[str], tmp_path: Path
) -> None:
    runs = check_paths([package.write(tmp_path / "Example")], Options()).runs
    assert {finding.rule for run in runs for finding in run.findings if finding.severity == "error"} == expected


def test_a_run_without_the_records_of_its_siblings_is_found(tmp_path: Path) -> None:
    package = SamplePackage().by_suite()
    assert not check_paths([package.write(tmp_path / "whole")], Options()).findings
    package.edit(3, lambda log: log.drop("provenance").drop("number_of_parameters").drop("dataset_variant"))
    findings = check_paths([package.write(tmp_path / "without")], Options()).findings
    assert [(found.rule, found.severity, found.key) for found in findings if found.severity != "note"] == [
        ("RUN20", "error", "number_of_parameters")
    ]


def test_no_provenance_makes_a_rule_fail() -> None:
    rng = random.Random(7)
    deep: Any = 1
    for _ in range(350):
        deep = [deep]
    values = [None, True, -1, 10**400, 1e308, float("nan"), "", "9" * 5000, [], {}, [{}], {"a": {}}, deep]
    for _ in range(300):
        log = SampleLog(rng.choice(("cosmoflow", "deepcam", "oc20"))).by_suite(version=VERSION)
        provenance = log.records_of("provenance")[0]["value"]
        for _ in range(rng.randint(1, 4)):
            branch = provenance
            while True:
                name = rng.choice(sorted(branch))
                if not isinstance(branch[name], dict) or not branch[name] or rng.random() < 0.2:
                    break
                branch = branch[name]
            branch[name] = copy.deepcopy(rng.choice(values))
        if rng.random() < 0.5:
            log.set(rng.choice(("number_of_parameters", "seed", "opt_name", "provenance")), rng.choice(values))
        found_in(log)


@pytest.mark.parametrize(
    ("folder", "round_", "severity", "why"),
    [
        ("v2.0", None, "error", "a folder above is named so"),
        ("runs", None, "warning", "the newest"),
        ("runs", "2.0", "warning", "as asked for"),
    ],
)
def test_the_round_of_the_configuration_is_that_by_which_the_run_is_judged(
    folder: str, round_: str | None, severity: str, why: str, tmp_path: Path
) -> None:
    judged = "3.0" if why == "the newest" else "2.0"
    configured = "2.0" if why == "the newest" else "3.0"
    package = SamplePackage("deepcam", round_=judged).by_suite({"submission.round": configured})
    report = check_paths([package.write(tmp_path / folder / "Example")], Options(round=round_))
    found = [one for one in report.findings if one.rule == "SET11"]
    assert {(one.severity, one.key) for one in found} == {(severity, "provenance")}
    assert len(found) == (5 if severity == "error" else 1)
    message = f'configured for round "{configured}", but is judged by the rules of round {judged} ({why})'
    assert message in found[0].message
