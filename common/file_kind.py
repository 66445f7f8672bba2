"""What a file is by its first bytes: the one recogniser for the checker, the readers of data and every command.

A name is the end of "this is …". A fix says how to get at the content, and is empty where that depends on what the file
was given for: the caller words it.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from common.tree import ANYWHERE

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
_DVC: Final = "Fetch the content: `dvc pull FILE`."
_STORAGE: Final = "mlpstorage judges it: `mlpstorage reports reportgen`, see github.com/mlcommons/storage."
INFERENCE: Final = "Its submission checker judges it: tools/submission in github.com/mlcommons/inference."
PTDAEMON: Final = (
    "Write its watts as records power_reading of mllog, in ms since 1970: its times are local, of a zone that it does "
    "not state."
)
_STORAGE_SUMMARY: Final = "a summary of MLPerf Storage"

HDF5: Final = "an HDF5 file"
NETCDF: Final = "a classic NetCDF file"
LMDB: Final = "an LMDB file"
TFRECORD: Final = "a TFRecord file"
NPY: Final = "a numpy array (.npy)"
NPZ: Final = "an archive of numpy arrays (.npz)"
PICKLE: Final = "a pickle of Python"
CHECKPOINT: Final = "a PyTorch checkpoint"
SAFETENSORS: Final = "a file of weights (safetensors)"
COMPACT: Final = "a file of compact frames (oc20)"
PACKED: Final = "a packed sample (cosmoflow)"
BZIP2: Final = "a file compressed with bzip2"
GZIPPED: Final = "a file compressed with gzip"
XZ: Final = "a file compressed with xz"
TAR: Final = "a tar archive"
JSON: Final = "a JSON object"
SYSTEM: Final = "a system description"
FIGURE: Final = "the fom.json of a measurement or a run"
BASELINE: Final = "a baseline of `mlperf-hpc accept`"
MANIFEST: Final = "the manifest of a dataset"

_TORCH_BEGIN: Final = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""How files of torch.save begin before version 1.6."""
_ZIP: Final = b"PK\x03\x04"
_BINARY: Final[tuple[tuple[int, bytes, bytes, str, str], ...]] = (
    (0, _ZIP, rb"^.{30}[^/]{1,99}/(?:data\.pkl|byteorder|version|\.)", CHECKPOINT, ""),
    (0, _ZIP, rb"^.{30}[^/]{1,99}\.npy", NPZ, ""),
    (0, _ZIP, rb"PK\x03\x04.{26}xl/", "a spreadsheet", ""),
    (0, _ZIP, rb"PK\x03\x04.{26}(?:word|ppt)/", "an Office document", ""),
    (0, b"PK", rb"^PK(?:\x03\x04|\x05\x06)", "a zip archive", _UNPACK.format("unzip")),
    (257, b"ustar", rb"^.{262}[\0 ]", TAR, _UNPACK.format("tar xf")),
    (0, b"7z\xbc\xaf\x27\x1c", b"", "a 7z archive", _UNPACK.format("7z x")),
    (0, b"\x1f\x8b", b"", GZIPPED, _UNPACK.format("gunzip -k")),
    (0, b"\xfd7zXZ\0", b"", XZ, _UNPACK.format("tar xf` or `unxz -k")),
    (
        0,
        b"BZh",
        rb"^.{4}(?:1AY&SY|\x17rE8P\x90)",
        BZIP2,
        _UNPACK.format("tar xf` or `bunzip2 -k"),
    ),
    (0, b"\x28\xb5\x2f\xfd", b"", "a file compressed with zstd", _UNPACK.format("tar xf` or `unzstd")),
    (0, b"%PDF-", b"", "a PDF document", ""),
    (0, b"\x89PNG\r\n", b"", "an image", ""),
    (0, b"\xff\xd8\xff", b"", "an image", ""),
    (0, b"GIF8", rb"^....[79]a", "an image", ""),
    (0, b"II*\0", b"", "an image", ""),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"", "an Office document", ""),
    (0, b"\x89HDF\r\n", b"", HDF5, ""),
    (0, b"CDF", rb"^...[\1\2\5]", NETCDF, ""),
    (16, b"\xde\xc0\xef\xbe", b"", LMDB, ""),
    (0, b"OC20BIN\0", b"", COMPACT, ""),
    (0, b"CFPACK\0\0", b"", PACKED, ""),
    (0, b"PAR1", b"", "a Parquet file", ""),
    (3, b'\0\0\0\0\0{"', b"", SAFETENSORS, ""),
    (0, b"\x7fELF", b"", "a program", ""),
    (0, _TORCH_BEGIN, b"", CHECKPOINT, ""),
    (0, b"\x80", rb"^.[\x02-\x05]", PICKLE, ""),
    (0, b"\x93NUMPY", b"", NPY, ""),
)
"""Of each kind that no text begins like: where which bytes stand, a pattern of what else does, name and fix."""
_TEXT: Final = (
    (rb"<(?:!doctype html|html|head)\b", "a web page (perhaps of a login)", "Download the file itself: the raw link."),
    (rb"version https://git-lfs\.github\.com/spec/", "a pointer of Git LFS", "Fetch the content: `git lfs pull`."),
    (rb"[./\w]{0,99}/annex/objects/", "a pointer of git-annex", "Fetch the content: `git annex get FILE`."),
    (rb"(?:\w+:[^\n]{0,200}\n){0,9}?outs:\n *- +(?:md5|etag|hash|size|path):", "a pointer of DVC", _DVC),
    (rb"=+\s+MLPerf Results Summary\b", "a summary of MLPerf Inference", INFERENCE),
    (
        rb".*:::MLPv?\d[\d.]* ",
        "text in the format of MLPerf Training 0.5 and 0.6 (`:::MLPv0.…`), which no round of MLPerf HPC had",
        "Log with mllog, of the package mlperf-logging, and repeat the run.",
    ),
    (rb"Time,[\d-]+ [\d:.]+,Watts,", "a log of PTDaemon, the power daemon of SPEC", PTDAEMON),
    (
        rb"(?:[^\n]{0,998}\n){0,50}?content-transfer-encoding: *base64",
        "the source of a mail, with its text in base64",
        "Save the attachment itself; or decode the mail: python3 -c 'import email, sys; [sys.stdout.buffer.write("
        'part.get_payload(decode=True) or b"") for part in email.message_from_binary_file(sys.stdin.buffer).walk()]'
        "' < FILE > repaired.txt",
    ),
    (
        rb"\0{64,}\Z",
        "a file of NUL bytes, as after a crash of the machine or with a full disk",
        "Copy it again from where it was written. If it is so there as well, its content is lost.",
    ),
    (rb"(?:[a-z0-9+/]{76}\r?\n){2}", "text in base64", "Decode it: base64 -d < FILE > repaired.txt"),
    (
        rb'\{"mlperf_hpc_node":',
        "lines of --this-node about nodes",
        "Merge them: `mlperf-hpc submit system --merge FILE -o SYSTEM.json`.",
    ),
    (rb'\{[^{}]*"time_ms"', "records without `:::MLLOG ` before each", ""),
)
"""Pattern of the first characters, name and fix of each kind of text, after blanks, in any letter case."""
_JSON: Final = {
    "how cause epochs": "the ended.json of a run",
    "schema profile strict_verdict": "a report of `mlperf-hpc check --format json`",
    "kind mlperf_result": FIGURE,
    "series workload": BASELINE,
    "kind threshold provisional": "a verdict of `mlperf-hpc accept`",
    "benchmark variant facts": MANIFEST,
    "organisation complete incomplete": "the provenance.json of a package",
    "$schema version runs": "a report in SARIF",
    "schema version results": "a table of `mlperf-hpc summary --format json`",
    "schema comparisons": "a comparison of `mlperf-hpc summary --format json`",
    "binds step_ms exposed_ms": "a report of `python -m common.measure roofline`",
    "quality members": "a result of `mlperf-hpc evaluate`",
    "benchmark kind overrides ranks": "the plan of a run (run.json)",
    "scaling_factor": "the scaling factor of a result (scaling.json)",
    "bs hyperparams": "a table of reference convergence points",
    "cells cell_type": "a notebook of Jupyter",
    "num_accelerators": _STORAGE_SUMMARY,
    "train_au_mean_percentage": _STORAGE_SUMMARY,
    "system_name": SYSTEM,
    "host_processors_per_node": SYSTEM,
    "accelerators_per_node": SYSTEM,
}
"""Names of members that the first bytes of a JSON object have, in lower case, and what it is."""


def find_kind(head: bytes) -> FileKind | None:
    """Return what a file with these first bytes is, None if it may be any text."""
    head = head[:HEAD_BYTES]
    for start, begin, pattern, name, fix in _BINARY:
        if head.startswith(begin, start) and re.search(pattern, head, re.DOTALL):
            return FileKind(name, fix, True)
    if head[4:8] == bytes(4) and _mask_crc(head[:8]) == head[8:12]:
        return FileKind(TFRECORD, "", True)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    for pattern, name, fix in _TEXT:
        if re.match(pattern, text, re.DOTALL | re.IGNORECASE):
            return FileKind(name, fix)
    return _find_json(text.lower()) if re.match(rb'\{\s*"', text) else None


def _find_json(text: bytes) -> FileKind:
    """Return what kind of JSON object a text begins, in lower case."""
    members = {name.decode("latin-1") for name in re.findall(rb'"([^"\\]{1,40})"\s*:', text)}
    for names, name in _JSON.items():
        if members.issuperset(names.split()):
            return FileKind(name, _STORAGE if name == _STORAGE_SUMMARY else "")
    return FileKind(JSON)


def _mask_crc(data: bytes) -> bytes:
    """Return the CRC-32C of a few bytes as TFRecord stores it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def explain_kind(head: bytes, expected: str, *others: str) -> str:
    """Return what a file with these first bytes is, with its fix; "" if they do not tell, or tell what was expected.

    expected: the name of the kind, also for the text. others: names of kinds that are right, too.
    """
    kind = find_kind(head)
    if kind is None or kind.name in (expected, *others) or (kind.name == JSON and expected in _JSON.values()):
        return ""
    return f"this is {kind.name}, not {expected}" + (f". {kind.fix}" if kind.fix else "")


def explain_file(path: str | os.PathLike[str], expected: str, *others: str) -> str:
    """Return the same of a file; "" if it cannot be read."""
    return explain_kind(ANYWHERE.begin(path, HEAD_BYTES), expected, *others)
