"""Search for inputs on which the checker fails, led by the code that they reach (atheris, libFuzzer).

    pip install atheris
    python bench/fuzz_coverage.py log --runs 900000                    bytes of a log, one output format each
    python bench/fuzz_coverage.py package --runs 100000                a submission folder, one output format each
    python bench/fuzz_coverage.py log --runs 1000000 --inputs found/   keep the inputs that reach new code
    python bench/fuzz_coverage.py log --input crash-0123abcd           try one input again

What must hold is what bench/fuzz.py asks, but for what takes a second look at the same input: every 64th input gets
all of it. An input that fails is saved as crash-<hash> in the working directory, with the traceback on standard
error; the exit status is then not 0.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    import atheris
except ModuleNotFoundError:
    sys.exit("error: bench/fuzz_coverage.py needs atheris: pip install atheris")

with atheris.instrument_imports(include=["common", "compliance"]):
    from fuzz import check_findings, check_format, check_log, check_tree
    from fuzz_inputs import BYTE_CHANGES, log_bytes, write_package

    from common.reference import ROUNDS
    from compliance.benchmarks import REFERENCES
    from compliance.engine import Options, check_paths
    from compliance.engine.log_checker import LogTask, judge_log
    from compliance.formats import FORMATS
    from compliance.formats.style import Style
    from compliance.logs.log import parse_log
    from compliance.model.judging import PROFILES, Case
    from compliance.model.report import Report

HEADER_BYTES = 2
"""Bytes in front of a log that choose how it is checked; the rest is the log."""
THOROUGH = 64
MAX_LOG_BYTES = 1 << 13
SEEDS = 200


class Drawn(random.Random):
    """Random choices that are read from bytes, so that the fuzzer can change them one by one; then zeros."""

    def __init__(self, data: bytes) -> None:
        """Draw from these bytes."""
        super().__init__(0)
        self._left = memoryview(data)

    def getrandbits(self, bits: int) -> int:
        """Return an integer with this number of bits."""
        size = (bits + 7) // 8
        taken, self._left = self._left[:size], self._left[size:]
        return int.from_bytes(taken, "little") >> max(0, 8 * len(taken) - bits)

    def random(self) -> float:
        """Return a number from 0 to 1."""
        return self.getrandbits(16) / 65_536


def log(data: bytes) -> None:
    """Check the bytes as a log, and show what is found."""
    if len(data) <= HEADER_BYTES:
        return
    if zlib.crc32(data) % THOROUGH == 0:
        check_log(random.Random(data[0]), data[HEADER_BYTES:])
        return
    chosen = random.Random(data[:HEADER_BYTES])
    profile, division = chosen.choice(PROFILES), chosen.choice((None, "closed", "open"))
    benchmark = chosen.choice((None, None, *REFERENCES))
    case = Case(chosen.choice(ROUNDS), profile, division, benchmark)
    task = LogTask("log", case, Options(division=division, benchmark=benchmark, details=chosen.random() < 0.5))
    report = Report(profile, runs=[judge_log(parse_log(data[HEADER_BYTES:]), task)])
    check_findings(report.findings)
    show(chosen, report)


def package(data: bytes) -> None:
    """Make a submission folder of the choices, check it, and show what is found."""
    chosen = Drawn(data)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as made:
        folder = Path(made)
        write_package(chosen, folder)
        if zlib.crc32(data) % THOROUGH == 0:
            check_tree(chosen, folder)
            return
        options = Options(chosen.choice(PROFILES), chosen.choice((None, *ROUNDS)), jobs=1, details=True)
        report = check_paths([folder], options)
        check_findings(report.findings)
        show(chosen, report)


def show(chosen: random.Random, report: Report) -> None:
    """Write the report in one of the formats."""
    name = chosen.choice(list(FORMATS))
    check_format(name, FORMATS[name](report, Style(width=chosen.choice((20, 100)), verbose=chosen.random() < 0.5)))


def change_log(data: bytes, max_size: int, seed: int) -> bytes:
    """Return the input changed, by libFuzzer or in ways in which logs are damaged."""
    rng = random.Random(seed)
    if rng.random() < 0.5 or len(data) <= HEADER_BYTES:
        return bytes(atheris.Mutate(data, max_size))
    header, body = data[:HEADER_BYTES], data[HEADER_BYTES:]
    return (header + rng.choice(BYTE_CHANGES)(rng, body))[:max_size]


TARGETS: dict[str, Callable[[bytes], None]] = {"log": log, "package": package}


def first_inputs(target: str, folder: Path) -> None:
    """Write inputs to start from: logs and choices at random."""
    for number in range(SEEDS):
        rng = random.Random(number)
        data = log_bytes(rng)[:MAX_LOG_BYTES] if target == "log" else rng.randbytes(400)
        (folder / f"first-{number}").write_bytes(rng.randbytes(HEADER_BYTES) + data)


def main() -> None:
    """Run libFuzzer on the target; it ends the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--runs", type=int, default=10_000, help="inputs to try (default: 10,000)")
    parser.add_argument("--inputs", type=Path, help="folder for the inputs that reached new code (default: not kept)")
    parser.add_argument("--input", type=Path, help="try only this input")
    given = parser.parse_args()
    if given.input:
        TARGETS[given.target](given.input.read_bytes())
        return
    if Path("/dev/shm").is_dir():  # a file system in memory
        tempfile.tempdir = "/dev/shm"
    with tempfile.TemporaryDirectory(prefix="fuzz-inputs-") as first:
        folder = given.inputs or Path(first)
        folder.mkdir(parents=True, exist_ok=True)
        first_inputs(given.target, folder)
        arguments = [sys.argv[0], str(folder), f"-runs={given.runs}", "-timeout=60", "-print_final_stats=1"]
        arguments += [f"-max_len={MAX_LOG_BYTES if given.target == 'log' else 2048}", f"-seed={os.getpid()}"]
        mutator = {"custom_mutator": change_log} if given.target == "log" else {}
        atheris.Setup(arguments, TARGETS[given.target], **mutator)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
