"""The checker, the tables and the packages on Windows and macOS, as far as Linux can tell.

No test here needs POSIX: the CI job for both systems runs this file, too.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.errors import UsageError
from common.installed import missing_extra
from common.locks import try_lock
from compliance.engine import Options, check_paths, log_checker
from compliance.formats import FORMATS
from compliance.formats.style import Style
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage

ROOT = Path(__file__).parents[2]
MODULES = "fcntl grp pwd resource termios"
ABSENT = {
    "os": "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK fchmod fork getuid geteuid killpg preadv pread pwrite "
    "register_at_fork sched_getaffinity set_blocking statvfs sysconf",
    "select": "poll epoll",
    "signal": "SIGHUP SIGUSR1 SIGUSR2 SIGXCPU pthread_sigmask",
    "faulthandler": "register unregister",
}
"""What Windows lacks, and Python's own modules can do without."""
RUN_ALL = f"""
import faulthandler, json, os, runpy, select, signal, sys
absent, calls = json.loads(sys.argv[1]), json.loads(sys.argv[2])
sys.modules.update(dict.fromkeys(absent.pop("modules", "").split()))
for module, names in absent.items():
    for name in filter(lambda name: hasattr(sys.modules[module], name), names.split()):
        delattr(sys.modules[module], name)
sys.path.insert(0, {str(ROOT)!r})
for module, *arguments in calls:
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        print("exit status", end.code, flush=True)
"""
CALLS = (
    ("compliance.check", "--format", "json", "--jobs", "1", "University", "result_0.txt"),
    ("compliance.check", "--format", "sarif", "-o", "report.sarif", "University"),
    ("compliance.check", "--follow", "result_0.txt"),
    ("compliance.demo",),
    ("compliance.rcp", "show", "cosmoflow"),
    ("submission.summary", "University", "--format", "csv", "-o", "table.csv"),
    ("submission.report", "University", "-o", "page"),
    ("submission.system", "--check", "University/systems/example_n64.json"),
    ("submission.assemble", "result_0.txt", "-o", "out", "--system", "laptop.json", "--sources", "code"),
    ("submission.manifest", "out/Example_Organization"),
    ("submission.round", "--help"),
    ("submission.study", "--help"),
    ("submission.accept", "--help"),
)


def run_all(folder, absent):
    """Run the calls in a folder; return what they print and write, and what is on standard error."""
    folder.mkdir()
    SamplePackage().copy(3, 7).write(folder / "University")
    (folder / "result_0.txt").write_bytes(SampleLog("cosmoflow").bytes())
    (folder / "laptop.json").write_text("{}", encoding="utf-8")
    (folder / "code").mkdir()
    (folder / "code" / "main.c").write_bytes(b"int main() {}\n")
    command = [sys.executable, "-X", "warn_default_encoding", "-c", RUN_ALL, json.dumps(absent), json.dumps(CALLS)]
    environment = os.environ | {"PYTHONIOENCODING": "cp1252"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode("cp1252")[-2000:]
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
    return done.stdout.decode("cp1252"), files, done.stderr.decode("cp1252")


def test_commands_on_results_need_nothing_that_only_posix_has(tmp_path):
    here, there = run_all(tmp_path / "posix", {}), run_all(tmp_path / "other", {"modules": MODULES, **ABSENT})
    assert there[0] == here[0]
    assert there[1] == here[1]
    assert "Traceback" not in there[2]
    assert not [line for line in there[2].splitlines() if "EncodingWarning" in line and str(ROOT) in line]
    assert b"\r\n" not in b"".join(there[1].values())


def test_processes_that_are_not_forked_give_the_same_report(tmp_path, monkeypatch):
    paths = [SamplePackage().copy(3, 7).write(tmp_path / "University")]
    alone = FORMATS["json"](check_paths(paths, Options(jobs=1)), Style())
    monkeypatch.setattr(log_checker, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(log_checker, "sys", SimpleNamespace(platform="darwin", modules=sys.modules, stderr=sys.stderr))
    assert FORMATS["json"](check_paths(paths, Options(jobs=2)), Style()) == alone


def test_what_only_posix_can_do_says_so_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(UsageError, match="needs Linux or macOS"), open(tmp_path / "lock", "wb") as file:
        try_lock(file)
    text = missing_extra(ModuleNotFoundError(name="fcntl"), "submission.round.__main__")
    assert text == "python -m submission.round needs Linux or macOS"


def test_paths_of_findings_are_joined_by_slashes():
    native = {"rules/catalog.py", "model/settings_file.py"}  # files of the user and of the suite
    folder = ROOT / "compliance"
    modules = {path.relative_to(folder).as_posix(): path for path in folder.glob("[efmr]*/*.py")}
    joined = {name for name, path in modules.items() if "os.path.join(" in path.read_text(encoding="utf-8")}
    assert joined <= native, "use posixpath.join, so that reports are the same on Windows"
