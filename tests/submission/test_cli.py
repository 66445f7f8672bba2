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
from deepcam.__main__ import main as run_deepcam
from submission.cli import main, render_usage, resolve_command
from tests.cosmoflow.case import CASE
from tests.problems import run_process, write_config

ROOT = Path(__file__).parents[2]
RUNNABLE = [name for name, command in COMMANDS.items() if command.module]
MOVED = [name for name, call in RENAMED.items() if call.removeprefix("mlperf-hpc ") in COMMANDS and " " not in name]
REPLACED = [name for name, call in RENAMED.items() if call.startswith("python -m")]
SCRIPT = "import sys; sys.argv[0] = 'mlperf-hpc'; from submission.cli import main; sys.exit(main())"

LINES = """
import sys
from submission.cli import main
for line in sys.stdin:
    try:
        status = main(line.split())
    except SystemExit as ended:
        status = ended.code or 0
    print(f"status {status} of {line}")
"""
"""Runs the lines of standard input as commands."""


def words_of(name):
    """Return the words that call a command, with the first benchmark that has it."""
    having = [one for one in PACKAGES if has_command(find_package(one).folder, COMMANDS[name])]
    return [*name.split(), *having[:1]]


@pytest.fixture
def mlperf_hpc(monkeypatch, call):
    """Run a command as the installed script does; return what it wrote."""

    def run(*words, status=0):
        monkeypatch.setattr(sys, "argv", ["/usr/bin/mlperf-hpc", *words])
        return call(lambda _: main(), status=status)

    return run


def test_help_is_one_screen_with_every_first_word(mlperf_hpc):
    out = mlperf_hpc("--help").out
    assert out == render_usage() + "\n"
    assert len(out.splitlines()) <= 30 and max(map(len, out.splitlines())) <= 80
    assert re.findall(r"^  ([\w-]+) ", out, re.MULTILINE) == list(dict.fromkeys(name.split()[0] for name in COMMANDS))
    assert mlperf_hpc("help").out == mlperf_hpc("-h").out == mlperf_hpc(status=2).err == out


@pytest.mark.parametrize("name", RUNNABLE)
def test_help_names_commands_as_they_were_called(name, mlperf_hpc):
    words = words_of(name)
    out = mlperf_hpc(*words, "--help").out
    assert out.startswith(f"usage: mlperf-hpc {' '.join(words)} ") and "python -m" not in out
    assert out.isascii(), "for terminals without UTF-8"
    for call in re.findall(r"mlperf-hpc ([a-z][\w-]* ?[\w-]* ?[\w-]*)", out):
        resolve_command(call.split())
    assert mlperf_hpc("help", *words).out == out
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
        ("train oc20 mini --seed 7", "--seed: a setting is an argument: write train.seed=7"),
        ("measure oc20 mini --batch-size 7", "--batch-size: a setting is an argument: write train.global_batch_size=7"),
        ("train oc20 mini --train.seed=7", "--train.seed: a setting is an argument: write train.seed=7"),
        ("train oc20 -o here mini", "-o: a setting is an argument: write output_dir=here"),
        ("train oc20 --config mini", "--config: the configuration is an argument: mlperf-hpc train oc20 mini"),
        (
            "train oc20 mini --gpus 2",
            "--gpus: a launcher starts the ranks: torchrun --nproc-per-node 2 -m oc20.train mini",
        ),
        ("submit system --system-type edge", "--system-type: write --set system_type=edge"),
        ("data prepare deepcam verify --size x", "--size (did you mean '--sizes-only'?)"),
    ],
)
def test_options_are_neither_abbreviated_nor_silently_unknown(words, suggestion, mlperf_hpc):
    said = mlperf_hpc(*words.split(), status=2)
    assert said.err == f"error: there is no option {suggestion}; see --help\n"


@pytest.mark.parametrize("name", [*(name for name, command in COMMANDS.items() if not command.module), "measure"])
def test_help_of_a_group_lists_its_commands(name, mlperf_hpc):
    out = mlperf_hpc("help", name).out
    for second in (command for command in COMMANDS if command.startswith(f"{name} ")):
        assert f"\n  mlperf-hpc {second} " in out and COMMANDS[second].summary in out
    assert "a command is missing; usage: " in mlperf_hpc(name, status=2).err


@pytest.mark.parametrize("words", [["version"], ["--version"], ["-V"], ["help", "version"]])
def test_version(words, mlperf_hpc):
    assert mlperf_hpc(*words).out == f"mlperf-hpc-suite {VERSION}\n"


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("docs/guide/check.md", "docs/guide/check.md"),
        ("README.md", "README.md"),
        ("cluster", "docs/guide/cluster.md"),
    ],
)
def test_help_shows_a_page(name, page, mlperf_hpc):
    assert mlperf_hpc("help", name).out.strip() == (ROOT / page).read_text().strip()


def test_help_explains_a_rule_and_shells_get_their_script(mlperf_hpc):
    assert mlperf_hpc("help", "QUA01").out == mlperf_hpc("check", "--explain", "QUA01").out
    assert all("_ARGCOMPLETE" in mlperf_hpc("completion", shell).out for shell in ("bash", "zsh", "fish"))


@pytest.mark.parametrize(
    ("option", "status"),
    # Torch is compiled where bytecode is not kept: 15 s.
    [("--print-config", 0), pytest.param("train.epochs=1", 4, marks=pytest.mark.exhaustive)],
)
def test_without_docstrings_all_commands_work(option, status, problems, empty_folder):
    config = write_config(CASE, problems.make_data(CASE), empty_folder)
    lines = [(f"{' '.join(words_of(name))} --help", 0) for name in RUNNABLE]
    lines += [
        ("demo --keep examples", 0),
        ("check examples/University", 0),
        (f"train cosmoflow {config} {option}", status),
    ]
    lines += [("report examples/University -o report.html", 0), ("help QUA01", 0)]
    ended = run_process(sys.executable, "-OO", "-c", LINES, input="".join(f"{line}\n" for line, _ in lines))
    statuses = re.findall("^status (.*) of (.*)", ended.stdout, re.MULTILINE)
    assert statuses == [(str(status), line) for line, status in lines], ended.stderr


@pytest.mark.parametrize(("output", "said"), [("/dev/full", "No space left on device"), ("", "")])
@pytest.mark.parametrize("words", [["--help"], ["train", "--help"]])
def test_help_that_cannot_be_written_ends_without_a_traceback(words, output, said):
    """Without `output` the reader has gone."""
    read, write = os.pipe()
    os.close(read)
    target = os.open(output, os.O_WRONLY) if output else os.dup(write)
    command = [sys.executable, "-c", SCRIPT, *words]
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
    subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, cwd=ROOT, capture_output=True, timeout=60, check=True
    )
    assert answer.read_text().strip() == expected


@pytest.mark.parametrize("page", ["action.yml", ".pre-commit-hooks.yaml", "docs/guide/install.md"])
def test_commands_of_the_pages_exist(page):
    calls = re.findall(r"mlperf-hpc\"? ([a-z]+ ?\w* ?\w*)", (ROOT / page).read_text())
    assert calls
    for call in (call for call in calls if call.split()[0] not in ("help", "version")):
        resolve_command(call.split())


def test_help_of_a_command_that_wants_a_benchmark_says_which(mlperf_hpc):
    assert mlperf_hpc("train", "--help").out.startswith(f"usage: mlperf-hpc train {{{','.join(PACKAGES)}}} ...")


def test_the_package_of_a_benchmark_runs_its_commands(call):
    words = re.findall(r"^    (\w+)(?: |$)", call(run_deepcam, "--help").out, re.MULTILINE)
    assert words == "synthesize fetch prepare split summarize train evaluate predict measure".split()
    for word in words:
        assert call(run_deepcam, word, "--help").out.startswith("usage: python -m deepcam")
    assert call(run_deepcam, "baselines", status=2).err.count("\n") == 1


@pytest.mark.parametrize("name", MOVED)
def test_a_command_that_moved_answers_with_the_present_call(name, mlperf_hpc):
    said = mlperf_hpc(name, "deepcam", "a b", status=2)
    assert said == ("", f"error: there is no command {name}; use {RENAMED[name]} deepcam 'a b'\n")
    assert RENAMED[name].removeprefix("mlperf-hpc ") in RUNNABLE


@pytest.mark.parametrize("name", REPLACED)
def test_a_command_that_another_replaced_answers_with_the_present_call(name, mlperf_hpc):
    out, error = mlperf_hpc(name, "--help", status=2)
    present = re.match(rf"error: there is no command {name}; use mlperf-hpc (\w+) .*(--\w+)", error)
    assert out == "" and error.count("\n") == 1 and present
    assert present[2] in mlperf_hpc(present[1], "--help").out


@pytest.mark.parametrize("name", sorted(set(RENAMED) - {*MOVED, *REPLACED}))
def test_a_command_that_left_the_suite_answers_with_what_to_run(name, mlperf_hpc):
    error = mlperf_hpc(*name.split(), "deepcam", status=2).err
    assert error.startswith(f"error: there is no command {name}; use {RENAMED[name]}")
    mlperf_hpc("help", *name.split(), status=2)
    assert all((ROOT / script).exists() for script in re.findall(r"\S+\.py", RENAMED[name]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chekc"], "unknown command 'chekc' (did you mean 'check'?)"),
        (["xyz"], "unknown command 'xyz'; mlperf-hpc --help"),
        (["train"], f"a benchmark is missing; usage: mlperf-hpc train {{{','.join(PACKAGES)}}}"),
        (["round", "--config", "mini", "--benchmarks", "oc20,deepcam"], "several are separated by blanks"),
        (["train", "cosmo", "mini"], "'cosmo' is not a benchmark (did you mean 'cosmoflow'?)"),
        (["measure"], "a benchmark or a command is missing; usage: mlperf-hpc measure {"),
        (["—help"], "'—help' has a typographic dash, as of a word processor or PDF; type --help"),
        (["check", "–-fail-on", "warning"], "type --fail-on"),
        (["submit", "system", "–o", "x.json"], "type -o"),
        (["train", "oc20", "mini", "schedule.base_lr=−1e-3"], "type schedule.base_lr=-1e-3"),
        (["submit", "system", "--set", "submitter=“Example"], "has a typographic quotation mark"),
        (["train", "oc20", "mini\xa0--print-config"], "has a no-break"),
        (["measure", "rooflin"], "'rooflin' is not a benchmark or a command (did you mean 'roofline'?); usage: "),
        (["data", "split", "oc20"], "usage: mlperf-hpc data split {deepcam}"),
        (["data", "fech", "oc20"], "'fech' is not a command (did you mean 'fetch'?); usage: mlperf-hpc data {"),
        (["help", "CHECK"], "(did you mean 'check'?)"),
        (["help", "XYZ99"], "no rule 'XYZ99'"),
        (["-v"], "there is no option -v (did you mean '-V'?)"),
        (["version", "x"], "unexpected argument 'x'"),
        (["data", "--help", "x"], "unexpected argument 'x'"),
        (["help", "docs/guide/check.md", "x"], "unexpected argument 'x'"),
        (["help", "evaluat"], "(did you mean 'evaluate'?)"),
        (["help", "./docs/guide/chekc.md"], "did you mean 'docs/guide/check.md'?"),
    ],
)
def test_unknown_names_are_an_error_that_lists_the_known_ones(words, said, mlperf_hpc):
    assert said in mlperf_hpc(*words, status=2).err


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


def test_an_interrupt_while_a_command_is_imported_is_told(mlperf_hpc, monkeypatch):
    def interrupt(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("common.commands.entry.import_module", interrupt)
    assert mlperf_hpc("check", "x", status=130).err == "interrupted\n"


def test_a_report_on_a_full_disk_is_an_error_not_wrong_use(mlperf_hpc, tmp_path):
    said = mlperf_hpc("check", str(tmp_path), "-o", "/dev/full", status=1)
    assert "cannot write /dev/full: No space left" in said.err
