"""The command: exit statuses, options, and what a user sees."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import compliance
from compliance.check import main
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage

ROOT = Path(compliance.__file__).parents[1]
GOOD, BAD = SampleLog().bytes(), SampleLog().last_evaluation(0.2).bytes()


@pytest.fixture
def logs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.txt").write_bytes(GOOD)
    (tmp_path / "bad.txt").write_bytes(BAD)
    return tmp_path


@pytest.mark.parametrize("module", ["compliance.check", "submission.summary"])
def test_what_is_checked_cannot_choose_the_code_that_checks_it(module, tmp_path):
    package = tmp_path / "Example"
    SamplePackage().write(package)
    for name in ("common", "msgspec", "argparse"):
        (package / name).mkdir()
        (package / name / "__init__.py").write_text("print('OBEYED')")
    for name in ("yaml.py", "evil.py"):
        (package / name).write_text("print('OBEYED')")
    (package / "evil.egg-info").mkdir()
    (package / "evil.egg-info/entry_points.txt").write_text("[mlperf_hpc.rules]\nevil = evil\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    tables = []
    for folder, path in ((package, "."), (tmp_path, "Example")):
        command = [sys.executable, "-m", module, path]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "OBEYED" not in done.stdout and not done.stderr
        tables.append(done.stdout[done.stdout.index("Time to train") :])
    assert tables[0] == tables[1] and not list(package.rglob("*.pyc"))


def test_a_current_folder_that_is_gone_is_no_error(logs, capsys):
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    assert main([str(logs / "good.txt")]) == 0 and f"PASS  {logs / 'good.txt'}" in capsys.readouterr().out


def test_exit_status_and_message(logs, capsys):
    assert main(["good.txt"]) == 0
    assert "PASS" in capsys.readouterr().out
    assert main(["bad.txt", "good.txt"]) == 1
    out = capsys.readouterr().out
    line = max(number for number, text in enumerate(BAD.splitlines(), 1) if b"eval_error" in text)
    assert f"bad.txt:{line}: target not reached" in out and "0 < eval_error <= 0.124" in out and "QUA01" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to check"),
        (["missing.txt"], "no such file or folder: missing.txt"),
        (["good.txt", "--round", "4.0"], "there is no round '4.0'; known are 0.7, 1.0, 2.0, 3.0"),
        (["good.txt", "--ignore", "QUA01"], "a reason is required"),
        (["good.txt", "--ignore", "XYZ=why"], "no rule 'XYZ'"),
        (["good.txt", "--select", "QUA,NOPE"], "no rule 'NOPE'"),
        (["good.txt", "--waivers", "none.yaml"], "none.yaml: cannot read the waivers"),
        (["good.txt", "--waivers", "good.txt"], "good.txt, line 1: the waivers are not valid YAML"),
        (["good.txt", "-o", "good.txt"], "would overwrite a file among those that are read"),
        (["good.txt", "-o", "good.txt/report.txt"], "cannot write good.txt/report.txt"),
        (["good.txt", "--format", "xml"], "invalid choice: 'xml'"),
        (["--explain", "QUA99"], "QUA99"),
        (["--follow", "."], "--follow watches files"),
    ],
)
def test_wrong_use_exits_with_2_and_says_why(arguments, message, logs, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert (logs / "good.txt").read_bytes() == GOOD


@pytest.mark.parametrize("round_", ["3.0", "3.0.0", "v3.0"])
def test_spellings_of_a_round(round_, logs, capsys):
    assert main(["good.txt", "--round", round_]) == 0
    assert "Round 3.0" in capsys.readouterr().out


def test_output_goes_to_a_file(logs, capsys):
    assert main(["bad.txt", "--format", "json", "-o", "report.json"]) == 1
    assert capsys.readouterr().out == ""
    report = json.loads((logs / "report.json").read_text())
    assert report["verdict"] == "FAIL" and report["logs"][0]["error_keys"] == ["eval_error"]
    assert main(["bad.txt", "--format", "json", "-o", "report.json"]) == 1, "a report of our own may be replaced"


def test_ignored_findings_are_counted_with_their_reason(logs, capsys):
    assert main(["bad.txt", "--ignore", "QUA01=being discussed"]) == 0
    assert "being discussed" in capsys.readouterr().out


def test_waivers_need_reasons(logs, capsys):
    (logs / "waivers.yaml").write_text("3.0/Example/a/strong/cosmoflow: ''\n")
    with pytest.raises(SystemExit):
        main(["good.txt", "--waivers", "waivers.yaml"])
    assert "expected a reason as text" in capsys.readouterr().err
    (logs / "waivers.yaml").write_text("3.0/Example/example_n64/strong/cosmoflow: agreed on 1 May\n")
    SamplePackage(epochs=18).write("Example")
    assert main(["Example", "--waivers", "waivers.yaml"]) == 0
    assert "agreed on 1 May" in capsys.readouterr().out


def test_rules_are_listed_and_explained(logs, capsys):
    assert main(["--list-rules"]) == 0
    assert "QUA01" in capsys.readouterr().out
    assert main(["--list-rules", "--select", "QUA,FRM01"]) == 0
    out = capsys.readouterr().out
    assert "QUA01" in out and "FRM01" in out and "FRM02" not in out and "SET" not in out
    assert main(["--explain", "QUA01"]) == 0
    out = capsys.readouterr().out
    assert "quality target" in out and "hpc_training_rules" in out


def test_official_profile(logs, capsys):
    (logs / "aborted.txt").write_bytes(SampleLog().meta("run_stop", "status", "aborted").bytes())
    assert main(["aborted.txt"]) == 1
    assert main(["aborted.txt", "--profile", "official"]) == 0


def run(*arguments, **options):
    command = [sys.executable, "-m", "compliance.check", *arguments]
    return subprocess.run(command, capture_output=True, check=False, **options)


def test_as_a_command_with_standard_input(logs):
    done = run("-", input=GOOD)
    assert done.returncode == 0 and b"PASS" in done.stdout
    assert run("-", input=BAD).returncode == 1
    assert run("-", input=b"").returncode == 1


def test_a_terminal_without_unicode_is_no_problem(logs):
    (logs / "u.txt").write_bytes(SampleLog().set("opt_name", "ädam→").bytes())
    done = run("u.txt", env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 1 and b"opt_name" in done.stdout and b"Traceback" not in done.stderr


def test_a_closed_pipe_is_no_traceback(logs):
    command = f"{sys.executable} -m compliance.check -v --format json bad.txt | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, check=False)
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("target", [">&-", "> /dev/full"])
@pytest.mark.parametrize(
    "command",
    [
        "-m compliance.check --help",
        "-m compliance.check bad.txt",
        "-m compliance.check --list-rules",
        "-m submission.summary bad.txt",
        "-m submission.compare bad.txt good.txt",
        "-m compliance.demo --help",
        "-c 'import submission.cli; submission.cli.main()' --help",
    ],
)
def test_output_that_cannot_be_written_is_one_line(command, target, logs):
    done = subprocess.run(f"{sys.executable} {command} {target}", shell=True, capture_output=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith(b"error: ") and done.stderr.count(b"\n") == 1, done.stderr


def test_without_any_output_there_is_still_a_status(logs):
    command = f"{sys.executable} -m compliance.check bad.txt >&- 2>&-"
    assert subprocess.run(command, shell=True, check=False).returncode == 1


def test_an_interrupt_ends_all_processes_without_tracebacks(logs):
    """Ctrl-C reaches the whole process group, the workers too."""
    code = (
        "import os, signal, sys; from compliance import check; from compliance.engine import parallel\n"
        "parallel.PARALLEL_BYTES = 0\n"
        "check_log = parallel.check_log\n"
        "def slow(task):\n"
        "    print('working', flush=True); import time; time.sleep(30); return check_log(task)\n"
        "parallel.check_log = slow\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.exit(check.main(['good.txt', 'bad.txt', '--jobs', '2', '-o', 'report.txt']))"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True, **pipes) as process:
        assert process.stdout.readline().startswith(b"working")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and errors == b"" and not (logs / "report.txt").exists()
