"""A training goes on without its console."""

import os
import subprocess
import sys
import time

import pytest

from common import console
from tests.problems import ROOT

PROGRAM = """
import os, sys
from pathlib import Path
from tqdm import tqdm
from common.console import CONSOLE
CONSOLE.install_streams()
print("16×16")
CONSOLE.begin_notes(Path("run"))
for _ in tqdm(range(3), desc="épreuve", disable=False):
    print("a line", flush=True)
    print("a warning", file=sys.stderr)
    os.fstat(1), os.fstat(2)
assert os.open("log", os.O_CREAT) > 2, "a file took the number of a closed stream"
CONSOLE.end_notes(Path("run"))
"""


@pytest.fixture
def run(tmp_path):
    """Run a program with redirections of a shell; return its end and the note in its folder."""
    (tmp_path / "run").mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)

    def run_program(redirections, **variables):
        environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
        script = f"set -o pipefail; {sys.executable} program.py {redirections}"
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, check=False)
        note = tmp_path / "run" / "console.txt"
        return done, note.read_text() if note.exists() else ""

    return run_program


@pytest.mark.parametrize(
    ("redirections", "noted"),
    [
        (">&-", ["output: closed"]),
        ("2>&-", ["error: closed"]),
        (">&- 2>&- <&-", ["output: closed", "error: closed"]),
        ("> /dev/full", ["output: No space left"]),
        ("2> /dev/full", ["error: No space left"]),
        ("| head -0", ["output: Broken pipe"]),
        ("", []),
    ],
)
def test_what_a_stream_cannot_take_is_dropped_and_noted_once(run, redirections, noted):
    done, note = run(redirections)
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    assert len(note.splitlines()) == len(noted) and all(text in note for text in noted)


def test_long_work_says_what_it_does_on_a_terminal_alone(monkeypatch, capfd):
    monkeypatch.setattr(console, "ACTIVITY_S", 0.02)
    monkeypatch.setattr(console.ACTIVITY, "text", "checking \n 7 logs")
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((80, 24)))
    for shows in (True, False):
        with console.ACTIVITY.showing(shows):
            time.sleep(0.1)
        error = capfd.readouterr().err
        assert error.startswith("\rchecking ? 7 logs (0 s)\x1b[K\r") is shows is error.endswith("\r\x1b[K")


def test_characters_that_the_console_lacks_are_escapes(run):
    done, note = run("", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0 and b"16\\xd716\na line\n" in done.stdout and b"\\xe9preuve" in done.stderr and not note
