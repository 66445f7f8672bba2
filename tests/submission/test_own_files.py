"""Each JSON file that the suite writes is recognised by its first bytes, so that one given for another is named."""

import pytest

from common.data.manifest import Manifest, write_manifest
from common.ending import Ending, write_ending
from common.file_kind import BASELINE, FIGURE, MANIFEST, find_kind
from compliance.check import main as check
from compliance.samples.package import SamplePackage
from submission.accept.__main__ import main as accept
from submission.runs.plan import PlannedRun
from submission.summary import main as summary
from tests.measurement import STEPS
from tests.submission.accept.test_accept import write_job


def package(folder):
    return str(SamplePackage().write(folder / "in" / "Example"))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("the ended.json of a run", lambda at: write_ending(at, Ending("target_met"))),
        (FIGURE, lambda at: STEPS.write_file(at / "x")),
        (MANIFEST, lambda at: write_manifest(at / "x", Manifest(benchmark="b", files={}))),
        (
            "the plan of a run (run.json)",
            lambda at: PlannedRun(benchmark="c", kind="training", config="mini", folder=at).write_record(),
        ),
        ("a report of `mlperf-hpc check", lambda at: check([package(at), "--format", "json", "-o", str(at / "x")])),
        ("a report in SARIF", lambda at: check([package(at), "--format", "sarif", "-o", str(at / "x")])),
        ("a table of `mlperf-hpc", lambda at: summary([package(at), "--format", "json", "-o", str(at / "x")])),
        (
            "a comparison of `mlperf-hpc",
            lambda at: summary([package(at), "--compare", package(at), "--format", "json", "-o", str(at / "x")]),
        ),
        (BASELINE, lambda at: accept(["--record", str(at / "x"), "--fom", *write_job(at / "in", 0, 100.0, 101.0)])),
    ],
)
def test_what_the_suite_writes_is_recognised(name, write, tmp_path):
    (tmp_path / "in").mkdir()
    write(tmp_path)
    (file,) = (path for path in tmp_path.iterdir() if path.is_file())
    assert find_kind(file.read_bytes()).name.startswith(name)
