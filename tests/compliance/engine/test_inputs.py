"""Whatever a package contains, its checks end, follow no link out of it, and name what they did not read."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from compliance.engine import Options, check_paths
from compliance.samples.package import SamplePackage
from submission.cli import main

SECRET = "a text of another user"
LINK = "benchmarks/cosmoflow/example_n64/example_n64_torch.json"


def whole():
    """Return a package with every kind of file that is read."""
    package = SamplePackage(scaling="weak", runs=2).with_time_to_train().power()
    package.file("scaling.json", '{"scaling_factor": 1.0}').file("package_checker_params", "none\n")
    return package.file("../package_checker_params", "none\n").file("pruned_results/result_1.txt", "none\n")


def one_of_each_kind(files):
    """Leave out the runs after the first one: they are read in the same way."""
    return [path for path in files if not any(f"result_{number}" in path for number in range(2, 30))]


PLACES = one_of_each_kind(whole().files)


def secret_above(path):
    """Return the file beside the folder of the round."""
    return next(folder for folder in path.parents if folder.name == "v3.0").parent / "secret"


KINDS = {
    "a pipe": os.mkfifo,
    "a link that leaves": lambda path: path.symlink_to(os.path.relpath(secret_above(path), path.parent)),
    "a loop": lambda path: path.symlink_to(path.name),
    "a folder": os.mkdir,
}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return whole().write(tmp_path_factory.mktemp("original") / "Example")


@pytest.fixture
def package(original, tmp_path):
    (tmp_path / "secret").write_text(SECRET)
    return Path(shutil.copytree(original, tmp_path / "v3.0" / "Example"))


@pytest.fixture(autouse=True)
def end_of_patience():
    """Fail instead of waiting for ever."""

    def give_up(number, frame):
        raise TimeoutError("still waiting")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def replaced(package, place, kind):
    path = package / place
    path.unlink()
    KINDS[kind](path)
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_a_check_ends_and_names_what_it_does_not_read(package, place, kind):
    if place.endswith("train.py") and kind == "a folder":
        pytest.skip("code may be in folders of any name")
    path = replaced(package, place, kind)
    report = check_paths([str(package)], Options())
    named = [found for found in report.findings if found.path == str(path) or path.name in found.message]
    assert any(found.severity in ("error", "warning") for found in named), report.findings
    assert not any(SECRET in found.message for found in report.findings)
    check_paths([str(package)], Options("official"))


@pytest.mark.parametrize("place", [LINK, "systems/example_n64.json", PLACES[0]])
@pytest.mark.parametrize("kind", ["a pipe", "a link that leaves"])
def test_the_tables_and_pages_of_a_package_end(package, place, kind, tmp_path, capsys):
    path = replaced(package, place, kind)
    page = tmp_path / "page.html"
    main(["check", str(package)])
    assert path.name in capsys.readouterr().out
    main(["summary", str(package)])
    main(["report", str(package), "-o", str(page)])
    assert path.name in page.read_text() and SECRET not in page.read_text()
    main(["compare", str(package), str(package), "--benchmark", "cosmoflow"])
    main(["manifest", str(package)])


def test_a_named_log_may_be_a_pipe_or_a_link(tmp_path):
    read, write = os.pipe()
    log = SamplePackage().files["results/example_n64/strong/cosmoflow/result_1.txt"].bytes()
    (tmp_path / "log.txt").write_bytes(log)
    (tmp_path / "link.txt").symlink_to("log.txt")
    with os.fdopen(write, "wb") as stream:
        stream.write(log)
    assert check_paths([f"/dev/fd/{read}"], Options()).verdict == "PASS"
    assert check_paths([tmp_path / "link.txt"], Options()).verdict == "PASS"
