"""Every command where packages are missing, in an empty folder, on a terminal of ASCII: its work or one clear line."""

import ast
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from common.benchmarks import PACKAGES, find_package
from common.command import COMMANDS, RENAMED
from common.commands.entry import has_command

ROOT = Path(__file__).parents[2]
NEEDED = ("msgspec", "yaml", "tqdm")
"""What the suite is always installed with."""
WRITE = ("fetch", "integrations")
"""Commands that would fill the folder of that name."""
HELPFUL = ("check", "rcp show", *(f"{name} cosmoflow" for name in ("train", "evaluate", "predict", "measure")))
"""Commands whose help needs no more."""
RUN_ALL = """
import json, os, sys
from submission.cli import main
sys.argv[0] = "mlperf-hpc"
results = []
for number, words in enumerate(json.loads(os.environ["CALLS"])):
    child = os.fork()
    if not child:
        folder = os.path.abspath(str(number))
        for stream in (1, 2):
            os.dup2(os.open(f"{folder}.{stream}", os.O_WRONLY | os.O_CREAT), stream)
        os.mkdir(folder)
        os.chdir(folder)
        try:
            sys.exit(main(words))
        except BaseException as error:
            if not isinstance(error, SystemExit):
                sys.excepthook(*sys.exc_info())
            sys.stdout.flush()
            os._exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)
    _, status = os.waitpid(child, 0)
    texts = [open(f"{number}.{stream}", errors="replace").read() for stream in (1, 2)]
    results.append([os.waitstatus_to_exitcode(status), *texts])
print(json.dumps(results))
"""
"""Runs each call in a process of its own that has imported the script already, in an empty folder."""


OLD = "import runpy, sys; sys.version_info = (3, 8); sys.argv = ['-m']; del sys.orig_argv; runpy.run_module({!r})"


@pytest.mark.parametrize("module", ["compliance.check", "submission.summary", "submission.cli", "cosmoflow.train"])
def test_an_old_python_is_told_which_one_is_needed(module):
    command = [sys.executable, "-c", OLD.format(module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": ROOT})
    assert (done.returncode, done.stderr) == (2, "error: needs Python 3.11 or newer; this is 3.8\n")
    for package in ("common", module.partition(".")[0]):
        ast.parse((ROOT / package / "__init__.py").read_text(), feature_version=(3, 8))


def calls():
    """Return the calls of each command: without arguments, for its help, and with a file that there is not."""
    for name, command in COMMANDS.items():
        having = [one for one in PACKAGES if has_command(find_package(one).folder, command)]
        module, words = command.module.rpartition(".")[2], [*name.split(), *having[:1]]
        yield from (words, [*words, "--help"], *([[*words, "missing.txt"]] * (module not in WRITE)))
    yield from ([name] for name in RENAMED)
    yield from (
        ["help", "docs/guide/check.md"],
        ["--help"],
        ["version"],
        ["check", "."],
        ["data", "fetch", "oc20", "--list"],
    )


@pytest.mark.parametrize("installed", [(), NEEDED], ids=["nothing installed", "without extras"])
def test_no_command_ends_with_a_traceback(installed, tmp_path):
    (tmp_path / "site").mkdir()
    for name in installed:
        (tmp_path / "site" / name).symlink_to(Path(find_spec(name).origin).parent)
    ascii_only = {"LC_ALL": "C", "LANG": "xx_XX.broken", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    paths = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path / 'site'}"}
    environment = {**paths, **ascii_only, "CALLS": json.dumps(list(calls()))}
    command = [sys.executable, "-S", "-c", RUN_ALL]  # without the packages of the environment
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    for words, (status, output, error) in zip(calls(), json.loads(done.stdout), strict=True):
        case = f"{' '.join(words)}: {status}\n{output[-500:]}\n{error}"
        assert "Traceback" not in error, case
        if installed and words[-1] == "--help" and " ".join(words[:-1]) in HELPFUL:
            assert status == 0, case
        if status:
            lines = (output if status == 1 and not error else error).splitlines()
            assert lines and (words == ["check", "."] or len(lines) <= 2), case
            assert status in (1, 2) and any(line.startswith("error: ") or "FAIL" in line for line in lines), case
