"""What lies in a package besides results: code, its scripts, links, names, and what should not be there."""

import os

import pytest

from compliance.engine import Options, check_paths
from compliance.model.package_files import contents_of
from compliance.samples.package import SamplePackage

OWN = "benchmarks/cosmoflow/example_n64"
CODE = "benchmarks/cosmoflow/implementations/torch"
OUTPUT = "results/example_n64/strong/cosmoflow/slurm-12.out"
KEY = "AKIA" + "QZ4TK7HBN2WMX6RD"


def found(package, folder, profile="strict"):
    report = check_paths([package.write(folder)], Options(profile, "3.0"))
    return [(f.rule, f.severity, os.path.relpath(f.path, folder)) for f in report.packages[0].findings]


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        pytest.param(SamplePackage(), [], id="with code"),
        pytest.param(
            SamplePackage()
            .move(f"{OWN}/setup.sh", f"{CODE}/setup.sh")
            .link(f"../../../../{OWN}/setup.sh", "../implementations/torch/setup.sh"),
            [],
            id="a script that is a link to that of the implementation",
        ),
        pytest.param(
            SamplePackage().remove(OWN), [("PKG25", "warning", OWN)], id="code without folders of systems, as published"
        ),
        pytest.param(
            SamplePackage().code("jax").remove("benchmarks/cosmoflow/implementations/jax"),
            [("PKG26", "error", OWN), ("PKG26", "error", f"{OWN}/example_n64_jax.json")],
            id="a system of an implementation that is not there",
        ),
        *(
            pytest.param(SamplePackage().replace(f"{OWN}/{name}", b"Jane Doe <jane@example.org>\n"), [], id=name)
            for name in ("LICENSE", "AUTHORS.md")
        ),
        pytest.param(
            SamplePackage()
            .replace(OUTPUT, f"AWS_ACCESS_KEY_ID={KEY}\nmail jane.doe@example.org\n".encode())
            .edit(1, lambda log: log.add("notice", KEY)),
            [("PKG03", "warning", OUTPUT), ("PRV02", "error", OUTPUT), ("PRV02", "warning", OUTPUT)],
            id="files beside the logs are searched, but not the logs",
        ),
        pytest.param(
            SamplePackage()
            .replace(f"{CODE}/model.py", b'"""By jane.doe@example.org and j.roe@example.org."""\n')
            .replace(f"{CODE}/run.sh", b"#SBATCH --mail-user=jane.doe@example.org\n"),
            [("PRV02", "note", f"{CODE}/model.py"), ("PRV02", "warning", f"{CODE}/run.sh")],
            id="addresses in code are those of its authors, in scripts those of submitters",
        ),
        pytest.param(
            SamplePackage()
            .replace(f"{OWN}/.gitignore", b"x")
            .replace(f"{OWN}/.flake8", b"x")
            .replace(f"{OWN}/run.sh", b"curl -u jane:" + b"Zk4Qw8Ty1b https://example.org\n"),
            [("PKG10", "note", f"{OWN}/.flake8"), ("PRV02", "warning", f"{OWN}/run.sh")],
            id="hidden names are one note, and a password is a warning",
        ),
    ],
)
def test_findings_on_a_package(package, expected, tmp_path):
    assert sorted(found(package, tmp_path / "Example")) == expected


def test_links_are_not_followed_and_pipes_not_read(tmp_path):
    package = SamplePackage()
    package.links = {f"{OWN}/data": "/", f"{OWN}/again": ".."}
    root = package.write(tmp_path / "Example")
    os.mkfifo(os.path.join(root, OWN, "pipe"))
    assert sum(entry.kind == "link" for entry in contents_of(root)) == 2
    assert not any("again/" in entry.path or "data/" in entry.path for entry in contents_of(root))
    assert found(SamplePackage(), root) == [("PKG33", "error", f"{OWN}/{name}") for name in ("data", "pipe")]


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


def test_personal_data_in_files_has_its_line(tmp_path):
    package = SamplePackage().replace("provenance.json", b'{\n "data_dir": "/home/jane/data"\n}')
    package.replace("notes.bin", b"\0\0jane@example.org")
    report = check_paths([package.write(tmp_path / "Example")], Options(round="3.0"))
    (finding,) = report.packages[0].findings
    assert (finding.rule, finding.line, finding.message[-8:]) == ("PRV02", 2, "/home/j…")


@pytest.mark.parametrize(("again", "severity"), [(b"1.0", "warning"), (b"true", "error"), (b'"1"', "error")])
def test_a_member_named_twice_is_compared_as_logged_values_are(again, severity, tmp_path):
    package = SamplePackage().system(number_of_nodes=1)
    package.change("systems/example_n64.json", lambda text: text[:-2] + b', "number_of_nodes": ' + again + b"}")
    assert ("PKG07", severity, "systems/example_n64.json") in found(package, tmp_path / "Example")


def test_many_unexpected_files_are_few_findings(tmp_path):
    package = SamplePackage()
    for number in range(25):
        package.file(f"run_{number}.txt", "x")
    assert [rule for rule, _, _ in found(package, tmp_path / "Example")] == ["PKG03"] * 21


def test_the_official_profile_does_not_look(tmp_path):
    package = SamplePackage().remove(OWN).replace("a:~", b"jane@example.org")
    package.links["data"] = "/"
    assert found(package, tmp_path / "Example", "official") == []
