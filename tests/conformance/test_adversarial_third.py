"""The third set of forged packages is judged rightly, by a finding about what was forged."""

import json
import tarfile

import pytest

from compliance.engine import Options, check_paths
from compliance.model.judging import ERROR, WARNING
from tests.conformance.test_adversarial_second import ABOUT_OTHER_THINGS, verdict_of

RULES_OF = {"A1": "AMT02", "A2": "AMT01", "A4": "QUA03", "A6": "ORD21", "A7": "RUN15", "A10": "RUN09"}
"""By the finding that a forgery shows, the rule that must name it."""


@pytest.fixture(scope="module")
def packages(shared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("third")
    with tarfile.open(shared / "adversarial" / "third" / "packages.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_cases(shared, packages):
    cases = json.loads((shared / "adversarial" / "third" / "cases.json").read_text())["packages"]
    assert {case["finding"] for case in cases} == RULES_OF.keys()
    for case in cases:
        report = check_paths([packages / case["package"]], Options(round=case["round"]))
        decisive = [finding for finding in report.findings if finding.severity in (ERROR, WARNING)]
        about = [finding for finding in decisive if not finding.rule.startswith(ABOUT_OTHER_THINGS)]
        assert verdict_of(report, case) in case["accepted"], case["what"]
        named = " ".join(finding.message for finding in about if finding.rule == RULES_OF[case["finding"]])
        wanted = case["must_name"].replace("steps × batch", "steps; train_samples / global_batch_size")
        assert wanted in named, case["what"]
