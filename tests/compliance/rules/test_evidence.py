"""Logs of this suite that contradict themselves in what they say of machine, data, settings or ending."""

from pathlib import Path
from typing import Any

import pytest

from common import provenance
from compliance.engine import Options, check_paths
from compliance.rules.evidence import MINI_DATA
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from tests.compliance.judged import find_all, judge_sample

HOST = {"cpu": "AMD EPYC 7763", "cores": 128, "usable_cores": 128, "machine": "x86_64"}
EPOCHS = SampleLog().reference.example.epochs
UNNAMED: dict[str, Any] = {"versions": None, "source_sha256": None}
"""Of a provenance that does not name this suite."""
LEFT_OUT = dict.fromkeys(("model.conv_size", "data.augment", "train.init_from"), ...)


def log(changes: dict[str, Any] | None = None, version: str = "0.2.0") -> SampleLog:
    """Return a closed log of this suite on 16 nodes of 4 accelerators."""
    made = SampleLog().by_suite(changes, version).versions(torch="2.13.0+cu128").set("number_of_ranks", 64)
    return made.provenance(host=HOST, data_sha256="4" * 64, git_revision="1" * 40)


def found_in(made: SampleLog) -> set[tuple[str, str]]:
    return {(finding.rule, finding.severity) for finding in judge_sample(made).findings}


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (log(), set()),
        (log({"train.epochs": EPOCHS}), set()),
        (log().versions(torch="2.13.0+cpu"), {("SET17", "warning")}),
        (log().versions(torch="2.13.0+CPU"), {("SET17", "warning")}),
        (log().versions(torch="2.13.0+cpu.cxx11.abi"), {("SET17", "warning")}),
        (log().provenance(host=HOST | {"cores": 2}), {("SET17", "warning")}),
        (log().provenance(host=HOST | {"cores": 2}).set("accelerators_per_node", 0), set()),
        (log().provenance(source_sha256="0" * 64), {("SET12", "error")}),
        *((log({"dist.device": device}), {("SET17", "warning")}) for device in ("cpu", "CPU", "cpu:0")),
        (log({"instances.count": 8}), {("SET17", "warning")}),
        *((log({"data.data_dir": f"data/{name}"}), set()) for name in ("gemini", "minimal", "miniforge3/data")),
        *(
            (log({"data.data_dir": name}), {("SET17", "warning")})
            for name in ("data/cosmoflow-mini", "/data/MINI/", "/data/Mini2_v1/train", "mini-data/train")
        ),
        (log().shift("cache_clear", -30 * 3_600_000), {("ORD02", "warning")}),
        (log().provenance(host="EPYC", versions={"mlperf-hpc-suite": "0.2.0", "torch": 2}), set()),
        *((log().provenance(data_sha256=digest), {("SET17", "error")}) for digest in MINI_DATA),
        *((log().provenance(data_sha256=f"SHA256:{name.upper()}"), {("SET17", "error")}) for name in MINI_DATA),
        (log().provenance(git_revision="1" * 40 + "-dirty"), {("SET12", "note")}),
        (log({"train.epochs": EPOCHS - 1}), {("SET11", "error")}),
        (log({"train.epochs": 5}).add("run_resumed", None), set()),
        (log({"model.conv_size": 4}), {("SET11", "error")}),
        (
            log({"model.conv_size": 4}).drop("dataset_variant").provenance(**UNNAMED),
            {("SET11", "error"), ("SET12", "error")},
        ),
        (log({"data.augment": "symmetries"}), {("SET11", "error")}),
        (log().drop("number_of_parameters").provenance(**UNNAMED), {("SET12", "error")}),
        *((log(LEFT_OUT, version=version), {("SET12", "error")}) for version in ("0.1.9", "0.2.0", "9.0.0")),
        (log(version="0.1.9").drop("number_of_parameters"), {("SET12", "error")}),
        (log(version="9.0.0").drop("number_of_parameters"), {("SET12", "error")}),
        (log().set("number_of_parameters", 207_472), {("SET12", "error")}),
        (SampleLog().meta("seed", "file", "./common/mllog.py"), {("SET12", "error")}),
        (SampleLog().meta("seed", "file", "/opt/suite/common/mllog.py"), {("SET12", "error")}),
    ],
)
def test_provenance_that_contradicts_the_log(made: SampleLog, expected: set[tuple[str, str]]) -> None:
    assert found_in(made) == expected


@pytest.mark.parametrize(
    ("metadata", "severity"),
    [
        ({"ended": "target_met"}, ""),
        ({"instance": 3, "reason": "done"}, ""),
        ({"ended": "failed", "cause": "CUDA out of memory"}, "error"),
        ({"ended": "failed"}, "error"),
        ({"ended": "target_not_met"}, "error"),
        ({"ended": "diverged", "cause": "the loss is nan"}, "error"),
        ({"ended": "stopped", "cause": "SIGTERM"}, "error"),
        ({"cause": "CUDA out of memory"}, "warning"),
        ({"ended": "target_met", "cause": "SIGTERM"}, "warning"),
        ({"ended": ["failed"]}, "warning"),
        ({"exit_code": 137}, "warning"),
        ({"returncode": 1}, "warning"),
        ({"signal": "SIGKILL"}, "warning"),
        ({"exception": "KeyboardInterrupt"}, "warning"),
        ({"target_reached": False}, "warning"),
        ({"state": "CANCELLED"}, "warning"),
        ({"Status": "aborted"}, "warning"),
        ({"failed": True}, "warning"),
        ({"message": "CUDA error: out of memory"}, "warning"),
        ({"cause": "failed before the target was reached successfully"}, "warning"),
        ({"message": "converged", "exit_code": 0, "target_reached": True, "failed": False, "signal": 0}, ""),
        ({"reason": "quality target reached", "state": "COMPLETED", "error": "none"}, ""),
        ({"ended": "Failed"}, "error"),
        ({"ended": "ABORTED"}, "error"),
        ({"ended": "converged", "cause": "target reached"}, ""),
        ({"cause": "quality target met in epoch 24"}, ""),
        ({"cause": "target not reached"}, "warning"),
    ],
)
def test_run_stop_that_contradicts_its_status(metadata: dict[str, Any], severity: str) -> None:
    made = log()
    for name, value in metadata.items():
        made.meta("run_stop", name, value)
    assert found_in(made) == ({("QUA03", severity)} if severity else set())


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda made, run: made.provenance(data_sha256=f"{run}" * 64), "data_sha256"),
        (lambda made, run: made.provenance(host=HOST | {"cpu": f"CPU {run}"}), "host.cpu"),
        (lambda made, run: made.provenance(host=HOST | {"cores": 64 + run}), "host.cores"),
        (lambda made, run: made.set("number_of_ranks", 64 + run), "number_of_ranks"),
        (lambda made, run: made.versions(torch=f"2.13.0+cu{run}"), "torch"),
    ],
)
def test_runs_of_one_result_on_different_machines_or_data(change: Any, name: str, tmp_path: Path) -> None:
    package = SamplePackage().by_suite().edit_all(lambda made: change(made, made.run % 3))
    (finding,) = find_all(check_paths([package.write(tmp_path / "Example")], Options()), "RUN20")
    assert finding.severity == "warning" and f"{name} is" in finding.message


def test_the_checker_knows_the_sources_of_its_own_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        provenance, "hash_revision", lambda packages, revision: "6" * 64 if revision == "1" * 40 else None
    )
    assert found_in(log()) == {("SET12", "error")}
    assert found_in(log().provenance(source_sha256="6" * 64)) == found_in(log().provenance(git_revision="2")) == set()
