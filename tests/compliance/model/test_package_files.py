"""Files package_checker_params and scaling.json: found at any level, shown beside the verdict, never run."""

import pytest

from compliance.formats import FORMATS
from compliance.formats.style import Style
from compliance.samples.package import SamplePackage
from tests.compliance.judged import check_package

SET = "results/example_n64/strong/cosmoflow"


@pytest.mark.parametrize(
    "path",
    [
        "package_checker_params",
        "results/package_checker_params",
        "results/example_n64/package_checker_params",
        "results/example_n64/strong/package_checker_params",
        f"{SET}/package_checker_params",
        "Package-Checker-Params.txt",
    ],
)
@pytest.mark.parametrize(
    "text", [b"rcp_bypass", b"rcp-bypass\r\n", b"--RCP Bypass\n", "\ufeffrcp_bypass".encode("utf-16")]
)
def test_a_bypass_is_shown_beside_the_verdict(path, text, tmp_path):
    report = check_package(SamplePackage(epochs=18).replace(path, text), tmp_path)
    (failed,) = [finding for finding in report.findings if finding.rule == "RCP01"]
    assert report.verdict == "FAIL" and failed.severity == "error"
    assert f"The submitter asked for the bypass ({path} line 1: " in failed.message
    (shown,) = [finding for finding in report.findings if finding.rule == "PKG11"]
    assert shown.path.endswith(path) and shown.line == 1 and "not obeyed" in shown.message
    for name in FORMATS:
        assert "bypass" in FORMATS[name](report, Style(verbose=True)), name


def test_a_bypass_of_another_system_or_check_is_not_shown_beside_the_verdict(tmp_path):
    package = SamplePackage(epochs=18)
    package.replace("results/other/package_checker_params", b"rcp_bypass")
    package.replace("package_checker_params", b"# rcp_bypass\nwerror\nseed_checker_bypass\n")
    (results,) = check_package(package, tmp_path).sets
    assert results.bypasses == []


@pytest.mark.parametrize(
    ("path", "text", "obeyed"),
    [
        ("results/example_n64/package_checker_params", b"rcp-bypass", True),
        (f"{SET}/package_checker_params", b"\nrcp-bypass", True),
        (f"{SET}/package_checker_params", b"rcp-bypass\n", False),
        (f"{SET}/package_checker_params", b"rcp_bypass", False),
        ("package_checker_params", b"rcp-bypass", False),
        ("results/example_n64/strong/package_checker_params", b"rcp-bypass", False),
        (f"{SET}/Package_checker_params", b"rcp-bypass", False),
    ],
)
def test_the_official_profile_obeys_what_the_official_tool_obeys(path, text, obeyed, tmp_path):
    (results,) = check_package(SamplePackage(epochs=18).replace(path, text), tmp_path, "official").sets
    assert (results.waiver != "") is obeyed
    assert (results.verdict == "FAIL") is not obeyed


def test_the_official_bypasses_excuse_no_more_than_the_official_tool_does(tmp_path):
    unknown = SamplePackage().edit(1, lambda log: log.set("global_batch_size", 1024))
    unknown.replace(f"{SET}/package_checker_params", b"rcp-bypass")
    assert not check_package(unknown, tmp_path / "a", "official").sets[0].waiver
    twins = SamplePackage().edit(2, lambda log: log.set("seed", 1001))
    assert check_package(twins, tmp_path / "b", "official").verdict == "FAIL"
    twins.replace(f"{SET}/package_checker_params", b"seed-checker-bypass")
    assert check_package(twins, tmp_path / "b", "official").verdict != "FAIL"
    assert check_package(twins, tmp_path / "b").verdict == "FAIL"


def scaled(text, folder, profile="strict"):
    report = check_package(SamplePackage().file("scaling.json", text), folder, profile)
    return report.sets[0].score.scaled, [f.message for f in report.findings if f.rule == "RCP07"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1.05 agreed", "not valid JSON"),
        ("", "not valid JSON"),
        ("[" * 5_000_000, "larger than 4 MiB"),
        ("[" * 10_000, "nested too deeply"),
        ("[1.05]", "contains a JSON list"),
        ('{"scaling": 1.05}', "no member scaling_factor"),
        ('{"scaling_factor": "1.05"}', '"1.05", not a finite number'),
        ('{"scaling_factor": NaN}', "NaN, not a finite number"),
        ('{"scaling_factor": 1e999}', "Infinity, not a finite number"),
        (f'{{"scaling_factor": 1{"0" * 400}}}', "not a finite number"),
        ('{"scaling_factor": true}', "true, not a finite number"),
        ('{"scaling_factor": 0}', "would improve the score"),
        ('{"scaling_factor": -1}', "would improve the score"),
        ('{"scaling_factor": 0.5}', "would improve the score"),
    ],
)
def test_an_unusable_scaling_file_is_a_finding_and_scales_nothing(text, message, tmp_path):
    score, messages = scaled(text, tmp_path)
    assert score is None and len(messages) == 1 and message in messages[0]


def test_a_scaling_file_of_the_committee_is_applied(tmp_path):
    score, messages = scaled('{"scaling_factor": 1.05}', tmp_path)
    assert score and messages == ["scaling.json says 1.05, the convergence test gives 1.0"]
    assert scaled('{"scaling_factor": 0.5}', tmp_path, "official")[0], "the official tool multiplies by any number"
