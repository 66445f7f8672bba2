"""The second set of tampered logs and packages, and of valid variants, gets verdicts that are right."""

import json
import tarfile

import pytest

from compliance.engine import Options, check_paths
from compliance.model.finding import WARNING

ABOUT_OTHER_THINGS = ("PKG07", "PKG08", "PKG25", "PRV", "SET06")
"""Warnings of packages that the untampered ones have as well: the archive holds neither code nor descriptions."""

OPEN = {}
"""Cases that are still judged wrongly; a case that is judged rightly must not be in it."""


@pytest.fixture(scope="module")
def packages(shared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("second")
    with tarfile.open(shared / "adversarial" / "second" / "packages.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def verdict_of(path, case):
    """Return the verdict; warnings that the untampered package has as well do not count."""
    report = check_paths([path], Options(round=case["round"]))
    if report.verdict != "WARN" or "file" in case:
        return report.verdict
    warnings = [found.rule for found in report.findings if found.severity == WARNING]
    return "WARN" if any(not rule.startswith(ABOUT_OTHER_THINGS) for rule in warnings) else "PASS"


def test_cases(shared, packages):
    folder, wrong = shared / "adversarial" / "second", set()
    cases = json.loads((folder / "cases.json").read_text())
    for case in cases:
        path = folder / "logs" / case["file"] if "file" in case else packages / case["package"]
        verdict = verdict_of(path, case)
        if verdict not in case["accepted"] and verdict.replace("INCOMPLETE", "FAIL") not in case["accepted"]:
            wrong.add(case.get("file") or case["package"])
    assert wrong == set().union(*OPEN.values())
    assert len(cases) >= 100
