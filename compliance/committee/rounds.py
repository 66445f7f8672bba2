"""Which rounds of MLPerf Training there are rule files for, and by which one a log is judged."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from common.errors import UsageError
from common.rounds import BY_NAME, KNOWN, TRAINING, Round, find_round, sort_versions
from compliance.committee.rule_files import ROOT_FILE, UnreadableError, find_rules, list_rounds, read_rule_file
from compliance.logs.file_kind import TRAINING_BENCHMARKS

MOST_BYTES: Final = 512 << 10
"""Of the rule files of a round; the largest has 60 KB in 25 files."""
MOST_FILES: Final = 200


def is_of_training(benchmark: str, named: str | None) -> bool:
    """Tell whether a benchmark is one of MLPerf Training: a known one, or one that has rule files.

    named: the folder of rule files that the user names, None for an installed one.
    """
    return benchmark in TRAINING_BENCHMARKS or (bool(benchmark) and benchmark in _list_benchmarks(find_rules(named)))


@lru_cache(maxsize=16)
def _list_benchmarks(folder: str) -> frozenset[str]:
    files = (file for usage, version in list_rounds(folder) for file in _list_files(folder, Round(usage, version)))
    return frozenset(file.stem.partition("_")[2] for file in files)


def _list_files(folder: str, round_: Round) -> list[Path]:
    """Return the rule files of a round; UsageError for more than any round has."""
    files = sorted(Path(folder, round_.folder).glob("*.yaml")) if folder else []
    if len(files) > MOST_FILES or sum(os.path.getsize(file) for file in files if file.is_file()) > MOST_BYTES:
        expected = f"at most {MOST_FILES} files and {MOST_BYTES >> 10} KB in all"
        raise UsageError(
            f"{files[0].parent}: not readable: it has too many rule files, or too large ones; expected {expected}"
        )
    return files


def list_versions(named: str | None) -> list[str]:
    """Return the versions of MLPerf Training, oldest first: the known ones, and those that have rule files."""
    known = [round_.version for round_ in KNOWN if round_.usage == TRAINING]
    found = [version for usage, version in list_rounds(find_rules(named)) if usage == TRAINING and version != "0.6"]
    return sort_versions([*known, *found])  # 0.6 has another line format


def find_dated_round(newest_ms: int, named: str | None) -> str:
    """Return the round in whose time a log was written, the newest one for a log that states no time."""
    names = [Round(TRAINING, version).name for version in list_versions(named)]
    known = [name for name in names if name in BY_NAME]
    begun = [name for name in known if BY_NAME[name].first_ms <= newest_ms] or known[:1]
    is_of_newest = not newest_ms or begun[-1] == known[-1]
    return names[-1] if is_of_newest else begun[-1]  # also one that is newer than those whose time is known


@lru_cache(maxsize=64)
def list_keys(folder: str, round_: str) -> frozenset[str]:
    """Return the keys that the rule files of a round name, as far as they can be read."""
    keys: set[str] = set()
    for file in _list_files(folder, find_round(round_)):
        with suppress(UnreadableError, OSError):  # a log that needs the file is not judged
            keys |= read_rule_file(folder, f"{file.parent.name}/{file.name}").keys.keys()
    return frozenset(keys)


def require_rules(folder: str, round_: str) -> str:
    """Return the folder if it has rule files of a round, else ""; UsageError if the first of them is not understood."""
    try:
        _list_files(folder, find_round(round_))
        read_rule_file(folder, f"{find_round(round_).folder}/{ROOT_FILE}")
    except FileNotFoundError:
        return ""
    except UnreadableError as error:
        raise UsageError(str(error)) from None
    return folder
