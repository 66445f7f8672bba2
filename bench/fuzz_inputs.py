"""Make inputs for `bench/fuzz.py`: valid logs and submission folders, with random damage."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.benchmarks import PACKAGES
from compliance.benchmarks import REFERENCES
from compliance.logs.log import TOKEN
from compliance.samples.log import SampleLog
from compliance.samples.package import SYSTEM, SamplePackage

WORDS = (
    "",
    "closed",
    "open",
    "Closed ",
    "cosmoflow",
    "deepcam",
    "success",
    "aborted",
    "mini",
    "1",
    "-1",
    "NaN",
    "1e999",
)
TEXTS = (
    "é",
    "\ud800",
    "\0",
    "\x1b[31m",
    "</a>&<![CDATA[]]>",
    "a\nb\r\nc",
    "::error::x",
    "|`*_",
    "../../etc/passwd",
    "x" * 5000,
)
NUMBERS = (0, 1, -1, 2**63, -(2**70), 10**400, 0.0, -0.0, 0.5, 1e308, 5e-324, float("nan"), float("inf"), -float("inf"))


def value(rng: random.Random, depth: int = 0) -> Any:
    """Return any JSON value, odd ones most of all."""
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind < 2:
        return rng.choice(NUMBERS)
    if kind < 4:
        return rng.choice(WORDS + TEXTS)
    if kind < 6:
        return rng.choice((None, True, False, rng.randrange(2000), rng.random()))
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        return {str(rng.choice(WORDS + TEXTS)): value(rng, depth + 1) for _ in range(rng.randrange(4))}
    deep: Any = 0
    for _ in range(rng.choice((50, 900, 3000))):
        deep = [deep]
    return deep


def text_of(found: Any) -> str:
    """Return a value as JSON, however deep it is nested."""
    try:
        return json.dumps(found)
    except RecursionError:
        return "[" * 3000 + "]" * 3000


# -- logs ----------------------------------------------------------------------------------------------------


def sample(rng: random.Random) -> SampleLog:
    """Return a log, valid or with a few records changed."""
    benchmark = rng.choice(list(REFERENCES))
    rounds = REFERENCES[benchmark].rounds
    log = SampleLog(
        benchmark, rng.choice(rounds), rng.choice(("closed", "open")), rng.randrange(3), rng.choice((None, 1, 3))
    )
    if rng.random() < 0.3:
        log.by_suite()
        _change_provenance(rng, log.records_of("provenance")[0]["value"])
    if rng.random() < 0.5:
        log.add("number_of_ranks", 64).steps().learning_rate(0.001).throughput()
    for _ in range(rng.choice((0, 1, 1, 2, 5, 30))):
        rng.choice(RECORD_CHANGES)(rng, log.records)
        if not log.records:
            break
    return log


def _change_provenance(rng: random.Random, provenance: dict[str, Any]) -> None:
    """Change a few values, at any depth, of what a log of this suite says of itself."""
    for _ in range(rng.choice((0, 1, 3))):
        branch = provenance
        while isinstance(inner := branch[name := rng.choice(sorted(branch))], dict) and inner and rng.random() < 0.8:
            branch = inner
        branch[name] = value(rng)


def _set_member(rng: random.Random, records: list[dict[str, Any]]) -> None:
    rng.choice(records)[rng.choice(("time_ms", "key", "value", "metadata", "value", "namespace"))] = value(rng)


def _set_metadata(rng: random.Random, records: list[dict[str, Any]]) -> None:
    record = rng.choice(records)
    names = ("epoch_num", "status", "first_epoch_num", "epoch_count", "file", "lineno", "step_num", "step")
    if isinstance(record.get("metadata"), dict):
        record["metadata"][rng.choice(names)] = value(rng)


def _drop_member(rng: random.Random, records: list[dict[str, Any]]) -> None:
    record = rng.choice(records)
    record.pop(rng.choice([*record] or [""]), None)


def _move(rng: random.Random, records: list[dict[str, Any]]) -> None:
    records.insert(rng.randrange(len(records)), records.pop(rng.randrange(len(records))))


def _repeat(rng: random.Random, records: list[dict[str, Any]]) -> None:
    for _ in range(rng.choice((1, 1, 3, 150))):
        records.insert(rng.randrange(len(records) + 1), dict(rng.choice(records)))


def _rename(rng: random.Random, records: list[dict[str, Any]]) -> None:
    keys = (
        "run_start",
        "run_stop",
        "epoch_start",
        "block_start",
        "block_stop",
        "staging_start",
        "staging_stop",
        "seed",
    )
    rng.choice(records)["key"] = rng.choice(keys)


RECORD_CHANGES: tuple[Callable[[random.Random, list[dict[str, Any]]], None], ...] = (
    _set_member,
    _set_member,
    _set_metadata,
    _set_metadata,
    _drop_member,
    lambda rng, records: records.pop(rng.randrange(len(records))) and None,
    _move,
    _repeat,
    _rename,
)


def log_bytes(rng: random.Random) -> bytes:
    """Return the bytes of a log, damaged in none to several ways."""
    lines = [TOKEN + text_of(record).encode("utf-8", "surrogatepass") for record in sample(rng).records]
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = rng.randrange(len(lines) + 1)
        lines.insert(at, rng.choice((b"", b"loss 0.1", TOKEN, TOKEN + b"[]", b"rank 3: " + TOKEN + b"{}", b"\xff" * 9)))
    if rng.random() < 0.2:
        lines = [rng.choice((b"0: ", b"", b"[node1] ", TOKEN)) + line for line in lines]
    ends = rng.choice(((b"\n",), (b"\r\n",), (b"\r",), (b"\n", b"\r", b"\r\n", b"", b"\n\n")))
    data = b"".join(line + rng.choice(ends) for line in lines)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 8))):
        data = rng.choice(BYTE_CHANGES)(rng, data)
    return data


def _piece(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 2, 10, 300, 5000)))


def _flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 5, 100)) if data else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(rng: random.Random, data: bytes) -> bytes:
    start, stop = _piece(rng, data)
    return data[:start] + data[stop:]


def _double(rng: random.Random, data: bytes) -> bytes:
    start, stop = _piece(rng, data)
    return data[:stop] + data[start:stop] * rng.choice((1, 1, 2, 50)) + data[stop:]


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    odd = (
        b"\0",
        b"\0" * 5000,
        b"\xff\xfe",
        b"\xc3",
        b"\n",
        b"\r",
        TOKEN,
        b'"',
        b"{",
        b"[" * 3000,
        b"x" * 600_000,
        b'"a":1,',
    )
    return data[:at] + rng.choice(odd) + data[at:]


def _replace(rng: random.Random, data: bytes) -> bytes:
    pairs = (
        (b'": ', b'"  :\t'),
        (b'"value"', b'"v\\u0061lue"'),
        (b'"value": ', b'"value": 1, "value": '),
        (b"}", b"} "),
    )
    pairs += ((b"0.", b"NaN"), (b"1", b"9" * 400), (b"null", b"nul"), (b'"', b"'"), (b'"time_ms": ', b'"time_ms": -'))
    old, new = rng.choice(pairs)
    return data.replace(old, new, rng.choice((1, 3, -1)))


def _squeeze(rng: random.Random, data: bytes) -> bytes:
    packed = gzip.compress(data, mtime=0)
    ways = (packed, packed[: len(packed) // 2], packed + b"\0" * 100, packed * 2, packed + b"rest", _flip(rng, packed))
    return rng.choice(ways)


BYTE_CHANGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flip,
    _cut,
    _double,
    _insert,
    _insert,
    _replace,
    _replace,
    lambda rng, data: data[: rng.randrange(len(data) + 1)],
    lambda rng, data: b"\xef\xbb\xbf" + data,
    lambda rng, data: data.decode("latin-1").encode(rng.choice(("utf-16", "utf-16-le", "utf-32"))),
    _squeeze,
)


# -- packages ------------------------------------------------------------------------------------------------


def write_package(rng: random.Random, folder: Path) -> None:
    """Write a submission folder, damaged in none to several ways; no link leads out of the given folder."""
    benchmark = rng.choice(PACKAGES)
    round_, scaling = rng.choice(REFERENCES[benchmark].rounds), rng.choice(("strong", "weak"))
    package = SamplePackage(benchmark, round_, rng.choice(("closed", "open")), scaling=scaling)
    if package.scaling == "weak" and rng.random() < 0.5:
        package.with_time_to_train().prune(2)
    root = folder / "input/below" / rng.choice(("University", "v1.0/University", "hpc_results_v2.0/A B"))
    package.write(root)
    for _ in range(rng.choice((0, 1, 2, 5, 20))):
        paths = sorted(path for path in root.rglob("*"))
        if paths:
            rng.choice(TREE_CHANGES)(rng, rng.choice(paths))


def _odd_name(rng: random.Random) -> str:
    names = (
        "result_1.txt",
        "result_x.txt.gz",
        ".hidden",
        "a b",
        "strong",
        "weak",
        "results",
        "systems",
        "pruned_results",
    )
    odd = (
        f"{SYSTEM}.json",
        "cosmoflow",
        "new\nline",
        "\udcff.txt",
        "<b>&.txt",
        "x" * 200,
        "scaling.json",
        "benchmarks",
    )
    return rng.choice(names + odd + ("package_checker_params", "v1.0", "result_１.txt", "result_" + "9" * 100 + ".txt"))


def _rename_path(rng: random.Random, path: Path) -> None:
    target = path.with_name(_odd_name(rng))
    if not target.exists() and not target.is_symlink():
        path.rename(target)


def _remove(rng: random.Random, path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _write(rng: random.Random, path: Path) -> None:
    place = path / _odd_name(rng) if path.is_dir() else path
    if place.is_dir() or place.is_symlink():
        return
    fields = dict.fromkeys(("submitter", "division", "status", "number_of_nodes", "accelerators_per_node"), value(rng))
    rcp = b"rcp-bypass" + rng.choice((b"", b"\n", b"\nseed-checker-bypass"))
    choices = (b"", b"{}", b'{"scaling_factor": 1.1}', rcp, text_of(value(rng)).encode("utf-8", "replace"), b"\xff\xfe")
    place.write_bytes(
        rng.choice((*choices, text_of(fields).encode("utf-8", "replace"), log_bytes(rng), log_bytes(rng)))
    )


def _link(rng: random.Random, path: Path) -> None:
    place = (path if path.is_dir() else path.parent) / _odd_name(rng)
    if not place.exists() and not place.is_symlink():
        place.symlink_to(rng.choice((".", "..", "../..", "nowhere", place.name, str(path))))


def _make_folder(rng: random.Random, path: Path) -> None:
    place = (path if path.is_dir() else path.parent) / _odd_name(rng)
    if not place.exists() and not place.is_symlink():
        place.mkdir()


def _forbid(rng: random.Random, path: Path) -> None:
    if not path.is_symlink():
        path.chmod(rng.choice((0o000, 0o500, 0o400)))


TREE_CHANGES: tuple[Callable[[random.Random, Path], None], ...] = (
    _rename_path,
    _remove,
    _write,
    _write,
    _link,
    _make_folder,
    _forbid,
)
