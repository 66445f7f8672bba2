"""The input logs of a package: find, read, validate and redact them."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tqdm import tqdm

from common.command import describe_reason, list_some
from common.file_kind import GZIPPED, explain_file
from common.record import TOKEN
from common.reference import OWN, ROUNDS
from common.tree import ANYWHERE, Tree
from common.values import group_pairs, identity, is_stated
from compliance.benchmarks import names_in_words, reference_of
from compliance.logs.file_kind import GZIP
from compliance.logs.privacy import personal
from compliance.logs.run import Run, parse_run, text_of
from compliance.model.grouping import find_scaling, group_runs, label_groups
from compliance.model.judging import Case
from compliance.model.layout import LOG_NAME, MAX_FILE_BYTES, RESULT_NAME, STRONG, natural
from compliance.model.result_set import LIKE_A_LOG
from compliance.rules.rule import show

SEARCHED_BYTES: Final = 1 << 20
"""Of a file of another name: where a log has its first record."""
UNICODE_ESCAPE_BYTES: Final = 5
"""Length of `u00e9`, without the backslash."""


class AssemblyError(ValueError):
    """No package can be made from the input; the message names the files, what is wrong, and how to fix it."""


@dataclass(frozen=True, slots=True)
class InputLog:
    """A log to copy.

    sha256: of the copy. redacted: number of removals by kind of personal data. run: the copy as read. cut_line: the
    last line, if the file ends in its middle.
    """

    path: Path
    sha256: str
    original_sha256: str
    redacted: dict[str, int]
    run: Run
    cut_line: int = 0


def read_copy(path: Path, redacted: bool, tree: Tree = ANYWHERE) -> tuple[bytes, dict[str, int], str]:
    """Return the copy of a log for the package, the number of removals by kind, and the SHA-256 of the original.

    Raises AssemblyError for a log that cannot be read, is too large for a results repository, or is compressed.
    """
    try:
        data = tree.read(path, MAX_FILE_BYTES)
    except OSError as error:
        raise AssemblyError(f"cannot read {path}: {describe_reason(error)}; nothing was written") from error
    if not data.strip():
        raise AssemblyError(f"{path} is empty: copy it again from where it was written, or leave it out")
    if data.startswith(GZIP):
        raise AssemblyError(f"{path} is compressed, but the official tools read only plain text: gunzip it")
    copy, counts = redact_text(data) if redacted else (data, {})
    return copy, counts, hashlib.sha256(data).hexdigest()


def find_logs(path: Path, warnings: list[str]) -> list[Path]:
    """Return a log, or those at any depth of a folder: result_*.txt, without any the other files that have records.

    Adds a warning of logs with other names beside result_*.txt. Raises AssemblyError for a folder without logs.
    """
    if not path.is_dir():
        if problem := explain_file(path, "a log", GZIPPED):
            raise AssemblyError(f"{path}: {problem.rstrip('.')}; leave it out")
        return [path]
    files = list(files_below(path))
    logs = [file for file in files if re.fullmatch(RESULT_NAME, file.name)]
    names = LIKE_A_LOG if logs else LOG_NAME
    others = [file for file in files if re.fullmatch(names, file.name) and not re.fullmatch(RESULT_NAME, file.name)]
    misnamed = [file for file in others if TOKEN in ANYWHERE.begin(file, SEARCHED_BYTES)]
    if not logs and not misnamed:
        raise AssemblyError(f"{path}: no logs: expected result_*.txt, *.txt, *.log or *.out; leave it out")
    if logs and misnamed:
        warnings.append(
            f"not packed, because not named result_<i>.txt: {list_some(misnamed)}; rename them, or give each by name"
        )
    return logs or misnamed


def read_input_logs(paths: Sequence[Path], redacted: bool, read_runs: Mapping[Path, Run]) -> list[InputLog]:
    """Return the logs as read, in the natural order of their paths: run_2 before run_10.

    read_runs: logs that were read before, by path.
    """
    logs = []
    log_paths = sorted(paths, key=lambda path: natural(path.as_posix()))
    for path in tqdm(log_paths, desc="reading", unit=" logs", disable=None, delay=2):
        copy, counts, original = read_copy(path, redacted)
        run = read_runs[path] if path in read_runs and not counts else parse_run(copy, str(path))
        cut_line = 0 if copy.endswith(b"\n") else copy.count(b"\n") + 1
        logs.append(InputLog(path, hashlib.sha256(copy).hexdigest(), original, counts, run, cut_line))
    return logs


def files_below(folder: Path, tree: Tree = ANYWHERE) -> Iterator[Path]:
    """Yield the files at any depth of a folder, by name in natural order; follow links, except loops.

    A link to a folder outside the tree is not followed, but yielded like a file: to read it fails.
    """
    seen: set[str] = set()
    for root, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        leaving = [name for name in folders if (path := Path(root, name)).is_symlink() and tree.leads_out(path)]
        folders[:] = sorted({*folders} - {*leaving}, key=natural)
        yield from (Path(root, name) for name in sorted([*names, *leaving], key=natural))


def check_logs(runs: Sequence[InputLog], pruned: Sequence[InputLog], unfinished: bool) -> None:
    """Raise AssemblyError for runs that cannot be submitted.

    unfinished: accept runs without run_stop, as failed ones. Pruned instances may always lack it.
    """
    problems = []
    first: dict[str, Path] = {}
    for log in (*runs, *pruned):
        if log.original_sha256 in first:
            other = first[log.original_sha256]
            twice = "is given twice" if other == log.path else f"and {other} are the same log"
            problems.append(f"{log.path} {twice}: give it once, as a run or as pruned")
        first[log.original_sha256] = log.path
        if not log.run.benchmark:
            expected = f"expected {names_in_words()}, or an installed plug-in"
            problems.append(f"{log.path}: submission_benchmark is not a known benchmark; {expected}")
        if log.run.variant == OWN:
            problems.append(f"{log.path}: dataset_variant is {OWN}, data of the user's own: leave it out")
        if log.run.without_target:
            problems.append(f"{log.path}: trained without a target (train.target: none): leave it out")
    open_ended = []
    for log in [] if unfinished else runs:
        ending = log.run.ending
        if ending and not ending.final:
            problems.append(
                f"{log.path}: {ending.text}, by its own record, which is not a result: continue the run with --resume, "
                "leave it out, or use --unfinished to submit it as a failed run"
            )
        elif log.cut_line and not log.run.finished:
            problems.append(
                f"{log.path} ends in the middle of line {log.cut_line}, before run_stop: copy it again from where it "
                "was written; if it ends there as well, leave it out, or use --unfinished to submit it as a failed run"
            )
        elif not log.run.finished:
            open_ended.append(f"{log.path} ({log.run.killed})" if log.run.killed else log.path)
    if open_ended:
        problems.append(
            f"no run_stop in {list_some(open_ended)}: the run is active, or was killed. Wait for it, leave it out, or "
            "use --unfinished to submit it as a failed run"
        )
    if problems:
        raise AssemblyError("\n".join(problems))


def check_one_system(logs: Sequence[tuple[Path, Run]]) -> None:
    """Raise AssemblyError if the logs have several organisations, or those of a benchmark are of several results.

    Different benchmarks may run on parts of a system, with different platform names.
    """
    paths = {id(run): path for path, run in logs}
    kinds = {"organisations": [*group_pairs((run.organisation, run) for _, run in logs).values()]}
    for benchmark, runs in group_pairs((run.benchmark, run) for _, run in logs).items():
        kinds[f"results of {benchmark}"] = group_runs(runs)
    for kind, groups in kinds.items():
        if len(groups) > 1:
            named = zip(label_groups(groups), groups, strict=True)
            texts = list_some(
                [
                    f"{label} in {list_some([paths[id(run)] for run in group], 1)} ({group[0].benchmark})"
                    for label, group in named
                ]
            )
            raise AssemblyError(f"several {kind}: {texts}. Assemble each one separately")


def check_places(logs: Iterable[InputLog], named: Sequence[Path], warnings: list[str]) -> None:
    """Raise AssemblyError if logs of a benchmark lie in several folders, as those of several results, unless named.

    Then it is a warning. Folders of one log each, side by side, are those of the runs of one result.
    """
    for benchmark, paths in group_pairs((log.run.benchmark, log.path) for log in logs).items():
        folders = group_pairs((path.parent, path) for path in paths)
        if len({folder if len(inside) > 1 else folder.parent for folder, inside in folders.items()}) < 2:
            continue
        texts = list_some([f"{len(inside)} in {folder}" for folder, inside in folders.items()])
        if not {*paths} <= {*named}:
            raise AssemblyError(
                f"the {benchmark} logs lie in several folders, which may be of several results: {texts}. Give the "
                f"folder of one result; if they are of one, name the logs: {' '.join(map(str, paths[:2]))} ..."
            )
        warnings.append(f"{len(paths)} {benchmark} logs of several folders are packed as one result: {texts}")


def check_one_result(logs: Sequence[tuple[Path, Run]], scaling: str) -> None:
    """Raise AssemblyError if the runs of a benchmark, with those in the package, are not those of one result.

    They differ in settings, are more than a time-to-train result has, or may be instances. scaling: "" if nobody said
    it.
    """
    stated = ((key, (value, path)) for path, run in logs for key, value in _list_settings(run))
    for key, values in group_pairs(stated).items():
        kinds = group_pairs((identity(value), f"{show(value)} in {path}") for value, path in values)
        if len(kinds) > 1:
            raise AssemblyError(
                f"the runs differ in {key}: {list_some([texts[0] for texts in kinds.values()], 2)}. The runs of a "
                "result differ in their seed alone: give those of one result"
            )
    runs = [run for _, run in logs]
    reference = reference_of(runs[0].benchmark, runs[0].variant)
    required = reference.runs if reference else len(runs)
    reason = find_scaling(runs, required, (scaling,))[1]
    if scaling == STRONG and len(runs) > required:
        reason = f"a time-to-train result has {required} runs"
    if reason:
        names = list_some([str(path) for path, _ in logs], 2 * required)
        raise AssemblyError(
            f"{len(runs)} logs of {runs[0].benchmark} are not one result: {reason}: {names}. Give the runs of one "
            f"result alone, without those of others or of trials; for {required} runs that overlapped add --scaling "
            "strong, for instances --scaling weak"
        )


def _list_settings(run: Run) -> list[tuple[str, Any]]:
    """Return the settings on which the runs of a result agree, by key, as far as the log states them."""
    division = (text_of(run.submission.get("submission_division")) or "closed").lower()
    settings = Case(ROUNDS[-1], division=division, benchmark=run.benchmark, variant=run.variant).settings
    logged = [(setting.key, run.details.hyperparameters.get(setting.key)) for setting in settings if setting.identity]
    return [(key, value) for key, value in logged if is_stated(value)]


# -- redaction ---------------------------------------------------------------------------------------------


def redact_text(text: bytes) -> tuple[bytes, dict[str, int]]:
    r"""Return the log with personal data such as mail addresses replaced by `[kind]`, and the removals by kind.

    Lines stay lines, and records stay valid JSON: an escape such as `\n` is never cut.
    """
    counts: Counter[str] = Counter()
    while spans := list(personal(text)):  # a removal may reveal more
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
    """Return the span shortened at both ends so that it cuts no escape."""
    if _is_escaped(text, begin):
        begin += UNICODE_ESCAPE_BYTES if text[begin : begin + 1] == b"u" else 1
    if _is_escaped(text, end):
        end -= 1
    return begin, end


def _is_escaped(text: bytes, at: int) -> bool:
    """Return whether the byte before `at` is a backslash that escapes the byte at `at`."""
    first = at
    while text[first - 1 : first] == b"\\":
        first -= 1
    return (at - first) % 2 == 1
