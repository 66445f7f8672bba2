"""Mini runs on a machine that was disturbed on purpose get no error and no warning; `disturbed_runs.py` made them."""

from __future__ import annotations

import tarfile

import pytest

from compliance.benchmarks import REFERENCES
from compliance.engine import Options, check_paths
from compliance.model.judging import ERROR, WARNING
from tests.conformance.disturbed_runs import ARCHIVE


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Return a folder with the logs of these runs."""
    folder = tmp_path_factory.mktemp("disturbed")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_runs_on_a_disturbed_machine_are_accepted(logs):
    report = check_paths([str(logs)], Options(jobs=1, allow_mini=True))
    assert {run.benchmark for run in report.runs} == REFERENCES.keys() - {"openfold"}
    assert all(run.converged for run in report.runs)
    assert not [finding for finding in report.findings if finding.severity in (ERROR, WARNING)]


def test_disturbed_runs_name_no_folder_of_the_machine(logs):
    assert not [log.name for log in logs.iterdir() if b'"/' in log.read_bytes()]
