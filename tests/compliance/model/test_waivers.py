"""Waivers mean exactly one result each; a file of them is read whole or refused with its line."""

import os

import pytest

from common.errors import UsageError
from compliance.engine import Options, check_paths
from compliance.model.waivers import Waiver, check_waivers, read_waivers
from compliance.samples.package import SamplePackage

NAME = "3.0/Example/example_n64/strong/cosmoflow"


@pytest.fixture
def too_fast(tmp_path):
    return SamplePackage(epochs=18).write(tmp_path / "Example")


def rules_found(path, name, **options):
    report = check_paths([path], Options(waivers={name: Waiver("agreed", "w.yaml", 3)}, **options))
    return report.verdict, {finding.rule: finding for finding in report.findings if finding.severity != "note"}


@pytest.mark.parametrize("profile", ["strict", "official"])
def test_a_waiver_names_one_result_exactly(too_fast, profile):
    verdict, found = rules_found(too_fast, NAME, profile=profile)
    assert verdict == "WARN" and found["RCP01"].message.endswith("(waived: agreed)") and "RCP06" not in found


@pytest.mark.parametrize(
    "name",
    [
        "2.0/Example/example_n64/strong/cosmoflow",
        "3.0/example/example_n64/strong/cosmoflow",
        "3.0/Other/example_n64/strong/cosmoflow",
        "3.0/Example/example_n6/strong/cosmoflow",
        "3.0/Example/example_n64/weak/cosmoflow",
        "3.0/Example/example_n64/strong/deepcam",
    ],
)
def test_a_waiver_of_another_result_is_reported_with_its_line_and_waives_nothing(too_fast, name):
    verdict, found = rules_found(too_fast, name)
    assert verdict == "FAIL" and "waived" not in found["RCP01"].message
    unused = found["RCP06"]
    assert (unused.path, unused.line) == ("w.yaml", 3) and name in unused.message
    assert ("did you mean" in unused.message) and NAME in unused.message


def test_a_waiver_that_is_not_needed_is_reported(tmp_path):
    verdict, found = rules_found(SamplePackage().write(tmp_path / "Example"), NAME)
    assert verdict == "WARN" and "not needed" in found["RCP06"].message


def test_two_organisations_with_one_system_name_do_not_share_a_waiver(tmp_path):
    for name in ("Example", "Other"):
        SamplePackage(epochs=18).write(tmp_path / name)
    report = check_paths([tmp_path], Options(waivers={NAME: "agreed"}))
    assert {results.organisation: results.waiver for results in report.sets} == {"Example": "agreed", "Other": ""}


def test_a_file_of_waivers_in_yaml_or_json(tmp_path):
    path = tmp_path / "waivers.yaml"
    path.write_text(f"# round 3.0\n{NAME}: agreed on 1 May\n'3.0/A b/x/weak/oc20': 'why: so'\n")
    assert read_waivers(str(path)) == {
        NAME: Waiver("agreed on 1 May", str(path), 2),
        "3.0/A b/x/weak/oc20": Waiver("why: so", str(path), 3),
    }
    path.write_text(f'{{"{NAME}": "agreed"}}')
    assert read_waivers(str(path)) == {NAME: Waiver("agreed", str(path), 1)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flow: because", "line 1: 'flow' names no result; expected round/organisation/system/scaling/benchmark"),
        ("\ncosmoflow: because", "line 2: 'cosmoflow' names no result"),
        ("3.1/E/x/strong/cosmoflow: why", "there is no round '3.1' (did you mean '3.0'?)"),
        ("v3.0/E/x/strong/cosmoflow: why", "there is no round 'v3.0' (did you mean '3.0'?)"),
        ("3.0/E/x/strong/cosmflow: why", "there is no benchmark 'cosmflow' (did you mean 'cosmoflow'?)"),
        ("2.0/E/x/strong/openfold: why", "there is no benchmark 'openfold'"),
        ("3.0/E/x/storng/oc20: why", "there is no scaling 'storng' (did you mean 'strong'?)"),
        ("3.0/E//strong/oc20: why", "names no result"),
        ("3.0/*/x/strong/oc20:", "expected a reason in words"),
        ("3.0/E/x/strong/oc20: 5", "expected a reason in words"),
        ("3.0/E/x/strong/oc20: [why]", "expected a reason in words"),
        ("3.0/E/x/strong/oc20: ' '", "expected a reason in words"),
        ("3.0/E/x/strong/oc20: .", "expected a reason in words"),
        ("3.0/E/x/strong/oc20: TODO", "expected a reason in words"),
        ("3.0/E/x/strong/oc20: \u200b", "expected a reason in words"),
        ("3.0/E/x/strong/oc20: !!python/object/apply:os.system [ls]", "expected a reason in words"),
        ("1: why", "'1' names no result"),
        (f"{NAME}: a\n{NAME}: b", "line 2: 3.0/Example/example_n64/strong/cosmoflow is waived twice; first in line 1"),
        ("- a\n- b", "line 1: this is not a list of waivers"),
        ("", "line 1: this is not a list of waivers"),
        ("# nothing yet\n", "this is not a list of waivers"),
        ("{}", "this is not a list of waivers"),
        ("a: b: c", "line 1: the waivers are not valid YAML"),
        ("a: 'b", "not valid YAML"),
        ("a: \0", "not valid YAML"),
        ("? [a, b]\n: why", "'a sequence' names no result"),
        ("&a [*a]: b", "names no result"),
        ("[" * 5000, "nested too deeply"),
        ("{" * 100_000, "nested too deeply"),
        (f"{NAME}: {'x' * (1 << 20)}", "larger than 1 MiB"),
    ],
)
def test_a_broken_file_is_refused_with_its_name_in_one_line(text, message, tmp_path):
    path = tmp_path / "waivers.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_waivers(str(path))
    said = str(refused.value)
    assert said.startswith(str(path)) and message in said and "\n" not in said and len(said) < 400


def test_what_is_not_a_file_of_text_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin").write_bytes(b"\xff\xfe")
    for name, message in (
        ("pipe", "not a file"),
        ("latin", "not UTF-8"),
        ("", "not a file"),
        ("no", "cannot read"),
    ):
        with pytest.raises(UsageError, match=message):
            read_waivers(str(tmp_path / name))


def test_waivers_from_python_are_checked_as_well():
    assert check_waivers({NAME: "agreed"}) == {NAME: Waiver("agreed")}
    for wrong in ({"flow": "because"}, {NAME: ""}, {NAME: 5}, {7: "why"}):
        with pytest.raises(UsageError, match="waiver: "):
            check_waivers(wrong)
