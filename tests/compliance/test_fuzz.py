"""Nothing that a file or folder holds stops the checker: random damage (bench/fuzz.py does more) and known nasties."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.reference import ROUNDS
from compliance.engine import Options, check_paths
from compliance.engine.log_checker import LogTask, judge_log
from compliance.formats import FORMATS
from compliance.formats.style import Style
from compliance.logs.log import LogReader, parse_log
from compliance.model.judging import PROFILES, Case
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage

ROOT = Path(__file__).resolve().parents[2]
VALID = SampleLog(epochs=2).bytes()
quick = settings(derandomize=True, max_examples=60)


def examined(data, profile="strict", round_="3.0"):
    """Return the run, examined twice, after checking what must hold for any log."""
    task = LogTask("x.txt", Case(round_, profile), Options(details=True))
    run = judge_log(parse_log(data, "x.txt"), task)
    assert repr(judge_log(parse_log(data, "x.txt"), task)) == repr(run)
    assert not [finding for finding in run.findings if "the rule itself failed" in finding.message]
    assert (run.verdict == "FAIL") is any(finding.severity == "error" for finding in run.findings)
    return run


def errors(data):
    """Ids of the rules that the log breaks."""
    return {finding.rule for finding in examined(data).findings if finding.severity == "error"}


def survives(path):
    """Return the reports of both profiles after rendering every format of them."""
    reports = [check_paths([path], Options(profile=profile, jobs=1, details=True)) for profile in PROFILES]
    for report in reports:
        assert not [finding for finding in report.findings if "the rule itself failed" in finding.message]
        for name, render in FORMATS.items():
            text = render(report, Style(verbose=True))
            assert text.endswith("\n") and "\x1b" not in text and text.encode(), name
    return reports


# -- at random -----------------------------------------------------------------------------------------------

TEXTS = st.text(max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from((10**400, "\ud800"))
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
FIELDS = ("division", "status", "submitter", "number_of_nodes", "accelerators_per_node", "host_processors_per_node")
PLACES = st.integers(0, len(VALID))
MEMBERS = ("time_ms", "key", "value", "metadata", "namespace", "event_type")


@quick
@given(st.data())
def test_any_value_anywhere(data):
    log = (
        SampleLog(data.draw(st.sampled_from(("cosmoflow", "deepcam", "openfold"))), epochs=4)
        .add("number_of_ranks", 64)
        .steps()
        .learning_rate(0.001)
        .throughput()
    )
    for _ in range(data.draw(st.integers(1, 4))):
        record = data.draw(st.sampled_from(log.records))
        stated = record["metadata"] if isinstance(record["metadata"], dict) else {}
        member = data.draw(st.sampled_from((*MEMBERS, *stated)))
        (stated if member in stated else record)[member] = data.draw(VALUES)
    for profile in PROFILES:
        examined(log.bytes(), profile, data.draw(st.sampled_from(ROUNDS)))


@quick
@given(st.lists(st.tuples(st.sampled_from(("cut", "double", "insert", "flip")), PLACES, st.binary(max_size=9))))
def test_any_damage_of_the_bytes(changes):
    data = VALID
    for how, at, odd in changes:
        if how == "cut":
            data = data[:at] + data[at + 20 * len(odd) :]
        elif how == "double":
            data = data[:at] + data[at // 2 :]
        elif how == "insert":
            data = data[:at] + odd + data[at:]
        else:
            data = data[:at] + bytes(byte ^ 16 for byte in data[at : at + len(odd)]) + data[at + len(odd) :]
    for profile in PROFILES:
        examined(data, profile)


@quick
@given(st.binary())
def test_any_bytes(data):
    examined(data)
    examined(b"\x1f\x8b" + data)


@pytest.mark.parametrize("order", ["reversed", "twice", "every other", "sorted by key"])
def test_records_in_any_order(order):
    lines = VALID.splitlines(keepends=True)
    changed = {
        "reversed": lines[::-1],
        "twice": [line for line in lines for _ in range(2)],
        "every other": lines[::2],
        "sorted by key": sorted(lines, key=lambda line: json.loads(line[9:])["key"]),
    }
    # The order of lines alone is no fault: the times of the sorted ones are those of a run.
    assert examined(b"".join(changed[order])).verdict == ("PASS" if order == "sorted by key" else "FAIL")
    examined(b"".join(changed[order]), "official")


@settings(derandomize=True, max_examples=15)
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES))
def test_any_system_description(tmp_path_factory, fields):
    survives(SamplePackage("oc20").system(**fields).write(tmp_path_factory.mktemp("package")))


# -- nasties: bytes ------------------------------------------------------------------------------------------

TEXT = VALID.decode()
OTHER = (
    b':::MLLOG {"namespace": "", "time_ms": 1694000000000, "event_type": "POINT_IN_TIME", "key": "loss", '
    b'"value": 0.5, "metadata": {}}\n'
)
BYTES = {
    "empty": (b"", {"FRM03"}),
    "only blanks": (b" \n\t\n", {"FRM03"}),
    "only NULs": (b"\0" * 5000, {"FRM03"}),
    "UTF-16": (TEXT.encode("utf-16"), {"FRM02"}),
    "UTF-16 without mark": (TEXT.encode("utf-16-le"), {"FRM02"}),
    "UTF-16, big end first": (TEXT.encode("utf-16-be"), {"FRM02"}),
    "UTF-32": (TEXT.encode("utf-32"), {"FRM02"}),
    "UTF-8 with mark": (b"\xef\xbb\xbf" + VALID, set()),
    "3000 lists deep": (VALID + b":::MLLOG " + b"[" * 3000 + b"]" * 3000 + b"\n", {"FRM04"}),
    "3000 objects deep": (VALID + b":::MLLOG " + b'{"a":' * 3000 + b"0" + b"}" * 3000 + b"\n", {"FRM04"}),
    "NaN": (VALID.replace(b'"value": 512', b'"value": NaN'), {"SET04"}),
    "Infinity": (VALID.replace(b'"value": 512', b'"value": -Infinity'), {"SET04"}),
    "a number of 5000 digits": (VALID.replace(b'"value": 512', b'"value": ' + b"9" * 5000), {"FRM04", "SET03"}),
    "a number of 400 digits": (VALID.replace(b'"value": 512', b'"value": ' + b"9" * 400), {"SET04"}),
    "epochs of 400 digits": (VALID.replace(b'_num": 2}', b'_num": ' + b"9" * 400 + b"}"), {"ORD07", "QUA02"}),
    "two records on a line": (VALID.replace(b"\n", b"", 1), {"FRM05", "ORD01"}),
    "CRLF": (VALID.replace(b"\n", b"\r\n"), set()),
    "lone CR": (VALID.replace(b"\n", b"\r"), set()),
    "a progress bar": (b"\r".join(b"%d%%" % percent for percent in range(100)) + b"\r" + VALID, set()),
    "rank prefixes": (VALID.replace(b":::MLLOG", b"[rank 3] :::MLLOG"), set()),
    "NULs between the lines": (VALID.replace(b"\n", b"\n\0\0\0"), set()),
    "200,000 lines": (VALID + b"step 1 loss 0.5\n" * 200_000, set()),
    "200,000 other records": (VALID + OTHER * 200_000, set()),
    "gzip": (gzip.compress(VALID), set()),
    "gzip, cut": (gzip.compress(VALID)[:-30], {"FRM01"}),
    "gzip, several members": (gzip.compress(VALID[:999]) + gzip.compress(VALID[999:]), set()),
    "gzip, zeros behind": (gzip.compress(VALID) + b"\0" * 1000, set()),
    "gzip, junk behind": (gzip.compress(VALID) + b"junk", {"FRM01"}),
    "gzip, only the mark": (b"\x1f\x8b", {"FRM01"}),
    "gzip in gzip": (gzip.compress(gzip.compress(VALID)), {"FRM03"}),
    "gzip of UTF-16": (gzip.compress(TEXT.encode("utf-16")), {"FRM02"}),
}


@pytest.mark.parametrize("name", BYTES)
def test_nasty_bytes(name):
    data, broken = BYTES[name]
    assert errors(data) == broken
    examined(data, "official")


# -- nasties: size -------------------------------------------------------------------------------------------


def test_a_line_of_100_mb():
    reader = LogReader("x.txt")
    reader.feed(VALID)
    for _ in range(100):
        reader.feed(b"x" * (1 << 20))
        assert len(reader._carry) <= 17 << 20, "memory grows with the line"
    reader.feed(b"\n" + VALID)
    log = reader.close()
    assert [(problem.kind, problem.line) for problem in log.problems] == [("long line", VALID.count(b"\n") + 1)]
    assert log.record_count == 2 * VALID.count(b"\n")


HEAVY = {
    "one line": b"x" * (1 << 20),
    "one record": b":::MLLOG " + b"[" * (1 << 20),
    "records that rules ask for": OTHER.replace(b"loss", b"eval_error") * 5000,
    "nested records": OTHER.replace(b"loss", b"seed").replace(b"0.5", b"[" + b"[]," * 9000 + b"{}]"),
    "damaged records": b":::MLLOG {}" + b" " * 90 + b"\n",
    "other keys": b"".join(OTHER.replace(b"loss", b"loss%d" % number) for number in range(5000)),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", HEAVY)
def test_memory_stays_bounded(name):
    block = HEAVY[name]
    # VmHWM is of the process alone; what getrusage says of a child includes what its parent was when it forked.
    code = "import sys; from compliance.check import main; main(['-']); print(open('/proc/self/status').read())"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdin.write(VALID)
        for _ in range((40 << 20) // len(block)):
            process.stdin.write(block)
        process.stdin.close()
        output = process.stdout.read().decode()
    assert process.returncode == 0
    used_kib = int(re.search(r"VmHWM:\s+(\d+) kB", output).group(1))
    assert used_kib < 200_000, f"{used_kib} KiB resident"


def test_findings_are_not_endless():
    findings = examined(VALID + VALID.splitlines(keepends=True)[0] * 1000).findings
    assert len(findings) < 300
    assert [finding.line for finding in findings if finding.message.startswith("and 1")]


# -- nasties: files and folders ------------------------------------------------------------------------------


def problems(path):
    return [finding.rule for finding in survives(path)[0].findings if finding.severity == "error"]


@pytest.mark.parametrize("name", ["missing.txt", "missing/x.txt", "below a file/x.txt", "circle.txt", "nowhere.txt"])
def test_a_file_that_is_not_there(name, tmp_path):
    (tmp_path / "below a file").write_bytes(b"no folder")
    (tmp_path / "circle.txt").symlink_to(tmp_path / "circle.txt")
    (tmp_path / "nowhere.txt").symlink_to(tmp_path / "missing")
    assert problems(tmp_path / name) == ["FRM01"]


def test_an_unreadable_file(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(VALID)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root may read every file")
    assert problems(path) == ["FRM01"]


@pytest.mark.parametrize(
    "number", [float("inf"), float("nan"), 1e300, 10**400, -(10**400), "9" * 5000, "\u0664", "4e", ""]
)
def test_odd_numbers_in_a_system_description(tmp_path, number):
    fields = dict.fromkeys(("number_of_nodes", "accelerators_per_node", "host_processors_per_node"), number)
    SamplePackage(scaling="weak").with_time_to_train().system(**fields).write(tmp_path / "University")
    survives(tmp_path)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"\xff", b'{"scaling_factor": 1e999}', b"[" * 3000, b"9" * 5000])
def test_odd_scaling_files_and_descriptions(tmp_path, text):
    root = Path(SamplePackage("oc20").write(tmp_path / "University"))
    (root / "results/example_n64/strong/oc20/scaling.json").write_bytes(text)
    (root / "systems/example_n64.json").write_bytes(text)
    survives(root)


def test_folders_that_hold_themselves(tmp_path):
    root = Path(SamplePackage("oc20").write(tmp_path / "University"))
    for place in ("results", "results/example_n64", "results/example_n64/strong/oc20", "systems"):
        (root / place / "again").symlink_to(tmp_path)
    (root / "results" / "strong").symlink_to("..")
    assert max(len(report.runs) for report in survives(tmp_path)) < 100


def test_files_in_place_of_folders_and_a_pipe_in_place_of_a_log(tmp_path):
    (tmp_path / "results").write_bytes(b"no folder")
    (tmp_path / "systems").write_bytes(b"no folder")
    os.mkfifo(tmp_path / "x.log")
    survives(tmp_path)


@pytest.mark.parametrize("name", ["new\nline", "\x1b[31mred", "\udcff", "a b", "<&>", "::error::", "x" * 200])
def test_odd_file_names(tmp_path, name):
    root = Path(SamplePackage("oc20").write(tmp_path / "University"))
    folder = root / "results/example_n64/strong/oc20"
    (folder / "result_1.txt").rename(folder / f"result_{name}.txt")
    (root / "systems" / f"{name}.json").write_bytes(b"")
    survives(tmp_path)


def test_empty_files_everywhere(tmp_path):
    root = Path(SamplePackage("cosmoflow").write(tmp_path / "University"))
    for path in root.rglob("*.*"):
        path.write_bytes(b"")
    assert {report.verdict for report in survives(tmp_path)} == {"FAIL"}
