"""What a file is by its first bytes: the one recogniser for the checker, the readers of data and every command.

A name is the end of "this is …". A fix says how to get at the content, and is empty where that depends on what the file
was given for: the caller words it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

HEAD_BYTES: Final = 4096
"""The first bytes of a file, which tell its kind."""


class FileKind(NamedTuple):
    """What a file is, as the end of a sentence, and what to do with it.

    binary: no text begins like this, whatever follows; else the file is of this kind if nothing in it is known better.
    """

    name: str
    fix: str = ""
    binary: bool = False


_UNPACK: Final = "Unpack it: `{} FILE`, then use what it contains."
_STORAGE: Final = "mlpstorage judges it: `mlpstorage reports reportgen`, see github.com/mlcommons/storage."
INFERENCE: Final = "Its submission checker judges it: tools/submission in github.com/mlcommons/inference."
PTDAEMON: Final = (
    "Write its watts as records power_reading of mllog, in ms since 1970: its times are local, of a zone that it does "
    "not state."
)

_BINARY: Final = (
    (rb"PK\x03\x04.{26}[^/]{1,99}/(?:data\.pkl|byteorder|version|\.)", "binary data: a PyTorch checkpoint", ""),
    (rb"PK(?:\x03\x04|\x05\x06)", "a zip archive", _UNPACK.format("unzip")),
    (rb".{257}ustar[\0 ]", "a tar archive", _UNPACK.format("tar xf")),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK.format("7z x")),
    (rb"\x1f\x8b", "a file compressed twice with gzip", _UNPACK.format("gunzip")),
    (rb"\xfd7zXZ\0", "a file compressed with xz", _UNPACK.format("tar xf` or `unxz")),
    (rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "a file compressed with bzip2", _UNPACK.format("tar xf` or `bunzip2")),
    (rb"\x28\xb5\x2f\xfd", "a file compressed with zstd", _UNPACK.format("tar xf` or `unzstd")),
    (rb"%PDF-", "a PDF document", ""),
    (rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a", "an image", ""),
    (rb"\x89HDF\r\n", "binary data: HDF5", ""),
    (rb"\x7fELF", "binary data: a program", ""),
    (rb"\x80[\x02-\x05]|\x93NUMPY", "binary data: a pickle, an array or a checkpoint of Python", ""),
)
"""Pattern of the first bytes, name and fix of each kind that no text begins like."""
_TEXT: Final = (
    (rb"<(?:!doctype html|html|head)\b", "a web page (perhaps of a login)", "Download the file itself: the raw link."),
    (rb"version https://git-lfs\.github\.com/spec/", "a pointer of Git LFS", "Fetch the content: `git lfs pull`."),
    (rb"[./\w]{0,99}/annex/objects/", "a pointer of git-annex", "Fetch the content: `git annex get FILE`."),
    (rb"=+\s+MLPerf Results Summary\b", "a summary of MLPerf Inference", INFERENCE),
    (rb'\{.*"(?:num_accelerators|train_au_\w+)"', "a summary of MLPerf Storage", _STORAGE),
    (rb"Time,[\d-]+ [\d:.]+,Watts,", "a log of PTDaemon, the power daemon of SPEC", PTDAEMON),
    (rb'\{[^{}]*"time_ms"', "records without `:::MLLOG ` before each", ""),
    (rb'\{.*"(?:system_name|host_processors_per_node|accelerators_per_node)"', "a system description", ""),
    (rb'\{\s*"', "a JSON object", ""),
)
"""The same for text, after blanks, in any letter case."""


def find_kind(head: bytes) -> FileKind | None:
    """Return what a file with these first bytes is, None if it may be any text."""
    head = head[:HEAD_BYTES]
    for pattern, name, fix in _BINARY:
        if re.match(pattern, head, re.DOTALL):
            return FileKind(name, fix, True)
    for pattern, name, fix in _TEXT:
        if re.match(rb"(?:\xef\xbb\xbf)?\s*" + pattern, head, re.DOTALL | re.IGNORECASE):
            return FileKind(name, fix)
    return None
