"""`mlperf-hpc`: one name for all commands."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from common.benchmarks import PACKAGES, find_package
from common.command import COMMANDS, RENAMED
from common.commands.entry import has_command
from common.version import VERSION
from compliance.samples.log import SampleLog
from deepcam.__main__ import main as run_deepcam
from submission.cli import main, render_usage, resolve_command

ROOT = Path(__file__).parents[2]
RUNNABLE = [name for name, command in COMMANDS.items() if command.module]
MOVED = [name for name, call in RENAMED.items() if call.startswith("mlperf-hpc")]
REPLACED = [name for name, call in RENAMED.items() if call.startswith("python -m")]


def words_of(name):
    """Return the words that call a command, with the first benchmark that has it."""
    having = [one for one in PACKAGES if has_command(find_package(one).folder, COMMANDS[name])]
    return [*name.split(), *having[:1]]


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


def test_help_is_one_screen_with_every_first_word(mlperf_hpc, capsys):
    assert mlperf_hpc("--help") == 0
    out = capsys.readouterr().out
    assert out == render_usage() + "\n"
    assert len(out.splitlines()) <= 30 and max(map(len, out.splitlines())) <= 80
    assert re.findall(r"^  ([\w-]+) ", out, re.MULTILINE) == list(dict.fromkeys(name.split()[0] for name in COMMANDS))
    for words in (["help"], ["-h"]):
        assert mlperf_hpc(*words) == 0 and capsys.readouterr().out == out
    assert mlperf_hpc() == 2 and capsys.readouterr().err == out


@pytest.mark.parametrize("name", RUNNABLE)
def test_help_names_commands_as_they_were_called(name, mlperf_hpc, capsys):
    words = words_of(name)
    assert mlperf_hpc(*words, "--help") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: mlperf-hpc {' '.join(words)} ") and "python -m" not in out
    assert out.isascii(), "for terminals without UTF-8"
    for call in re.findall(r"mlperf-hpc ([a-z][\w-]* ?[\w-]* ?[\w-]*)", out):
        resolve_command(call.split())
    assert mlperf_hpc("help", *words) == 0 and capsys.readouterr().out == out
    assert re.search(r"^exit status: 0 .*1\s.*2\s+wrong.*130", out, re.MULTILINE | re.DOTALL)
    assert re.search(rf"\n  .*mlperf-hpc {' '.join(words)}( |$)", out, re.MULTILINE), "an example"


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("check --profil official x", "--profil (did you mean '--profile'?)"),
        ("check --b=oc20 x", "--b (did you mean '--benchmark'?)"),
        ("rcp record --outptu x", "--outptu (did you mean '--output'?)"),
        ("rcp show --zzz", "--zzz"),
        ("train oc20 mini --resum", "--resum (did you mean '--resume'?)"),
        ("data prepare deepcam verify --size x", "--size (did you mean '--sizes-only'?)"),
    ],
)
def test_options_are_neither_abbreviated_nor_silently_unknown(words, suggestion, mlperf_hpc, capsys):
    assert mlperf_hpc(*words.split()) == 2
    assert capsys.readouterr().err == f"error: there is no option {suggestion}; see --help\n"


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if not command.module])
def test_help_of_a_group_lists_its_commands(name, mlperf_hpc, capsys):
    assert mlperf_hpc("help", name) == 0
    out = capsys.readouterr().out
    for second in (command for command in COMMANDS if command.startswith(f"{name} ")):
        assert f"\n  mlperf-hpc {second} " in out and COMMANDS[second].summary in out
    assert mlperf_hpc(name) == 2 and "a command is missing; usage: " in capsys.readouterr().err


def test_version(mlperf_hpc, capsys):
    for words in (["version"], ["--version"], ["-V"], ["help", "version"]):
        assert mlperf_hpc(*words) == 0 and capsys.readouterr().out == f"mlperf-hpc-suite {VERSION}\n"


def test_help_shows_a_page(mlperf_hpc, capsys):
    assert mlperf_hpc("help", "docs/guide/check.md") == 0
    assert capsys.readouterr().out.strip() == (ROOT / "docs/guide/check.md").read_text().strip()
    for name, page in (("README.md", "README.md"), ("cluster", "docs/guide/cluster.md")):
        assert mlperf_hpc("help", name) == 0 and capsys.readouterr().out.strip() == (ROOT / page).read_text().strip()
    assert mlperf_hpc("help", "./docs/guide/chekc.md") == 2
    assert "did you mean 'docs/guide/check.md'?" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mlperf-hpc da", "data"),
        ("mlperf-hpc data fet", "fetch"),
        ("mlperf-hpc data split ", "deepcam"),
        ("mlperf-hpc help measure roo", "roofline"),
        ("mlperf-hpc check --profile off", "official"),
        ("mlperf-hpc train oc20 mini --over", "--overfit-one-batch"),
    ],
)
def test_a_shell_completes_words_and_options(line, expected, tmp_path):
    """By the protocol of argcomplete, whose shell function sets these variables."""
    answer = tmp_path / "answer"
    variables = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "COMP_TYPE": "9"}
    environment = os.environ | variables | {"COMP_LINE": line, "COMP_POINT": str(len(line))}
    code = "import sys; sys.argv[0] = 'mlperf-hpc'; from submission.cli import main; sys.exit(main())"
    subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, timeout=60, check=True)
    assert answer.read_text().strip() == expected


@pytest.mark.parametrize("page", ["action.yml", ".pre-commit-hooks.yaml", "docs/guide/install.md"])
def test_commands_of_the_pages_exist(page):
    calls = re.findall(r"mlperf-hpc\"? ([a-z]+ ?\w* ?\w*)", (ROOT / page).read_text())
    assert calls
    for call in (call for call in calls if call.split()[0] not in ("help", "version")):
        resolve_command(call.split())


def test_help_of_a_command_that_wants_a_benchmark_says_which(mlperf_hpc, capsys):
    assert mlperf_hpc("train", "--help") == 0
    assert capsys.readouterr().out.startswith(f"usage: mlperf-hpc train {{{','.join(PACKAGES)}}} ...")


def test_the_package_of_a_benchmark_runs_its_commands(capsys):
    with pytest.raises(SystemExit, match="0"):
        run_deepcam(["--help"])
    words = re.findall(r"^    (\w+)(?: |$)", capsys.readouterr().out, re.MULTILINE)
    assert words == "synthesize fetch prepare split summarize train evaluate predict measure".split()
    for word in words:
        with pytest.raises(SystemExit, match="0"):
            run_deepcam([word, "--help"])
        assert capsys.readouterr().out.startswith("usage: python -m deepcam")
    with pytest.raises(SystemExit, match="2"):
        run_deepcam(["baselines"])
    assert capsys.readouterr().err.count("\n") == 1


def test_help_of_a_command_with_second_words_lists_them(mlperf_hpc, capsys):
    assert mlperf_hpc("measure", "--help") == 0
    out = capsys.readouterr().out
    for word in ("roofline", "power"):
        assert f"\n  mlperf-hpc measure {word} " in out and COMMANDS[f"measure {word}"].summary in out


def test_the_exit_status_is_that_of_the_command(mlperf_hpc, tmp_path, capsys):
    log = tmp_path / "result_0.txt"
    log.write_bytes(SampleLog("cosmoflow").bytes())
    assert mlperf_hpc("check", str(log)) == 0 and "PASS" in capsys.readouterr().out
    log.write_bytes(SampleLog("cosmoflow").last_evaluation(0.2).bytes())
    assert mlperf_hpc("check", str(log)) == 1


@pytest.mark.parametrize("name", MOVED)
def test_a_command_that_moved_answers_with_the_present_call(name, mlperf_hpc, capsys):
    assert mlperf_hpc(name, "deepcam", "a b") == 2
    out, error = capsys.readouterr()
    assert out == "" and error == f"error: {name} is now {RENAMED[name]} deepcam 'a b'\n"
    assert RENAMED[name].removeprefix("mlperf-hpc ") in RUNNABLE


@pytest.mark.parametrize("name", REPLACED)
def test_a_command_that_another_replaced_answers_with_the_present_call(name, mlperf_hpc, capsys):
    assert mlperf_hpc(name, "--help") == 2
    out, error = capsys.readouterr()
    present = re.match(rf"error: {name} is now mlperf-hpc (\w+) .*(--\w+)", error)
    assert out == "" and error.count("\n") == 1 and present
    assert mlperf_hpc(present[1], "--help") == 0 and present[2] in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(set(RENAMED) - {*MOVED, *REPLACED}))
def test_a_command_that_left_the_suite_answers_with_what_to_run(name, mlperf_hpc, capsys):
    assert mlperf_hpc(*name.split(), "deepcam") == 2
    assert capsys.readouterr() == ("", f"error: {name} is now {RENAMED[name]}\n")
    assert mlperf_hpc("help", *name.split()) == 2
    assert all((ROOT / script).exists() for script in re.findall(r"\S+\.py", RENAMED[name]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chekc"], "unknown command 'chekc' (did you mean 'check'?)"),
        (["xyz"], "unknown command 'xyz'; mlperf-hpc --help"),
        (["train"], f"a benchmark is missing; usage: mlperf-hpc train {{{','.join(PACKAGES)}}}"),
        (["train", "cosmo", "mini"], "'cosmo' is not a benchmark (did you mean 'cosmoflow'?)"),
        (["measure"], "a benchmark or a command is missing; usage: mlperf-hpc measure {"),
        (["measure", "rooflin"], "'rooflin' is not a benchmark or a command (did you mean 'roofline'?); usage: "),
        (["data", "split", "oc20"], "usage: mlperf-hpc data split {deepcam}"),
        (["data", "fech", "oc20"], "'fech' is not a command (did you mean 'fetch'?); usage: mlperf-hpc data {"),
        (["help", "CHECK"], "(did you mean 'check'?)"),
        (["-v"], "there is no option -v (did you mean '-V'?)"),
        (["version", "x"], "unexpected argument 'x'"),
        (["data", "--help", "x"], "unexpected argument 'x'"),
        (["help", "docs/guide/check.md", "x"], "unexpected argument 'x'"),
        (["help", "evaluat"], "(did you mean 'evaluate'?)"),
    ],
)
def test_unknown_names_are_an_error_that_lists_the_known_ones(words, said, mlperf_hpc, capsys):
    assert mlperf_hpc(*words) == 2
    assert said in capsys.readouterr().err


SCRIPT = "import sys; sys.argv[0] = 'mlperf-hpc'; from submission.cli import main; sys.exit(main())"


@pytest.mark.parametrize(
    ("words", "status", "output"),
    [
        ("submit system 2>&-", 0, "{"),
        ("check nosuch 2>&-", 2, ""),
        ("nosuch 2>/dev/full", 2, ""),
        ("check --nosuch 2>/dev/full", 2, ""),
    ],
)
def test_texts_for_a_standard_error_that_takes_none_are_lost(words, status, output):
    command = ["sh", "-c", f'"$0" -c "$1" {words}', sys.executable, SCRIPT]
    ended = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stdout[:1]) == (status, output)
    assert not output or json.loads(ended.stdout)


@pytest.mark.parametrize("words", ["check .", "--benchmarks-from x check .", "summary .", "demo"])
def test_a_removed_current_folder_is_told_in_one_line(words, tmp_path):
    line = 'cd "$2"; rmdir "$2"; "$0" -P -c "$1" ' + words
    command = ["sh", "-c", line, sys.executable, SCRIPT, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert ended.returncode == 1 and re.fullmatch("error: the current folder no longer exists.*\n", ended.stderr)


def test_an_interrupt_while_a_command_is_imported_is_told(mlperf_hpc, monkeypatch, capsys):
    def interrupt(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("common.commands.entry.import_module", interrupt)
    assert mlperf_hpc("check", "x") == 130 and capsys.readouterr().err == "interrupted\n"


def test_a_report_on_a_full_disk_is_an_error_not_wrong_use(mlperf_hpc, tmp_path, capsys):
    assert mlperf_hpc("check", str(tmp_path), "-o", "/dev/full") == 1
    assert "cannot write /dev/full: No space left" in capsys.readouterr().err
