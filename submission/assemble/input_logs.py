"""Logs on their way into a package: found, read, and refused where no package could hold them."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tqdm import tqdm

from common.command import UsageError
from compliance.benchmarks import REFERENCES
from compliance.logs.personal_data import personal
from compliance.logs.run import Run, parse_run
from compliance.model.layout import MAX_FILE_BYTES, RESULT_NAME, natural
from compliance.rule import show

GZIP: Final = b"\x1f\x8b"
LISTED: Final = 5
"""Logs that a message names; of more it tells the number."""
UNICODE_ESCAPE_BYTES: Final = 5
"""Of `u00e9`, what follows the backslash."""


class AssemblyError(ValueError):
    """No package can be made of this; the message names the files, what is wrong, and how to fix it."""


@dataclass(frozen=True, slots=True)
class InputLog:
    """A log to be copied. sha256: of what the package gets. redacted: how often which kind of personal data went.

    run: what the copy says.
    """

    path: Path
    sha256: str
    original_sha256: str
    redacted: dict[str, int]
    run: Run


def read_copy(path: Path, redacted: bool) -> tuple[bytes, dict[str, int], str]:
    """Return what the package gets of a log, what was taken out of it, and the SHA-256 of the log as it is.

    Raises AssemblyError for a log that is no file, too large for a results repository, or compressed.
    """
    if not path.is_file():
        raise AssemblyError(f"{path} is no file that can be read; fix the link or remove it")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise AssemblyError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB, which a results repository refuses")
    data = path.read_bytes()
    if data.startswith(GZIP):
        raise AssemblyError(f"{path} is compressed, and the official tools read plain logs only: gunzip it")
    copy, counts = redact(data) if redacted else (data, {})
    return copy, counts, hashlib.sha256(data).hexdigest()


def input_logs(paths: Sequence[Path], redacted: bool, known: Mapping[Path, Run]) -> list[InputLog]:
    """Return the logs in files and folders, in the natural order of their paths: run_2 before run_10.

    In folders, files result_*.txt count, at any depth. known: what was read before, by path.
    Raises UsageError for a path that is not there.
    """
    found = sorted(_find(paths), key=lambda path: natural(path.as_posix()))
    return [
        _read(path, redacted, known.get(path))
        for path in tqdm(found, desc="reading", unit=" logs", disable=None, delay=2)
    ]


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder at any depth, in order of their names; links are followed, loops of links are not."""
    seen: set[str] = set()
    for root, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort(key=natural)
        yield from (Path(root, name) for name in sorted(names, key=natural))


def refuse(runs: Sequence[InputLog], pruned: Sequence[InputLog], unfinished: bool) -> None:
    """Raise AssemblyError if there is no run, a log is there twice or of no known benchmark, or a run still goes on.

    unfinished: take runs without run_stop all the same, as failed ones. Pruned instances may lack it.
    """
    if not runs:
        raise AssemblyError("no logs: the runs hold no files result_*.txt")
    first: dict[str, Path] = {}
    for log in (*runs, *pruned):
        if log.original_sha256 in first:
            other = first[log.original_sha256]
            twice = "is named twice" if other == log.path else f"and {other} are the same log"
            raise AssemblyError(f"{log.path} {twice}: name it once, as a run or as pruned")
        first[log.original_sha256] = log.path
        if not log.run.benchmark:
            known = ", ".join(REFERENCES)
            raise AssemblyError(f"{log.path}: submission_benchmark names no benchmark; expected one of {known}")
    open_ended = [log.path for log in runs if not log.run.finished]
    if open_ended and not unfinished:
        raise AssemblyError(
            f"no run_stop in {listed(open_ended)}: the run is going on, or was killed. Wait for it, leave it out, or "
            "give --unfinished to submit it as a failed run"
        )


def refuse_mixture(logs: Iterable[tuple[Path, Run]]) -> None:
    """Raise AssemblyError if logs of one system are of several organisations, or of one benchmark of several platforms.

    Benchmarks may run on parts of a system of different size, and name these.
    """
    organisations: dict[str | None, Path] = {}
    platforms: dict[str | None, dict[str | None, Path]] = {}
    for path, run in logs:
        organisations.setdefault(run.organisation, path)
        platforms.setdefault(run.benchmark, {}).setdefault(run.platform, path)
    _refuse_several("organisations (submission_org)", organisations)
    for benchmark, found in platforms.items():
        _refuse_several(f"platforms (submission_platform) for {benchmark}", found)


def listed(paths: Sequence[Path]) -> str:
    """Return the first paths, and how many more there are."""
    more = f" and {len(paths) - LISTED} more" if len(paths) > LISTED else ""
    return ", ".join(map(str, paths[:LISTED])) + more


def _refuse_several(what: str, first: Mapping[str | None, Path]) -> None:
    if len(first) > 1:
        says = "; ".join(f"{show(said)} in {path}" for said, path in list(first.items())[:LISTED])
        raise AssemblyError(f"several {what}: {says}. Assemble each on its own")


def _find(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (file for file in files_below(path) if RESULT_NAME.fullmatch(file.name))
        elif path.is_file():
            yield path
        else:
            raise UsageError(f"no such file or folder: {path}")


def _read(path: Path, redacted: bool, known: Run | None) -> InputLog:
    copy, counts, original = read_copy(path, redacted)
    run = parse_run(copy, str(path)) if known is None or counts else known
    return InputLog(path, hashlib.sha256(copy).hexdigest(), original, counts, run)


# -- redaction ---------------------------------------------------------------------------------------------


def redact(text: bytes) -> tuple[bytes, dict[str, int]]:
    """Return the log with `[kind]` in place of each mail address and the like, and how often which kind was there.

    Lines stay lines, and records stay valid JSON: an escape such as `\\n` is taken whole or not at all.
    """
    counts: Counter[str] = Counter()
    while spans := list(personal(text)):  # what is taken out may have hidden more
        pieces: list[bytes] = []
        at = 0
        for begin, end, kind in spans:
            begin, end = _whole_escapes(text, begin, end)
            pieces += (text[at:begin], f"[{kind}]".encode())
            at = end
            counts[kind] += 1
        text = b"".join((*pieces, text[at:]))
    return text, dict(sorted(counts.items()))


def _whole_escapes(text: bytes, begin: int, end: int) -> tuple[int, int]:
    """Return the span without the rest of an escape at its beginning, and the beginning of one at its end."""
    if _escapes(text, begin):
        begin += UNICODE_ESCAPE_BYTES if text[begin : begin + 1] == b"u" else 1
    if _escapes(text, end):
        end -= 1
    return begin, end


def _escapes(text: bytes, at: int) -> bool:
    """Tell whether the byte before `at` is a backslash that belongs to what follows."""
    first = at
    while text[first - 1 : first] == b"\\":
        first -= 1
    return (at - first) % 2 == 1
