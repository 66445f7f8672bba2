"""Search for inputs on which the checker fails: generated logs and packages, damaged at random.

    python bench/fuzz.py --minutes 10           look for ten minutes on all cores
    python bench/fuzz.py --case 4711            try one case again
    python bench/fuzz.py --case 4711 --keep     and leave its files in a folder

What must hold for any input: no exception, no rule that fails itself, the same answer twice and from any pieces of
the file, FAIL exactly if there is an error that counts, nothing written into the input, no case that takes long.
The first failing cases are saved in folders fuzz-<case>/ with the traceback; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz_inputs import log_bytes, write_package

from common.reference import ROUNDS
from compliance.benchmarks import REFERENCES
from compliance.engine import Options, check_paths
from compliance.engine.log_checker import LogTask, judge_log
from compliance.formats import FORMATS
from compliance.formats.style import Style
from compliance.logs.log import Log, LogReader, parse_log
from compliance.model.judging import ERROR, PASSING, PROFILES, Case, Finding
from compliance.model.report import Report

SLOW_SECONDS = 10
SAVED = 5


def snapshot(folder: Path) -> list[tuple[Any, ...]]:
    """Return name, size, mode and time of everything below, without following links."""
    found = []
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            status = os.lstat(os.path.join(where, name))
            found.append((where, name, status.st_size, status.st_mode, status.st_mtime_ns))
    return sorted(found)


# -- what must hold ------------------------------------------------------------------------------------------


def check_log(rng: random.Random, data: bytes) -> None:
    """Raise AssertionError if anything about the checking of this log is wrong."""
    log = parse_log(data)
    if not data.startswith((b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff")) and not any(
        p.kind == "encoding" for p in log.problems
    ):
        assert said(in_pieces(rng, data)) == said(log), "another answer from other pieces"
    for profile in PROFILES:
        benchmark, division = rng.choice((None, None, *REFERENCES)), rng.choice((None, None, "closed", "open"))
        round_ = rng.choice(ROUNDS)
        hint, allow_mini = rng.choice((None, "open")), rng.random() < 0.5
        case = Case(round_, profile, division or hint, benchmark, allow_mini=allow_mini)
        task = LogTask("log", case, Options(division=division, benchmark=benchmark, details=True))
        run = judge_log(log, task)
        check_findings(run.findings)
        assert (run.verdict == "FAIL") is any(finding.severity == ERROR for finding in run.findings), run.verdict
        assert repr(judge_log(parse_log(data), task)) == repr(run), "another answer the second time"


def in_pieces(rng: random.Random, data: bytes) -> Log:
    """Return what a reader says that is fed with pieces of any size."""
    reader = LogReader("<bytes>")
    at = 0
    while at < len(data):
        size = rng.choice((1, 2, 7, 100, 10_000, 1 << 20))
        reader.feed(data[at : at + size])
        at += size
    return reader.close()


def said(log: Log) -> tuple[Any, ...]:
    """Return all that a log says, to be compared."""
    return repr(log.records), sorted(log.problems), sorted(log.others), log.record_count, log.line_count


def check_findings(findings: list[Finding]) -> None:
    """Raise AssertionError if a rule failed or a finding cannot be shown."""
    for finding in findings:
        assert "the rule itself failed" not in finding.message, finding
        assert isinstance(finding.line, int) and finding.line >= 0, finding
        assert len(finding.message) < 5000, "a message without end"


def check_tree(rng: random.Random, folder: Path) -> None:
    """Raise AssertionError if anything about the checking of this folder is wrong."""
    before = snapshot(folder)
    round_ = rng.choice((None, *ROUNDS))
    for profile in PROFILES:
        options = Options(profile=profile, round=round_, jobs=1, allow_mini=rng.random() < 0.2, details=True)
        report = check_paths([folder], options)
        check_findings(report.findings)
        again = check_paths([folder], options)
        for name, form in FORMATS.items():
            style = Style(width=rng.choice((20, 100)), verbose=rng.random() < 0.5, base=rng.choice(("", str(folder))))
            text = form(report, style)
            assert text == form(again, style), f"another {name} the second time"
            check_format(name, text)
        counting = [f for path, found in report.groups() for f in found if path not in report.tolerated]
        assert (report.verdict not in PASSING) is any(finding.severity == ERROR for finding in counting), report.verdict
        assert report.exit_code == (report.verdict not in PASSING)
        check_again(report, again)
    assert snapshot(folder) == before, "something was written into the input"


def check_again(report: Report, again: Report) -> None:
    first, second = (re.sub(" at 0x[0-9a-f]+", "", repr(each)) for each in (report, again))
    assert first == second, "another answer the second time"


def check_format(name: str, text: str) -> None:
    """Raise if the text of this format cannot be read by its readers."""
    assert text.endswith("\n")
    encoded = text.encode("utf-8", "backslashreplace")
    if name in ("json", "sarif"):
        json.loads(encoded, parse_constant=lambda word: sys.exit(f"{word} is not JSON"))
    elif name == "junit":
        ElementTree.fromstring(encoded)
    else:
        assert "\x1b" not in text, "an escape sequence of the input reaches the terminal"


# -- running -------------------------------------------------------------------------------------------------


def try_case(case: int, folder: Path) -> None:
    """Make the input of this case in the folder and check it; raises what went wrong."""
    rng = random.Random(case)
    if case % 4:
        data = log_bytes(rng)
        (folder / "log.txt").write_bytes(data)
        check_log(rng, data)
    else:
        write_package(rng, folder)
        check_tree(rng, folder)


def fuzz(first: int, step: int, until: float) -> tuple[int, list[int]]:
    """Try cases until the time is over; return how many, and those that failed."""
    failed: list[int] = []
    tried = 0
    while time.time() < until:
        case = first + tried * step
        tried += 1
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            start = time.process_time()
            try:
                try_case(case, Path(folder))
                seconds = time.process_time() - start
                assert seconds < SLOW_SECONDS, f"the case took {seconds:.1f} s"
            except (Exception, SystemExit) as error:
                failed.append(case)
                print(f"case {case}: {error!r:.200}; again: python bench/fuzz.py --case {case}", file=sys.stderr)
                if len(failed) <= SAVED:
                    save(case, Path(folder))
    return tried, failed


def save(case: int, folder: Path) -> None:
    """Copy the input of a failed case beside the traceback into fuzz-<case>/ of the working directory."""
    kept = Path(f"fuzz-{case}")
    shutil.copytree(folder, kept, symlinks=True, dirs_exist_ok=True)
    (kept / "traceback.txt").write_text(traceback.format_exc(), encoding="utf-8", errors="backslashreplace")


def main() -> int:
    """Fuzz, tell how many cases were tried; exit 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1, help="default: 1")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)")
    parser.add_argument("--case", type=int, help="try only this case")
    parser.add_argument("--keep", action="store_true", help="with --case: leave its input in the folder fuzz-<case>")
    given = parser.parse_args()
    if given.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(f"fuzz-{given.case}" if given.keep else folder)
            place.mkdir(exist_ok=True)
            try_case(given.case, place)
        print(f"case {given.case} is fine")
        return 0
    until = time.time() + 60 * given.minutes
    with multiprocessing.Pool(given.jobs) as pool:
        results = pool.starmap(fuzz, [(given.seed + job, given.jobs, until) for job in range(given.jobs)])
    failed = sorted(case for _, cases in results for case in cases)
    print(f"{sum(tried for tried, _ in results)} cases, failed: {', '.join(map(str, failed)) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
