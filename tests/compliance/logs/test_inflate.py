"""Compressed logs inflate within limits: of one file, and of a package, whatever the number of processes."""

import gzip
import io
import zlib

import pytest

from compliance.engine import Options, check_paths, log_checker
from compliance.logs import file_kind
from compliance.logs.file_kind import InflateError, pieces
from compliance.logs.log import parse_log
from compliance.samples.log import SampleLog
from compliance.samples.package import SamplePackage


def test_a_file_is_read_in_pieces_of_bounded_size():
    data = bytes(range(256)) * 20_000
    for file in (data, gzip.compress(data), gzip.compress(data[:99]) + b"\0" * 99 + gzip.compress(data[99:]) + b"\0"):
        found = list(pieces(io.BytesIO(file))[1])
        assert b"".join(found) == data and max(map(len, found)) <= file_kind.PIECE_BYTES


@pytest.mark.parametrize(
    "packed", [gzip.compress(bytes(range(256)) * 5), gzip.compress(b"x") * 4], ids=["one member", "many members"]
)
def test_what_is_beyond_the_limit_is_not_read(packed, monkeypatch):
    monkeypatch.setattr(file_kind, "MAX_FILE_BYTES", 1024)
    monkeypatch.setattr(file_kind, "MEMBER_BYTES", 500)
    with pytest.raises(InflateError, match="more than 1 KiB of compressed text"):
        list(pieces(io.BytesIO(packed))[1])


def test_files_of_a_thousand_times_their_size_and_of_empty_members_cost_little():
    """Count what is inflated, not the time."""
    bomb = zlib.compressobj(wbits=31)
    log = parse_log(bomb.compress(b"\n" * (128 << 20)) + bomb.flush())
    assert [problem.kind for problem in log.problems] == ["compressed"] and log.inflated_bytes <= 64 << 20
    log = parse_log(gzip.compress(b"") * 500_000)
    assert [problem.kind for problem in log.problems] == ["compressed"] and log.inflated_bytes == 0


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_limit_of_a_package_is_the_same_for_any_number_of_processes(jobs, tmp_path, monkeypatch):
    size = len(SampleLog().bytes())
    monkeypatch.setattr(log_checker, "MAX_PACKAGE_BYTES", 5 * size // 2)
    monkeypatch.setattr(log_checker, "PARALLEL_BYTES", 0)
    package = SamplePackage()
    for number in range(1, 9):
        name = f"{package.folder}/result_{number}.txt"
        package.files[f"{name}.gz"] = package.files.pop(name).gzip()
    report = check_paths([package.write(tmp_path / "Example")], Options(round="3.0", jobs=jobs))
    read = {run.path.rpartition("/")[2]: not run.findings for run in report.runs}
    assert [name for name, whole in read.items() if not whole] == [f"result_{number}.txt.gz" for number in range(4, 9)]
    found = [finding for run in report.runs for finding in run.findings if finding.severity == "error"]
    assert {finding.rule for finding in found} == {"FRM09"} and "is not read" in found[0].message
