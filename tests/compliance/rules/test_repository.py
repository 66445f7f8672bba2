"""What lies in a package besides results: code, its scripts, links, names, and what should not be there."""

import os

import pytest

from compliance.engine import Options, check_paths
from compliance.model.package_files import contents_of
from compliance.samples.package import SamplePackage

OWN = "benchmarks/cosmoflow/example_n64"


def found(package, folder, profile="strict"):
    report = check_paths([package.write(folder)], Options(profile, "3.0"))
    return [(f.rule, f.severity, os.path.relpath(f.path, folder)) for f in report.packages[0].findings]


def test_a_package_with_code_has_no_findings(tmp_path):
    assert found(SamplePackage(), tmp_path / "Example") == []


def test_scripts_may_link_to_those_of_the_implementation(tmp_path):
    package = SamplePackage().move(f"{OWN}/setup.sh", "benchmarks/cosmoflow/implementations/torch/setup.sh")
    package.links[f"{OWN}/setup.sh"] = "../implementations/torch/setup.sh"
    assert found(package, tmp_path / "Example") == []


def test_published_code_without_folders_of_systems_passes(tmp_path):
    assert found(SamplePackage().remove(OWN), tmp_path / "Example") == [("PKG25", "warning", OWN)]


def test_a_link_to_an_implementation_that_is_not_there_fails(tmp_path):
    package = SamplePackage().code("jax").remove("benchmarks/cosmoflow/implementations/jax")
    assert found(package, tmp_path / "Example") == [
        ("PKG26", "error", OWN),
        ("PKG26", "error", f"{OWN}/example_n64_jax.json"),
    ]


def test_links_are_not_followed(tmp_path):
    package = SamplePackage()
    package.links = {f"{OWN}/data": "/", f"{OWN}/again": ".."}
    root = package.write(tmp_path / "Example")
    assert sum(entry.kind == "link" for entry in contents_of(root)) == 2
    assert not any("again/" in entry.path or "data/" in entry.path for entry in contents_of(root))
    assert found(SamplePackage(), root) == [("PKG31", "error", f"{OWN}/data")]


def test_pipes_are_refused_and_not_read(tmp_path):
    root = SamplePackage().write(tmp_path / "Example")
    os.mkfifo(os.path.join(root, OWN, "pipe"))
    assert found(SamplePackage(), root) == [("PKG31", "error", f"{OWN}/pipe")]


def test_a_cache_is_one_finding_and_many_files_are_few(tmp_path):
    package = SamplePackage()
    for number in range(40):
        package.replace(f"{OWN}/__pycache__/{number}.pyc", b"x").replace(f"{OWN}/old_{number}.bak", b"x")
    report = check_paths([package.write(tmp_path / "Example")], Options(round="3.0"))
    messages = [finding.message for finding in report.packages[0].findings if finding.rule == "PKG32"]
    assert len(messages) == 21 and messages[0].startswith("left over: a by-product of a tool")
    assert messages[-1].startswith("and 21 more such findings")


def test_large_files_fail(tmp_path):
    root = SamplePackage().write(tmp_path / "Example")
    with open(os.path.join(root, OWN, "weights.pt"), "wb") as file:
        file.truncate((50 << 20) + 1)
    assert found(SamplePackage(), root) == [("PKG10", "error", f"{OWN}/weights.pt")]


@pytest.mark.parametrize("name", ["LICENSE", "AUTHORS.md"])
def test_credits_may_name_people(tmp_path, name):
    package = SamplePackage().replace(f"{OWN}/{name}", b"Jane Doe <jane@example.org>\n")
    assert found(package, tmp_path / "Example") == []


def test_personal_data_in_files_has_its_line(tmp_path):
    package = SamplePackage().replace("provenance.json", b'{\n "data_dir": "/home/jane/data"\n}')
    package.replace("notes.bin", b"\0\0jane@example.org")
    report = check_paths([package.write(tmp_path / "Example")], Options(round="3.0"))
    (finding,) = report.packages[0].findings
    assert (finding.rule, finding.line, finding.message[-8:]) == ("PRV02", 2, "/home/j…")


def test_files_beside_the_logs_are_searched_but_not_the_logs(tmp_path):
    key = "AKIA" + "QZ4TK7HBN2WMX6RD"
    package = SamplePackage().file("slurm-12.out", f"AWS_ACCESS_KEY_ID={key}\nmail jane.doe@example.org\n")
    package.edit(1, lambda log: log.add("notice", key))
    path = "results/example_n64/strong/cosmoflow/slurm-12.out"
    expected = [("PKG03", "warning", path), ("PRV02", "warning", path), ("PRV03", "error", path)]
    assert found(package, tmp_path / "Example") == expected


@pytest.mark.parametrize(("again", "severity"), [(1.0, "warning"), (True, "error"), ("1", "error")])
def test_a_member_named_twice_is_compared_as_logged_values_are(again, severity, tmp_path):
    package = SamplePackage().system(number_of_nodes=1).again("number_of_nodes", again)
    assert ("PKG35", severity, "systems/example_n64.json") in found(package, tmp_path / "Example")


def test_many_unexpected_files_are_few_findings(tmp_path):
    package = SamplePackage()
    for number in range(25):
        package.file(f"run_{number}.txt", "x")
    assert [rule for rule, _, _ in found(package, tmp_path / "Example")] == ["PKG03"] * 21


def test_the_official_profile_does_not_look(tmp_path):
    package = SamplePackage().remove(OWN).replace("a:~", b"jane@example.org")
    package.links["data"] = "/"
    assert found(package, tmp_path / "Example", "official") == []


def test_addresses_in_code_are_those_of_its_authors_but_scripts_are_the_submitters(tmp_path):
    code = "benchmarks/cosmoflow/implementations/torch"
    package = SamplePackage().replace(f"{code}/model.py", b'"""By jane.doe@example.org and j.roe@example.org."""\n')
    package.replace(f"{code}/run.sh", b"#SBATCH --mail-user=jane.doe@example.org\n")
    expected = [("PRV02", "note", f"{code}/model.py"), ("PRV02", "warning", f"{code}/run.sh")]
    assert sorted(found(package, tmp_path / "Example")) == expected


def test_hidden_names_are_one_note_and_a_password_is_a_warning(tmp_path):
    package = SamplePackage().replace(f"{OWN}/.gitignore", b"x").replace(f"{OWN}/.flake8", b"x")
    package.replace(f"{OWN}/run.sh", b"curl -u jane:" + b"Zk4Qw8Ty1b https://example.org\n")
    expected = [("PKG10", "note", f"{OWN}/.flake8"), ("PRV03", "warning", f"{OWN}/run.sh")]
    assert sorted(found(package, tmp_path / "Example")) == expected
