"""docs/performance: each page is what the records give; a number says what measured it, and a missed goal is told."""

import sys

import pytest

from tests.bench_script import BENCH, bench_script
from tests.problems import run_process


@pytest.fixture(scope="module")
def numbers():
    return bench_script("numbers_table")


def test_every_page_is_what_its_records_give():
    pytest.importorskip("torch")
    done = run_process(sys.executable, f"{BENCH}/performance_pages.py", "--check")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_number_without_a_source_is_not_shown(numbers):
    time = numbers.Number("time", "2 s", "peer 6 s", "3")
    sources = [
        numbers.Source("a.py", {"date": "2026-01-01", "machine": "small"}, [numbers.Number("rate", "5/s")]),
        numbers.Source("a.py", {"date": "2026-01-02", "machine": "large"}, [numbers.Number("rate", "9/s")]),
        numbers.Source("b.py", {"date": "2026-01-02", "machine": "large"}, [time]),
    ]
    text = list(numbers.write_subject(numbers.Subject("Title", sources), {"small": "A", "large": "B"}))
    assert "`a.py A`: 2026-01-01, A. `a.py B`, `b.py`: 2026-01-02, B." in text
    assert [line for line in text if "rate" in line or "time" in line] == [
        "| a.py A | rate | 5/s |  |  |",
        "| a.py B | rate | 9/s |  |  |",
        "| b.py | time | 2 s | peer 6 s | 3 |",
    ]
    with pytest.raises(KeyError):
        list(numbers.write_subject(numbers.Subject("Title", sources), {"small": "A"}))


def test_what_misses_its_goal_is_bold(numbers):
    ratio = numbers.Number("time", "2 s", "peer 6 s", "3.0", ">= 4")
    assert numbers.write_cells(ratio) == ("time", "2 s", "peer 6 s", "**3.0** (goal >= 4)")
    share = numbers.Number("share", "2%", goal="<= 1%")
    assert numbers.write_cells(share) == ("share", "**2%** (goal <= 1%)", "", "")
