"""A damaged log is one finding that says what the file is and how to repair it; the score is told with and without."""

import gzip
import shutil
import subprocess

import pytest

from compliance.engine import Options, check_paths
from compliance.formats.style import Style
from compliance.formats.text import render
from compliance.model.judging import OFFICIAL_RULE
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage
from tests.compliance.judged import find_all

SAMPLE = SampleLog(run=1).bytes()
EPOCHS = [25, 26, 24, 25, 27, 28, 26, 24, 25, 29]
LINES = SAMPLE.splitlines(keepends=True)


def by_two_ranks():
    """Return the log of two ranks of which the second is a little late."""
    late = SampleLog(run=1).times(lambda time_ms: time_ms + 7).bytes().splitlines(keepends=True)
    return b"".join(b"0: %b1: %b" % pair for pair in zip(LINES, late, strict=True))


def died(lines):
    """Return a log with the first lines of a run, and then a whole one."""
    return b"".join(LINES[:lines]) + SampleLog(run=1).times(lambda time_ms: time_ms + 3_600_000).bytes()


START = next(number for number, line in enumerate(LINES) if b'"run_start"' in line)  # lines before it
REPAIRABLE = {
    "newest first": (b"".join(reversed(LINES)), ("reverse order",), "tac", 1),
    "parts swapped": (b"".join((*LINES[60:], *LINES[:60])), ("stands behind its end",), "awk", len(LINES) - 59),
    "UTF-16 appended": (
        b"".join((*LINES[:60], b"".join(LINES[60:80]).decode().encode("utf-16"), *LINES[80:])),
        ("changes to UTF-16",),
        "tr",
        61,
    ),
    "each line twice": (b"".join(2 * line for line in LINES), ("2 times", "equal lines"), "awk", 2 * START + 2),
    "twice in a row": (SAMPLE * 2, ("2 times", "equal lines"), "awk", len(LINES) + START + 1),
    "three ranks": (b"".join(b"0: %b1: %b2: %b" % (3 * (line,)) for line in LINES), ("3 times",), "awk", 3 * START + 2),
    "two ranks, one late": (by_two_ranks(), ("2 times", "0.007 s"), "grep", 2 * START + 2),
    "restarted": (died(40), ("2 runs", "line 41", "run 2 ended with success"), "sed", 41),
    "restarted after the end": (
        SAMPLE + b"".join(SampleLog(run=50).bytes().splitlines(keepends=True)[:50]),
        ("2 runs", "run 1 ended with success"),
        "sed",
        len(LINES) + 1,
    ),
    "seconds": (SampleLog(run=1).times(lambda time_ms: time_ms / 1000).bytes(), ("seconds",), "perl", 1),
    "microseconds": (SampleLog(run=1).times(lambda time_ms: time_ms * 1000).bytes(), ("microseconds",), "perl", 1),
}


def only_finding(report):
    """Return the finding of the only log besides the line that says what was not checked."""
    found = [finding for run in report.runs for finding in run.findings]
    (skipped,) = [finding for finding in found if finding.severity == "skipped"]
    assert skipped.message.startswith("all other rules: ")
    (damage,) = [finding for finding in found if finding.severity != "skipped"]
    return damage


def command_of(damage):
    """Return the command in the fix."""
    (command,) = (line.removeprefix("$ ") for line in damage.fix.split("\n") if line.startswith("$ "))
    return command


def repair(case, folder, name, pack=bytes):
    """Write a damaged file, and run the command of its finding; return the report on it and that on what came out."""
    data, _, tool, _ = REPAIRABLE[case]
    (folder / name).write_bytes(pack(data))
    report = check_paths([folder / name], Options())
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool}")
    command = command_of(only_finding(report))
    subprocess.run(command, shell=True, cwd=folder, check=True, stdin=subprocess.DEVNULL)
    return report, check_paths([folder / "repaired.txt"], Options())


NAMES = ("-e;BEGIN{system('touch run')}#.log", "|touch run;.log", ">other.log", "lr=0.1.log", "-n.log")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", REPAIRABLE)
def test_the_command_reads_a_file_of_any_name_and_runs_nothing_of_it(case, name, tmp_path):
    assert repair(case, tmp_path, name)[1].verdict == "PASS"
    assert {path.name for path in tmp_path.iterdir()} == {name, "repaired.txt"}
    assert (tmp_path / name).read_bytes() == REPAIRABLE[case][0]


@pytest.mark.skipif(shutil.which("gunzip") is None, reason="no gunzip")
@pytest.mark.parametrize("case", REPAIRABLE)
def test_the_command_unpacks_a_compressed_file(case, tmp_path):
    assert repair(case, tmp_path, "result_1.txt.gz", gzip.compress)[1].verdict == "PASS"


@pytest.mark.parametrize("case", REPAIRABLE)
def test_damage_is_one_finding_and_its_command_repairs_the_file(case, tmp_path):
    _, words, _, line = REPAIRABLE[case]
    report, repaired = repair(case, tmp_path, "result 1.txt")
    damage = only_finding(report)
    assert (report.verdict, repaired.verdict) == ("FAIL", "PASS")
    assert (damage.rule, damage.line) == ("FRM10", line)
    assert all(word in damage.message for word in words), damage.message
    assert report.runs[0].repaired_minutes == pytest.approx(repaired.runs[0].minutes)


@pytest.mark.parametrize(
    "data",
    [LINES[0] + LINES[1][:60], LINES[0] + LINES[1][:-2] + b"\n", SAMPLE[:-9], b"".join(LINES[:50])[:-1]],
    ids=["in a record", "in a record, with a line end", "in run_stop", "without a line end"],
)
def test_a_file_that_was_cut_is_one_finding(data, tmp_path):
    (tmp_path / "result_1.txt").write_bytes(data)
    damage = only_finding(check_paths([tmp_path / "result_1.txt"], Options()))
    assert damage.rule == "FRM10" and damage.line == len(data.splitlines())
    assert "in the middle of line" in damage.message and "Copy it again" in damage.fix


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (SAMPLE[:8192] + bytes(4096) + SAMPLE[12288:], SAMPLE[:8192].count(b"\n") + 1, "4,096 NUL bytes"),
        (b"".join(LINES[70:]), 1, "begins in the middle of the run"),
        (b"".join(LINES[5:]), 1, "begins in the middle of the run"),
        (
            b"".join((*LINES[:70], b"journald: Suppressed 20 messages from x\n", *LINES[90:])),
            71,
            "Suppressed 20",
        ),
        (
            b"".join((*LINES[:70], b"rsyslogd: 9 messages lost due to rate-limiting\n", *LINES[90:])),
            71,
            "9 messages lost",
        ),
        (b"Streaming output truncated to the last 99 lines.\n" + b"".join(LINES[70:]), 1, "output truncated"),
    ],
    ids=["zeros", "head lost", "head torn", "journald", "rsyslog", "notebook"],
)
def test_a_part_that_was_lost_is_one_finding(data, line, words, tmp_path):
    (tmp_path / "result_1.txt").write_bytes(data)
    damage = only_finding(check_paths([tmp_path / "result_1.txt"], Options()))
    assert (damage.rule, damage.line) == ("FRM10", line) and words in damage.message
    assert "Copy the whole file again" in damage.fix and "repeat the run" in damage.fix


@pytest.mark.parametrize(
    ("data", "rules"),
    [
        (b"".join(LINES[:60]), {"ORD05"}),
        (SampleLog().raw("run_stop", lambda line: line.replace(b"{", b"#{", 1)).bytes(), {"FRM04"}),
        (SampleLog().double("run_start").bytes(), {"ORD04"}),
        (SampleLog().field("seed", "time_ms", 1_694_000_000).bytes(), {"FRM08"}),
        (b"".join((*LINES[:70], *LINES[90:])), {"ORD11"}),
        (SAMPLE[:-1], set()),
        (SAMPLE[:-1] + b"\r", set()),
    ],
    ids=[
        "killed",
        "edited",
        "one line twice",
        "one time in seconds",
        "lines lost",
        "no last line end",
        "old line ends",
    ],
)
def test_other_logs_are_judged_by_all_rules(data, rules, tmp_path):
    (tmp_path / "result_1.txt").write_bytes(data)
    (run,) = check_paths([tmp_path / "result_1.txt"], Options()).runs
    assert {finding.rule for finding in run.findings if finding.severity == "error" and not finding.cause} == rules


def test_of_two_whole_runs_in_a_file_the_submitter_chooses(tmp_path):
    (tmp_path / "result_1.txt").write_bytes(SampleLog().twice().bytes())
    report = check_paths([tmp_path / "result_1.txt"], Options())
    damage = only_finding(report)
    assert "run 1, run 2 ended with success" in damage.message and "belongs to this result" in damage.fix
    assert report.runs[0].repaired_minutes is None


def test_who_ignores_damage_gets_the_other_rules(tmp_path):
    (tmp_path / "result_1.txt").write_bytes(SAMPLE * 2)
    report = check_paths([tmp_path / "result_1.txt"], Options(ignore={"FRM10": "by agreement"}))
    assert report.verdict == "FAIL" and {"ORD04", "ORD05"} <= {finding.rule for finding in report.findings}


# -- in a result ------------------------------------------------------------------------------------------------


def damaged(data, number=1, benchmark="cosmoflow"):
    """Return a package with other bytes in place of a log; its runs differ in length."""
    package = SamplePackage(benchmark, epochs=EPOCHS)
    return package.replace(f"{package.folder}/result_{number}.txt", data)


def check(package, folder):
    """Return the report, and the errors and warnings on the result, without what the committee's tool says."""
    report = check_paths([package.write(folder / "Example")], Options())
    findings = [finding for finding in report.sets[0].findings if finding.severity in ("error", "warning")]
    return report, [finding for finding in findings if finding.rule != OFFICIAL_RULE]


@pytest.mark.parametrize("case", REPAIRABLE)
def test_the_score_of_a_repaired_file_is_told(case, tmp_path):
    report, (warning,) = check(damaged(REPAIRABLE[case][0]), tmp_path)
    whole, _ = check(SamplePackage(epochs=EPOCHS), tmp_path / "whole")
    assert report.verdict == "WARN" and warning.rule == "RUN02" and warning.path.endswith("result_1.txt")
    assert warning.message.startswith("result_1.txt is damaged, not a run that missed the target")
    assert f"is {report.sets[0].score.minutes:.2f} min with it as the slowest" in warning.message
    assert f", {whole.sets[0].score.minutes:.2f} min if the repaired file passes" in warning.message
    assert "Repair " in warning.fix


@pytest.mark.parametrize("data", [b"", SAMPLE[:9000], SAMPLE.decode().encode("utf-16")], ids=["empty", "cut", "UTF-16"])
def test_an_unknown_time_gives_a_range_and_an_unknown_seed_no_error(data, tmp_path):
    report, (warning,) = check(damaged(data), tmp_path)
    whole, _ = check(SamplePackage(epochs=EPOCHS), tmp_path / "whole")
    least, most = (float(text) for text in warning.message.rpartition("between ")[2].split(" min")[0].split(" and "))
    assert report.verdict == "WARN" and warning.rule == "RUN02"
    assert least <= whole.sets[0].score.minutes <= most == round(report.sets[0].score.minutes, 2)


def test_one_damage_to_all_files_of_a_result_is_told_once(tmp_path):
    package = SamplePackage()
    package.files |= {f"{package.folder}/result_{at}.txt": REPAIRABLE["newest first"][0] for at in range(1, 11)}
    text = render(check_paths([package.write(tmp_path / "Example")], Options()), Style())
    assert text.count("reverse order") == 1 and "tac < FILE" in text and " in 10 files" in text


def test_a_run_that_missed_the_target_needs_no_repair(tmp_path):
    _, (warning,) = check(SamplePackage().edit(1, lambda log: log.last_evaluation(0.2)), tmp_path)
    assert "damaged" not in warning.message and "the score is" in warning.message and "nothing to do" in warning.fix


def test_a_run_that_reached_the_target_tells_the_score_that_it_would_give(tmp_path):
    package = SamplePackage("deepcam").edit(1, lambda log: log.set("submission_benchmark", "deepcam "))
    report, (warning,) = check(package, tmp_path)
    (cause,) = [finding for finding in report.runs[0].findings if finding.severity == "error"]
    assert cause.rule == "SET02" and "ends with a blank" in cause.message and "Remove the blank" in cause.fix
    assert " min if it passed" in warning.message


def test_damaged_files_are_repaired_before_a_series_is_repeated(tmp_path):
    package = damaged(SAMPLE * 2).edit(2, lambda log: log.last_evaluation(0.2))
    (finding,) = find_all(check(package, tmp_path)[0].sets[0], "RUN02")
    assert finding.cause and finding.severity == "error"
    assert finding.fix.startswith("Repair the damaged files first: result_1.txt.")


def test_the_size_of_the_system_is_compared_although_a_log_is_empty(tmp_path):
    package = damaged(b"").system(accelerators_per_node="8")
    assert "RUN09" in {finding.rule for finding in check(package, tmp_path)[1]}


def test_what_the_official_tool_says_of_a_damaged_file_names_it(tmp_path):
    report, _ = check(damaged(SAMPLE * 2), tmp_path)
    (refusal,) = [finding for finding in report.findings if finding.rule == OFFICIAL_RULE]
    assert refusal.path.endswith("result_1.txt") and refusal.fix.startswith("Repair result_1.txt")
