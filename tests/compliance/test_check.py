"""The command: exit statuses, options, and what a user sees."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import compliance
from compliance.check import main
from compliance.model import layout
from compliance.model.judging import FAIL_ON
from compliance.model.settings_file import KEYS, read_settings
from compliance.rules.catalog import all_rules
from compliance.rules.rule import prefix
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage

ROOT = Path(compliance.__file__).parents[1]
RESULT = "3.0/Example/example_n64/strong/cosmoflow"
GOOD, BAD = SampleLog().bytes(), SampleLog().last_evaluation(0.2).bytes()


@pytest.fixture
def logs(empty_folder, tmp_path):
    (tmp_path / "good.txt").write_bytes(GOOD)
    (tmp_path / "bad.txt").write_bytes(BAD)
    (tmp_path / "xyz.toml").write_text('ignore.XYZ = "why"')
    (tmp_path / "own.toml").write_text('rules = ["rules/own.py"]')
    return tmp_path


@pytest.fixture
def hostile(tmp_path):
    """Write a package that brings code, and settings in its own favour; return its folder."""
    package = tmp_path / "Example"
    SamplePackage().write(package)
    for name in ("common", "msgspec", "argparse"):
        (package / name).mkdir()
        (package / name / "__init__.py").write_text("print('OBEYED PASS'); raise SystemExit(0)")
    for name in ("yaml.py", "tomllib.py", "evil.py", "__future__.py"):
        (package / name).write_text("print('OBEYED PASS'); raise SystemExit(0)")
    (package / "evil.egg-info").mkdir()
    (package / "evil.egg-info/entry_points.txt").write_text("[mlperf_hpc.rules]\nevil = evil\n")
    families = "\n".join(f'{name} = "why"' for name in sorted({prefix(id_) for id_ in all_rules()}))
    (package / "mlperf-hpc.toml").write_text(
        'round = "0.7"\nprofile = "official"\nfail-on = "error"\nallow-mini = true\nrules = ["evil.py", "evil"]\n'
        f'waivers."{RESULT}" = "why"\n[ignore]\n{families}\n'
    )
    return package


@pytest.mark.parametrize("command", ["-m compliance.check", "-m submission.summary", "mlperf-hpc check"])
def test_what_is_checked_cannot_choose_the_code_that_checks_it(command, hostile, tmp_path):
    (tmp_path / "mlperf-hpc").write_text("import submission.cli\nraise SystemExit(submission.cli.main())\n")
    words = command.replace("mlperf-hpc", str(tmp_path / "mlperf-hpc")).split()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    tables = []
    for folder, path in ((hostile, "."), (tmp_path, "Example")):
        command = [sys.executable, *words, path]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "OBEYED" not in done.stdout and not done.stderr
        table = done.stdout.split("Time to train")[1].split("\n\n")[0]
        tables.append([word for word in table.split() if word not in ("PASS", "PARTIAL")])
    assert tables[0] == tables[1] and not list(hostile.rglob("*.pyc"))


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("fail_on", ["error", "warning"])
def test_what_is_checked_cannot_choose_its_settings(failing, fail_on, hostile, monkeypatch, capsys):
    for number in range(failing):
        log = hostile / f"results/example_n64/strong/cosmoflow/result_{number}.txt"
        log.write_bytes(SampleLog(run=number).last_evaluation(0.2).bytes())
    monkeypatch.chdir(hostile)
    options = [".", "--fail-on", fail_on, "--format", "json"]
    status = main([*options, "--no-config"])
    without = json.loads(capsys.readouterr().out)
    assert main(options) >= status
    found = json.loads(capsys.readouterr().out)
    verdict = "FAIL" if failing else "PARTIAL"
    assert (found["verdict"], found["profile"], found["exit_code"]) == (verdict, "strict", status or failing)
    assert found["official_verdict"] == without["official_verdict"] and found["rounds"] == without["rounds"]
    kinds = [finding["rule"] for finding in without["findings"] if finding["severity"] == "error"]
    assert {*kinds} <= {finding["rule"] for finding in found["ignored"]}
    monkeypatch.chdir("..")
    assert main(["Example", *options[1:]]) == status
    assert json.loads(capsys.readouterr().out)["verdict"] == without["verdict"]


SHOWN_ASIDE = {
    "text": "FAIL: 0 errors, 0 warnings, 0 notes in 1 log; 1 error, 1 warning set aside by mlperf-hpc.toml",
    "markdown": "1 error, 1 warning set aside by mlperf-hpc.toml",
    "github": "::error file=bad.txt",
    "junit": '<failure type="QUA01"',
    "sarif": '"level": "error"',
    "json": '"named": false',
}


@pytest.mark.parametrize(("kind", "words"), SHOWN_ASIDE.items())
def test_what_a_found_file_ignores_is_set_aside_and_counts(kind, words, logs, capsys):
    (logs / "mlperf-hpc.toml").write_text(
        "ignore.QUA01 = 'in discussion'\nignore.OFFICIAL = 'why'\nprofile = 'official'"
    )
    assert main(["bad.txt", "--format", kind]) == 1
    out = capsys.readouterr().out
    assert words in out and "in discussion" in out.replace("&#39;", "'") and "FAIL" in out
    if kind == "text":
        assert "Settings: mlperf-hpc.toml (found; not applied: profile; " in out
    assert main(["bad.txt", "--ignore", "QUA01=my own reason"]) == 0
    assert main(["bad.txt", "--select", "FRM"]) == 0
    assert main(["bad.txt", "--follow"]) == 1
    assert main(["good.txt"]) == 0 and "PARTIAL" in capsys.readouterr().out
    assert [main(["good.txt", "--fail-on", what]) for what in FAIL_ON] == [0, 0, 0, 1, 1, 1]
    assert main(["good.txt", "--no-config", "--fail-on", "note,partial"]) == 0


def test_a_named_file_applies_and_the_command_line_wins(logs, capsys):
    (logs / "ci.toml").write_text("round = '2.0'\nfail-on = 'note'\nignore.QUA01 = 'the reason'\nignore.SET = 'why'\n")
    assert main(["bad.txt", "--config", "ci.toml", "--fail-on", "error"]) == 0
    out = capsys.readouterr().out
    assert "Round 2.0" in out and "Settings: ci.toml (named)" in out and "QUA01 (the reason)" in out
    assert main(["bad.txt", "--config", "ci.toml", "--round", "3.0", "--ignore", "QUA01=another"]) in (0, 1)
    out = capsys.readouterr().out
    assert "Round 3.0" in out and "QUA01 (another)" in out and "the reason" not in out


def test_a_found_file_can_be_stricter(hostile, tmp_path, monkeypatch, capsys):
    (tmp_path / "pyproject.toml").write_text("[tool.mlperf-hpc]\nfail-on = 'warning'\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert main(["../Example"]) == 1
    assert "Settings: ../pyproject.toml (found)" in capsys.readouterr().out
    assert main(["../Example", "--fail-on", "error"]) == 0
    assert main(["../Example", "--no-config"]) == 0


def test_the_example_of_the_guide_is_right(logs):
    text = (ROOT / "docs/guide/check.md").read_text().split("```toml\n")[1].split("```")[0]
    (logs / "ci.toml").write_text(text)
    settings = read_settings("ci.toml")
    assert settings.rules == ("rules/own.py",) and len(settings.ignore) == len(settings.waivers) == 1
    assert set(KEYS) == {*tomllib.loads(text)}


def test_a_current_folder_that_is_gone_is_no_error(logs, capsys):
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    assert main([str(logs / "good.txt")]) == 0 and f"PASS  {logs / 'good.txt'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to check"),
        (["missing.txt"], "no such file or folder: missing.txt"),
        (["good.txt", "--round", "9.0"], "there is no round '9.0'; known are of MLPerf HPC: 0.7, 1.0, 2.0, 3.0"),
        (["good.txt", "--ignore", "QUA01"], "a reason is required"),
        (["good.txt", "--ignore", "XYZ=why"], "no rule 'XYZ'"),
        (["good.txt", "--ignore", "=why"], "no rule ''"),
        (["good.txt", "--config", "none.toml"], "none.toml: cannot read the settings"),
        (["good.txt", "--config", "xyz.toml"], "xyz.toml: ignore: no rule 'XYZ'"),
        (["good.txt", "--config", "own.toml"], "rules/own.py: cannot be read"),
        (["good.txt", "--config", "own.toml", "--no-config"], "not allowed with"),
        (["good.txt", "--select", "QUA,NOPE"], "no rule 'NOPE'"),
        (["good.txt", "--waivers", "none.yaml"], "none.yaml: cannot read the waivers"),
        (["good.txt", "--waivers", "good.txt"], "good.txt, line 1: the waivers are not valid YAML"),
        (["good.txt", "-o", "good.txt"], "good.txt, which is read; name one outside of it"),
        (["good.txt", "-o", "good.txt/report.txt"], "is or lies in"),
        ([".", "-o", "new/report.txt"], "such as "),
        (["good.txt", "-o", "bad.txt/report.txt"], "cannot write bad.txt/report.txt"),
        (["good.txt", "/dev/zero"], "/dev/zero is a device or a socket, not a file; for standard input, write -"),
        (["good.txt", "--jobs", "-1"], "expected a whole number of at least 0, not '-1'"),
        (["good.txt", "--against", "many"], "many: there are more than 2 folders in it"),
        (["good.txt", "--format", "xml"], "invalid choice: 'xml'"),
        (["--explain", "QUA99"], "QUA99"),
        (["--follow", "."], "--follow watches files"),
    ],
)
def test_wrong_use_exits_with_2_and_says_why(arguments, message, logs, capsys, monkeypatch):
    monkeypatch.setattr(layout, "MOST_FOLDERS", 2)
    (logs / "many/1/2/3").mkdir(parents=True)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert (logs / "good.txt").read_bytes() == GOOD


def test_output_goes_to_a_file(logs, capsys):
    assert main(["bad.txt", "--format", "json", "-o", "report.json"]) == 1
    assert capsys.readouterr().out == ""
    report = json.loads((logs / "report.json").read_text())
    assert report["verdict"] == "FAIL" and report["logs"][0]["error_keys"] == ["eval_error"]
    assert main(["bad.txt", "--format", "json", "-o", "report.json"]) == 1, "a report of our own may be replaced"


def test_waivers_are_shown_with_their_reasons(logs, capsys):
    (logs / "waivers.yaml").write_text("3.0/Example/example_n64/strong/cosmoflow: agreed on 1 May\n")
    SamplePackage(epochs=18).write("Example")
    assert main(["Example", "--waivers", "waivers.yaml"]) == 0
    assert "agreed on 1 May" in capsys.readouterr().out


def test_rules_are_listed(logs, capsys):
    assert main(["--list-rules", "--select", "QUA,FRM01"]) == 0
    out = capsys.readouterr().out
    assert "QUA01" in out and "FRM01" in out and "FRM02" not in out and "SET" not in out


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
    assert run("good.txt", env=os.environ | {"PYTHONOPTIMIZE": "2"}).returncode == 0, "without docstrings"


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
        "-m submission.summary good.txt",
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
        "import os, signal, sys; from compliance import check; from compliance.engine import log_checker\n"
        "log_checker.PARALLEL_BYTES = 0\n"
        "check_log = log_checker.check_log\n"
        "def slow(task):\n"
        "    print('working', flush=True); import time; time.sleep(30); return check_log(task)\n"
        "log_checker.check_log = slow\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.exit(check.main(['good.txt', 'bad.txt', '--jobs', '2', '-o', 'report.txt']))"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True, **pipes) as process:
        assert process.stdout.readline().startswith(b"working")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and errors == b"" and not (logs / "report.txt").exists()
