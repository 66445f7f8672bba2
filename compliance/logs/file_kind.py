"""What a file that is given as a log is: compressed, another kind of file, or another suite's log.

Compressed logs are inflated within limits: a small file may contain more text than anybody can read. Of the published
logs, none is compressed, the largest has 0.8 MB, gzip makes them at most 48 times smaller, and the largest package has
24 MB of them.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Set
from io import BufferedReader
from itertools import chain
from typing import BinaryIO, Final, NamedTuple

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


HEAD_BYTES: Final = 4096
"""The first bytes of a file, which tell its kind."""


class FileKind(NamedTuple):
    """What a file is, as the end of a sentence, and what to do with it.

    binary: no log begins like this, whatever follows; else the file is of this kind if it has no records.
    """

    name: str
    fix: str
    binary: bool = False


_CHECK_LOG: Final = "Check the run's log, result_<i>.txt, instead."
_REPLACE: Final = "Put the run's own log, the file that mllog wrote, in its place."
_UNPACK: Final = "Unpack it: `{} FILE`, then check what it contains."
_CHECK_SYSTEM: Final = "Check it with `mlperf-hpc submit system --check FILE`."
_STORAGE: Final = "mlpstorage judges it: `mlpstorage reports reportgen`, see github.com/mlcommons/storage."
_INFERENCE: Final = "Its submission checker judges it: tools/submission in github.com/mlcommons/inference."
PTDAEMON: Final = (
    "Write its watts as records power_reading of mllog, in ms since 1970: its times are local, of a zone that it does "
    "not state."
)
EMPTY: Final = FileKind(
    "an empty file", "Copy it again. If it is empty there, too, its run logged nothing: repeat the run."
)
OUTPUT: Final = FileKind("text without a line of mlperf-logging (a job's output?)", _REPLACE)

_BINARY: Final = (
    (rb"PK\x03\x04.{26}[^/]{1,99}/(?:data\.pkl|byteorder|version|\.)", "binary data: a PyTorch checkpoint", _CHECK_LOG),
    (rb"PK(?:\x03\x04|\x05\x06)", "a zip archive", _UNPACK.format("unzip")),
    (rb".{257}ustar[\0 ]", "a tar archive", _UNPACK.format("tar xf")),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK.format("7z x")),
    (rb"\x1f\x8b", "a file compressed twice with gzip", _UNPACK.format("gunzip")),
    (rb"\xfd7zXZ\0", "a file compressed with xz", _UNPACK.format("tar xf` or `unxz")),
    (rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "a file compressed with bzip2", _UNPACK.format("tar xf` or `bunzip2")),
    (rb"\x28\xb5\x2f\xfd", "a file compressed with zstd", _UNPACK.format("tar xf` or `unzstd")),
    (rb"%PDF-", "a PDF document", _CHECK_LOG),
    (rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a", "an image", _CHECK_LOG),
    (rb"\x89HDF\r\n", "binary data: HDF5", _CHECK_LOG),
    (rb"\x7fELF", "binary data: a program", _CHECK_LOG),
    (rb"\x80[\x02-\x05]|\x93NUMPY", "binary data: a pickle, an array or a checkpoint of Python", _CHECK_LOG),
)
"""Pattern of the first bytes, name and fix of each kind that no log begins like."""
_TEXT: Final = (
    (rb"<(?:!doctype html|html|head)\b", "a web page (perhaps of a login)", "Download the file itself: the raw link."),
    (rb"version https://git-lfs\.github\.com/spec/", "a pointer of Git LFS", "Fetch the content: `git lfs pull`."),
    (rb"[./\w]{0,99}/annex/objects/", "a pointer of git-annex", "Fetch the content: `git annex get FILE`."),
    (rb"=+\s+MLPerf Results Summary\b", "a summary of MLPerf Inference", _INFERENCE),
    (rb'\{.*"(?:num_accelerators|train_au_\w+)"', "a summary of MLPerf Storage", _STORAGE),
    (rb"Time,[\d-]+ [\d:.]+,Watts,", "a log of PTDaemon, the power daemon of SPEC", PTDAEMON),
    (rb'\{[^{}]*"time_ms"', "records without `:::MLLOG ` before each", "Write them with mllog, which puts it there."),
    (rb'\{.*"(?:system_name|host_processors_per_node|accelerators_per_node)"', "a system description", _CHECK_SYSTEM),
    (rb'\{\s*"', "a JSON object", _CHECK_LOG),
)
"""The same for text, after blanks, in any letter case."""


def find_kind(head: bytes) -> FileKind | None:
    """Return what a file with these first bytes is, None if it may be a log."""
    head = head[:HEAD_BYTES]
    for pattern, name, fix in _BINARY:
        if re.match(pattern, head, re.DOTALL):
            return FileKind(name, fix, True)
    for pattern, name, fix in _TEXT:
        if re.match(rb"(?:\xef\xbb\xbf)?\s*" + pattern, head, re.DOTALL | re.IGNORECASE):
            return FileKind(name, fix)
    return None


def find_encoding(head: bytes) -> str:
    """Return the name of the encoding if text with these first bytes is not ASCII, UTF-8 or Latin-1, else ""."""
    for mark, name in ((b"\xff\xfe\0\0", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16")):
        if head.startswith(mark):
            return name
    head = head[:HEAD_BYTES]
    if head.count(b"\0") > len(head) // 3:
        return "UTF-16 or UTF-32 without a byte order mark, or binary data"
    return ""


# -- logs of other suites ----------------------------------------------------------------------------------

_TRAINING: Final = frozenset(
    "bert deepseekv3_671b dlrm dlrm_dcnv2 dlrmv4 flux1 gnmt gnn gpt3 gpt_oss_20b llama2_70b_lora llama31_405b "
    "llama31_8b maskrcnn minigo ncf qwen35_397b_grpo resnet retinanet rgat rnnt ssd stable_diffusion transformer "
    "unet3d".split()
)
"""Benchmarks of MLPerf Training 0.6 to 6.1: mlperf_logging/benchmark_meta.py of mlperf-logging 4.1.68."""
_SCIENCE: Final = frozenset(("cloudmask", "earthquake", "stemdl", "uno"))
"""What the codes in github.com/mlcommons/science log."""
_LOADGEN: Final = frozenset(("loadgen_version", "effective_scenario", "result_validity"))
"""Keys that the load generator of MLPerf Inference logs."""


def find_suite(benchmark: object, keys: Set[str]) -> FileKind | None:
    """Return of which other suite a log is, None if of none that is known.

    benchmark: the value of its submission_benchmark. keys: its other keys.
    """
    name = benchmark.strip().lower() if isinstance(benchmark, str) else ""
    if name in _TRAINING:
        tool = "python -m mlperf_logging.compliance_checker --usage training --ruleset <round>.0 FILE"
        return FileKind(f"a log of MLPerf Training ({name})", f"Its checker judges it: `{tool}`.")
    if name in _SCIENCE:
        return FileKind(f"a log of MLCommons Science ({name})", "See github.com/mlcommons/science; no tool judges it.")
    if benchmark is None and keys & _LOADGEN:
        return FileKind("a log of MLPerf Inference", _INFERENCE)
    return None
