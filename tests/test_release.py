"""`make release`: the same bytes from any checkout, of sources that contain what the wheel is made of."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from common.version import VERSION
from tests.problems import ROOT

WHEEL, SOURCES = f"mlperf_hpc_suite-{VERSION}-py3-none-any.whl", f"mlperf_hpc_suite-{VERSION}.tar.gz"
DAY = "2026-11-28T12:00:00+00:00"
pytestmark = [
    pytest.mark.exhaustive,  # minutes, and packages from an index
    pytest.mark.needs("git", shutil.which("git") if (ROOT / ".git").exists() else None, "a clone, and git"),
]


def run(*command, folder, **options):
    """Run a command; return how it ended."""
    environment = os.environ | {"GIT_AUTHOR_DATE": DAY, "GIT_COMMITTER_DATE": DAY}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, **options)


def make_release(folder, tools, umask=0o022):
    """Return how `make release` ended in a folder."""
    return run("make", "release", f"VENV={tools}", f"PYTHON={sys.executable}", folder=folder, umask=umask)


@pytest.fixture(scope="module")
def checkouts(tmp_path_factory):
    """Return two checkouts of this tree as one commit, the second with other modes of files, and released both."""
    folder = tmp_path_factory.mktemp("release")
    first, second = folder / "first", folder / "another/second"
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", folder=ROOT).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (first / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, first / name)
    git = ("git", "-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
    for command in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "All")):
        assert run(*git, *command, folder=first).returncode == 0
    assert run("git", "clone", "--quiet", first, second, folder=folder).returncode == 0
    for path, umask in ((first, 0o022), (second, 0o077)):
        ended = make_release(path, folder / "tools", umask)
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    return first, second


def test_two_checkouts_give_the_same_bytes(checkouts):
    first, second = ({path.name: path.read_bytes() for path in (tree / "dist").iterdir()} for tree in checkouts)
    assert set(first) == {WHEEL, SOURCES, "SHA256SUMS", "requirements.lock", "sbom.cdx.json"}
    assert [name for name in first if first[name] != second[name]] == []
    assert run("sha256sum", "--check", "--strict", "SHA256SUMS", folder=checkouts[0] / "dist").returncode == 0


def test_the_sbom_names_the_suite_and_each_package_with_licence_hash_and_edges(checkouts):
    content = json.loads((checkouts[0] / "dist/sbom.cdx.json").read_text())
    root, packages = content["metadata"]["component"], {item["name"]: item for item in content["components"]}
    assert (root["name"], root["version"]) == ("mlperf-hpc-suite", VERSION) and root["licenses"]
    lock = (checkouts[0] / "dist/requirements.lock").read_text()
    for item in packages.values():
        [archive] = [reference for reference in item["externalReferences"] if "hashes" in reference]
        assert archive["hashes"][0]["content"] in lock
        assert archive["url"].startswith("https://files.pythonhosted.org/")
    # Two packages of NVIDIA state no licence.
    assert {name for name, item in packages.items() if "licenses" not in item} <= {
        "cuda-toolkit",
        "nvidia-cusparselt-cu13",
    }
    edges = {item["ref"]: item.get("dependsOn", []) for item in content["dependencies"]}
    assert {packages["torch"]["bom-ref"], packages["numpy"]["bom-ref"]} <= set(edges[root["bom-ref"]])
    assert packages["sympy"]["bom-ref"] in edges[packages["torch"]["bom-ref"]]


def test_the_wheel_from_the_sources_is_that_of_the_tree(checkouts, tmp_path):
    tree = checkouts[0]
    shutil.copytree(tree, tmp_path / "tree", ignore=shutil.ignore_patterns("dist", ".git"))
    python = tree.parent / "tools/release/bin/python"
    ended = run(python, "-m", "build", "--no-isolation", "--wheel", tmp_path / "tree", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr[-2000:]
    released, direct = (
        {name: wheel.read(name) for name in wheel.namelist()}
        for wheel in map(zipfile.ZipFile, (tree / "dist" / WHEEL, tmp_path / "tree/dist" / WHEEL))
    )
    assert released == direct and any(name.endswith("integrations/spack/repo.yaml") for name in released)
    with tarfile.open(tree / "dist" / SOURCES) as sources:
        names = {member.name.partition("/")[2] for member in sources}
    assert {"setup.cfg", "pyproject.toml", "LICENSE", "README.md", "common/version.py"} <= names


def test_a_tree_that_differs_from_its_commit_is_refused(checkouts):
    tree = checkouts[1]
    (tree / "left_over.py").touch()
    ended = make_release(tree, tree.parents[1] / "tools")
    (tree / "left_over.py").unlink()
    assert ended.returncode != 0 and "left_over.py" in ended.stderr and "commit" in ended.stderr
