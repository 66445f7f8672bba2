"""Facts about sources, versions and host: right, and free of names of people and machines."""

import json
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from common import provenance as facts
from tests.common.files import write_files


@pytest.fixture
def repository(tmp_path):
    def git(*arguments):
        command = f"git -C {tmp_path} -c user.name=a -c user.email=a@example.org -c commit.gpgsign=false".split()
        return subprocess.run([*command, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    return git


def test_versions():
    found = facts.list_versions(("msgspec", "no-such-distribution"))
    assert found["python"] == platform.python_version() and found["no-such-distribution"] is None
    assert found["msgspec"][0].isdecimal()
    assert set(facts.list_versions()) == {"python", "torch", "numpy", "mlperf-logging", "mlperf-hpc-suite"}


@pytest.mark.needs("git", shutil.which("git"), "git")
def test_git_revision(repository, tmp_path, monkeypatch):
    assert facts.git_revision(tmp_path) is None  # no commit yet
    (tmp_path / "a.py").write_text("a = 1\n")
    repository("add", "a.py")
    repository("commit", "-q", "-m", "first")
    repository("tag", "v1")
    commit = repository("rev-parse", "HEAD")
    (tmp_path / "untracked").mkdir()
    assert facts.git_revision(tmp_path / "untracked") is None
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert facts.git_revision(tmp_path) == commit
    (tmp_path / "a.py").write_text("a = 2\n")
    assert facts.git_revision(tmp_path) == f"{commit}-dirty"


def test_git_revision_never_fails(tmp_path, monkeypatch):
    assert facts.git_revision(tmp_path) is None
    assert facts.git_revision(tmp_path / "missing") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert facts.git_revision() is None


def test_source_hash_depends_on_names_and_contents_of_python_files_only(tmp_path):
    def tree(name, files):
        write_files(tmp_path / name, files)
        return facts.source_hash(("b", "a"), tmp_path / name)

    files = {"a/x.py": b"1", "a/sub/y.py": b"2", "b/z.py": b""}
    first = tree("first", files)
    assert len(first) == 64
    assert first == tree("same", files | {"a/notes.txt": b"n", "a/__pycache__/x.pyc": b"p", "c/other.py": b"o"})
    assert first == facts.source_hash(("a", "b"), tmp_path / "first")
    changed = [files | {"a/x.py": b"3"}, files | {"b/w.py": b""}, {"a/x.py": b"1", "a/sub/v.py": b"2", "b/z.py": b""}]
    assert len({first, *(tree(str(number), other) for number, other in enumerate(changed))}) == 4
    with pytest.raises(FileNotFoundError, match="package 'd'"):
        facts.source_hash(("a", "d"), tmp_path / "first")


def test_all_facts_are_plain_and_name_no_machine():
    found = facts.collect_provenance(("common",))
    text = json.dumps(found)
    assert found["host"]["cpu"] and found["host"]["cores"] >= found["host"]["usable_cores"] >= 1
    assert platform.node() not in text.replace(found["host"]["cpu"], "") and str(facts.ROOT) not in text


def test_paths_for_logs():
    assert facts.shown_path(Path("/home/somebody/data/mini")) == "mini"
    assert facts.shown_path(Path("data/mini")) == "data/mini"


@pytest.mark.parametrize(
    ("own", "revision", "untracked", "is_known"),
    [
        ("1" * 40, "1" * 40, "", True),
        ("1" * 40, "1" * 40, "common/new.py", False),
        ("1" * 40, "2" * 40, "", False),
        ("1" * 40 + "-dirty", "1" * 40 + "-dirty", "", False),
    ],
)
def test_the_hash_of_a_revision_is_known_where_it_is_checked_out(own, revision, untracked, is_known, monkeypatch):
    monkeypatch.setattr(facts, "git_revision", lambda: own)
    monkeypatch.setattr(facts, "_ask_git", lambda root, *arguments: untracked)
    for cached in (facts.hash_revision, facts._describe_own_tree):
        monkeypatch.setattr(facts, cached.__name__, cached.__wrapped__)
    expected = facts.source_hash(("common", "oc20")) if is_known else None
    assert facts.hash_revision(("common", "oc20"), revision) == expected
