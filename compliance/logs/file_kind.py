"""What a file that is given as a log is: compressed, another kind of file, or another suite's log.

Compressed logs are inflated within limits: a small file may contain more text than anybody can read. Of the published
logs, none is compressed, the largest has 0.8 MB, gzip makes them at most 48 times smaller, and the largest package has
24 MB of them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Set
from io import BufferedReader
from itertools import chain
from typing import BinaryIO, Final

from common.file_kind import GZIPPED, HEAD_BYTES, INFERENCE, SYSTEM, FileKind, find_kind
from common.tree import Tree, size_text

GZIP: Final = b"\x1f\x8b"
READ_BYTES: Final = 64 << 10
PIECE_BYTES: Final = 1 << 20
MAX_FILE_BYTES: Final = 64 << 20
MAX_PACKAGE_BYTES: Final = 512 << 20
MEMBER_BYTES: Final = 4 << 10
"""As much of a file's limit is taken by each of its gzip members, which may be empty."""


class InflateError(ValueError):
    """A file is beyond one of the limits; the message says which."""


class PlainFiles(Tree):
    """The files of a package whose compressed ones were inflated up to the limit: further ones are not read."""

    def open(self, path: str | os.PathLike[str]) -> BufferedReader:
        """Open a file as `Tree.open` does; InflateError for a compressed one."""
        file = Tree.open(self, path)
        if file.peek(len(GZIP)).startswith(GZIP):
            file.close()
            limit = size_text(MAX_PACKAGE_BYTES)
            raise InflateError(f"is not read: the compressed files before it in the package contain more than {limit}")
        return file


def pieces(stream: BinaryIO) -> tuple[bool, Iterator[bytes]]:
    """Return whether a file is compressed, and its text in pieces; to read them may raise as `inflated` does."""
    block = stream.read(PIECE_BYTES)
    plain = chain((block,), iter(lambda: stream.read(PIECE_BYTES), b""))
    return (True, inflated(block, stream)) if block.startswith(GZIP) else (False, plain)


def inflated(block: bytes, stream: BinaryIO) -> Iterator[bytes]:
    """Yield the contents of a gzip file that starts with this block; skip zeros after a member.

    Raises InflateError beyond the limit, EOFError and zlib.error for a damaged file.
    """
    size, inflate = 0, zlib.decompressobj(wbits=31)
    while block:
        piece = inflate.decompress(block, PIECE_BYTES)
        size += len(piece)
        if size > MAX_FILE_BYTES:
            raise InflateError(f"contains more than {size_text(MAX_FILE_BYTES)} of compressed text")
        yield piece
        block = inflate.unconsumed_tail or inflate.unused_data or stream.read(READ_BYTES)
        if inflate.eof:
            while block and not (block := block.lstrip(b"\0")):
                block = stream.read(READ_BYTES)
            if block:
                size += MEMBER_BYTES
                inflate = zlib.decompressobj(wbits=31)
    if not inflate.eof:
        raise EOFError("the gzip file is truncated")


_CHECK_LOG: Final = "Check the run's log, result_<i>.txt, instead."
_FIXES: Final = {
    "records without `:::MLLOG ` before each": (
        "Write them with mllog, which puts it there. Here: sed 's/^{/:::MLLOG {/' < FILE > repaired.txt"
    ),
    GZIPPED: "It was compressed twice: `gunzip -k FILE`, then check what that writes.",
    SYSTEM: "Check it with `mlperf-hpc submit system --check FILE`.",
}
"""What to do with files of a kind that are given as logs, in place of what the kind says; without both, _CHECK_LOG."""
EMPTY: Final = FileKind(
    "an empty file", "Copy it again. If it is empty there, too, its run logged nothing: repeat the run."
)
OUTPUT: Final = FileKind(
    "text without a line of mlperf-logging (a job's output?)",
    "Put the run's own log, the file that mllog wrote, in its place.",
)


def find_log_kind(head: bytes) -> FileKind | None:
    """Return what a file with these first bytes, given as a log, is; None if it may be a log."""
    kind = find_kind(head)
    return kind and kind._replace(fix=_FIXES.get(kind.name, kind.fix or _CHECK_LOG))


def find_encoding(head: bytes) -> str:
    """Return the name of the encoding if text with these first bytes is not ASCII, UTF-8 or Latin-1, else ""."""
    for mark, name in ((b"\xff\xfe\0\0", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16")):
        if head.startswith(mark):
            return name
    head = head[:HEAD_BYTES]
    return "UTF-16 or UTF-32 without a byte order mark, or binary data" if head.count(b"\0") > len(head) // 3 else ""


# -- logs of other suites ----------------------------------------------------------------------------------

TRAINING_BENCHMARKS: Final = frozenset(
    "bert deepseekv3_671b dlrm dlrm_dcnv2 dlrmv4 flux1 gnmt gnn gpt3 gpt_oss_20b llama2_70b_lora llama31_405b "
    "llama31_8b maskrcnn minigo ncf qwen35_397b_grpo resnet retinanet rgat rnnt ssd stable_diffusion transformer "
    "unet3d".split()
)
"""Benchmarks of MLPerf Training 0.6 to 6.1: mlperf_logging/benchmark_meta.py of mlperf-logging 4.1.68."""
COUNTED_IN_SAMPLES: Final = frozenset(
    "deepseekv3_671b dlrmv4 flux1 gpt_oss_20b llama2_70b_lora llama31_405b llama31_8b qwen35_397b_grpo".split()
)
"""Those whose convergence is the samples_count of an evaluation, whatever epoch_num it states, too: rcp_checker.py."""


def find_suite(benchmark: object, keys: Set[str]) -> FileKind | None:
    """Return of which other suite a log is, None if of none that is known.

    benchmark: the value of its submission_benchmark. keys: its other keys.
    """
    name = benchmark.strip().lower() if isinstance(benchmark, str) else ""
    suites = (
        (
            name in TRAINING_BENCHMARKS,
            f"a log of MLPerf Training ({name})",
            "The committee's own rules judge it: `python -m compliance.check --usage training FILE`.",
        ),
        (
            name in ("cloudmask", "earthquake", "stemdl", "uno"),
            f"a log of MLCommons Science ({name})",
            "See github.com/mlcommons/science; no tool judges it.",
        ),
        (
            benchmark is None and keys & {"loadgen_version", "effective_scenario", "result_validity"},
            "a log of MLPerf Inference",
            INFERENCE,
        ),
    )
    return next((FileKind(what, fix) for is_of_suite, what, fix in suites if is_of_suite), None)
