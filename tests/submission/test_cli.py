"""`mlperf-hpc`: one name for all commands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from common.benchmarks import PACKAGES
from compliance.samples.log import SampleLog
from submission.cli import COMMANDS, RENAMED, main, render_usage, resolve_command

ROOT = Path(__file__).parents[2]
ALL = [name for commands in COMMANDS.values() for name in commands]


@pytest.fixture
def mlperf_hpc(monkeypatch):
    """Run a command as the installed script does; return its exit status."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["/usr/bin/mlperf-hpc", *words])
        try:
            return main()
        except SystemExit as stopped:  # of argparse
            return stopped.code

    return call


def test_help_shows_every_command_that_can_run(mlperf_hpc, capsys):
    assert mlperf_hpc("--help") == 0
    out = capsys.readouterr().out
    assert out == render_usage() + "\n"
    shown = re.findall(r"^  (\w+)(?: BENCHMARK)? +\S", out, re.MULTILINE)
    for name in shown:
        assert name in ALL
    assert {"check", "train", "round", "report"} <= set(shown)
    assert mlperf_hpc() == 2 and capsys.readouterr().err == out


@pytest.mark.parametrize("name", ALL)
def test_help_names_commands_as_they_were_called(name, mlperf_hpc, capsys):
    benchmark = next((one for one in ("deepcam", "oc20") if (ROOT / one / f"{name}.py").exists()), "deepcam")
    words = [name, benchmark] if name not in render_usage() or f"{name} BENCHMARK" in render_usage() else name.split()
    if f"  {name} " not in render_usage():
        pytest.skip(f"no benchmark has {name}")
    assert mlperf_hpc(*words, "--help") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: mlperf-hpc {' '.join(words)} [-h]") and "python -m" not in out
    assert out.isascii(), "for terminals without UTF-8"
    for mentioned, second in re.findall(r"mlperf-hpc (\w+) ?(\w*)", out):
        resolve_command([mentioned, second])


@pytest.mark.parametrize(("output", "said"), [("/dev/full", "No space left on device"), ("", "")])
@pytest.mark.parametrize("words", [["--help"], ["train", "--help"]])
def test_help_that_cannot_be_written_ends_without_a_traceback(words, output, said):
    """Without `output` the reader has gone."""
    read, write = os.pipe()
    os.close(read)
    target = os.open(output, os.O_WRONLY) if output else os.dup(write)
    code = "import sys; sys.argv[0] = 'mlperf-hpc'; from submission.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *words]
    ended = subprocess.run(command, check=False, stdout=target, stderr=subprocess.PIPE, text=True)
    os.close(write)
    os.close(target)
    assert ended.returncode == 1 and said in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize("page", ["action.yml", ".pre-commit-hooks.yaml", "docs/guide/install.md"])
def test_commands_of_the_pages_exist(page):
    named = re.findall(r"mlperf-hpc\"? ([a-z]+) ?(\w*)", (ROOT / page).read_text())
    assert named
    for name, second in named:
        resolve_command([name, second])


def test_help_of_a_command_that_wants_a_benchmark_says_which(mlperf_hpc, capsys):
    assert mlperf_hpc("train", "--help") == 0
    assert capsys.readouterr().out.startswith(f"usage: mlperf-hpc train {{{','.join(PACKAGES)}}} ...")


def test_help_of_a_command_with_second_words_lists_them(mlperf_hpc, capsys):
    assert mlperf_hpc("measure", "--help") == 0
    out = capsys.readouterr().out
    for word in ("roofline", "power", "dlio"):
        assert f"\n  mlperf-hpc measure {word} " in out and COMMANDS["Measure"][f"measure {word}"][1] in out
    assert mlperf_hpc("train", "--help") == 0 and "also:" not in capsys.readouterr().out


def test_the_exit_status_is_that_of_the_command(mlperf_hpc, tmp_path, capsys):
    log = tmp_path / "result_0.txt"
    log.write_bytes(SampleLog("cosmoflow").bytes())
    assert mlperf_hpc("check", str(log)) == 0 and "PASS" in capsys.readouterr().out
    log.write_bytes(SampleLog("cosmoflow").last_evaluation(0.2).bytes())
    assert mlperf_hpc("check", str(log)) == 1


@pytest.mark.parametrize("name", RENAMED)
def test_a_former_name_answers_with_the_present_call(name, mlperf_hpc, capsys):
    assert mlperf_hpc(name, "--help") == 2
    out, error = capsys.readouterr()
    present = re.match(rf"error: {name} is now mlperf-hpc (\w+) .*(--\w+)", error)
    assert out == "" and error.count("\n") == 1 and present
    assert mlperf_hpc(present[1], "--help") == 0 and present[2] in capsys.readouterr().out
    module = subprocess.run([sys.executable, "-m", f"submission.{name}"], check=False, capture_output=True, text=True)
    assert module.returncode == 2 and module.stderr == error.replace("mlperf-hpc ", "python -m submission.")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chekc"], "unknown command 'chekc'; did you mean 'check'?"),
        (["xyz"], "unknown command 'xyz'; mlperf-hpc --help"),
        (["train"], f"a benchmark is missing; usage: mlperf-hpc train {{{','.join(PACKAGES)}}}"),
        (["train", "cosmo", "mini"], "'cosmo' is not a benchmark; did you mean 'cosmoflow'?"),
        (["measure"], "a benchmark or a command is missing; usage: mlperf-hpc measure {"),
        (["measure", "rooflin"], "'rooflin' is not a benchmark or a command; did you mean 'roofline'?; usage: "),
        (["split", "oc20"], "usage: mlperf-hpc split {deepcam}"),
    ],
)
def test_unknown_names_are_an_error_that_lists_the_known_ones(words, said, mlperf_hpc, capsys):
    assert mlperf_hpc(*words) == 2
    assert said in capsys.readouterr().err
