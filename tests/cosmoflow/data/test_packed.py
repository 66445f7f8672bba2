"""Packed samples: whatever counts there are come back, and whatever a file has instead is told."""

import hashlib
import struct

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmoflow.data import packed
from cosmoflow.data.packed import COUNT_AT, HEAD, encode_sample, file_room, read_file, read_sample
from cosmoflow.data.sample_files import SampleFormat
from cosmoflow.data.tfrecord import RecordError, Sample
from cosmoflow.settings import DataConfig

Y = np.array([-1, 0.25, 1 - 2**-24, 0], np.float32)
SHAPE = (3, 5, 7, 4)
RNG = np.random.default_rng(3)
X = RNG.poisson(1, SHAPE).astype(np.int16)
X[0, 0, :, 0] = -(2**15), -1, 14, 15, 16, 255, 2**15 - 1
GOOD = encode_sample(X, Y)
"""420 counts in 106 words, with five exceptions."""
WORDS = HEAD.size + 2 * 106


def read_bytes(path, data, shape=SHAPE, **options):
    path.write_bytes(data)
    return read_sample(path, Sample.empty(shape), **options)


def with_crc(data):
    """Return a file with the CRC that its bytes have."""
    head = data[: HEAD.size - 4]
    return head + struct.pack("<I", crc32c(data[HEAD.size :], crc32c(head))) + data[HEAD.size :]


def test_the_layout_is_the_documented_one():
    magic, version, *shape, exceptions, labels, digest, _ = HEAD.unpack(GOOD[: HEAD.size])
    assert (magic, version, tuple(shape), exceptions) == (b"CFPACK\0\0", 1, SHAPE, 5)
    assert labels == Y.tobytes() and digest == hashlib.sha256(X.tobytes() + labels).digest()
    words = struct.unpack("<106H", GOOD[HEAD.size : WORDS])
    counts = [words[i % 106] >> 4 * (i // 106) & 15 for i in range(X.size)]
    positions, values = struct.unpack("<5I", GOOD[WORDS : WORDS + 20]), struct.unpack("<5h", GOOD[WORDS + 20 :])
    for position, value in zip(positions, values, strict=True):
        counts[position] = value
    assert counts == X.ravel().tolist() and not any(words[i % 106] >> 4 * (i // 106) for i in range(X.size, 4 * 106))


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), SHAPE, (64, 65, 66, 4)], ids=str)
@pytest.mark.parametrize("kind", ["few", "none", "all"])
def test_all_counts_come_back(tmp_path, shape, kind):
    x = RNG.poisson(1, shape).astype(np.int16) % 16
    if kind != "none":
        chosen = RNG.random(shape) < (0.01 if kind == "few" else 1)
        x[chosen] = RNG.integers(16, 2**16 - 1, chosen.sum()).astype(np.uint16).view(np.int16)
    SampleFormat("packed", gzip=False).write_sample(tmp_path / "s", x, Y)
    found = read_sample(tmp_path / "s.packed", Sample.empty(shape), verify=True)
    assert np.array_equal(found.x, x) and np.array_equal(found.y, Y)
    if kind != "all" and x.size > 1000:
        assert 3.5 * (tmp_path / "s.packed").stat().st_size < x.nbytes


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "byte 0: expected the head of a packed sample; copy"),
        (GOOD[:50], "byte 0: expected the head of a packed sample; copy"),
        (b"<html>Not Found</html>", "byte 0: this is a web page"),
        (b"\x93NUMPY" + bytes(200), "byte 0: this is a numpy array"),
        (GOOD[:8] + b"\2" + GOOD[9:], "byte 8: version 2; expected 1"),
        (GOOD[:12] + b"\4" + GOOD[13:], "byte 28: 5 exceptions among 560 counts: 338 bytes; expected 406; copy"),
        (
            encode_sample(X.reshape(5, 3, 7, 4), Y),
            r"byte 12: a sample of \[5, 3, 7, 4\]; data.sample_shape is \[3, 5, 7, 4\]; set",
        ),
        (GOOD[:-1], "byte 28: 5 exceptions among 420 counts: 337 bytes; expected 338; copy"),
        (GOOD + b"\0", "byte 28: 5 exceptions among 420 counts: 339 bytes"),
        (GOOD[:COUNT_AT] + b"\xff" * 4 + GOOD[COUNT_AT + 4 :], "byte 28: 4,294,967,295 exceptions among 420 counts"),
        (GOOD[:100] + b"\xff" + GOOD[101:], "byte 92: the CRC is wrong"),
        (GOOD[:84] + b"\1" + GOOD[85:], "byte 92: the CRC is wrong"),
        (
            with_crc(GOOD[:WORDS] + struct.pack("<I", 420) + GOOD[WORDS + 4 :]),
            "byte 28: 5 exceptions among 420 counts: their positions do not ascend, up to 419 at most",
        ),
    ],
)
def test_damage_is_named_with_file_place_and_fix(tmp_path, data, message):
    with pytest.raises(RecordError, match=rf"univ_a1.packed, {message}"):
        read_bytes(tmp_path / "univ_a1.packed", data)


def test_more_exceptions_than_counts_are_refused_though_the_file_has_them(tmp_path):
    head = GOOD[:COUNT_AT] + struct.pack("<I", 421) + GOOD[COUNT_AT + 4 : HEAD.size]
    with pytest.raises(RecordError, match="421 exceptions among 420 counts"):
        read_bytes(tmp_path / "s.packed", head + bytes(packed.file_size(420, 421) - HEAD.size))


def test_other_counts_than_those_that_were_packed_are_found_on_demand(tmp_path):
    changed = with_crc(GOOD[:98] + bytes([GOOD[98] ^ 1]) + GOOD[99:])  # of the second word
    assert not np.array_equal(read_bytes(tmp_path / "s.packed", changed).x, X)
    with pytest.raises(RecordError, match="SHA-256 differs"):
        read_bytes(tmp_path / "s.packed", changed, verify=True)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOOD)), st.binary(min_size=1, max_size=9)), max_size=3), st.booleans())
def test_any_damage_is_a_record_error(tmp_path_factory, changes, crc_too):
    data = bytearray(GOOD)
    for place, change in changes:
        data[place : place + len(change)] = change
    data = with_crc(bytes(data)) if crc_too else bytes(data)
    try:
        found = read_bytes(tmp_path_factory.getbasetemp() / "damaged.packed", data, verify=True)
    except RecordError:
        assert data != GOOD
    else:
        assert np.array_equal(found.x, X)


def test_a_device_gets_the_whole_file_if_there_is_room(tmp_path):
    (tmp_path / "s.packed").write_bytes(GOOD)
    memory = np.full(file_room(X.size), 255, np.uint8)
    read_file(tmp_path / "s.packed", SHAPE, memory)
    assert memory[: len(GOOD)].tobytes() == GOOD and len(memory) % 16 == 0
    with pytest.raises(RecordError, match=r"too many to be decoded on the device; use data\.format=npy"):
        read_file(tmp_path / "s.packed", SHAPE, memory[: len(GOOD) - 1])


def test_what_reads_no_packed_samples_refuses_them(tmp_path):
    with pytest.raises(ValueError, match="dali, which reads no packed samples; set pipeline=native"):
        DataConfig(tmp_path, format="packed", pipeline="dali")
    with pytest.raises(ValueError, match="packed ones are always compared"):
        DataConfig(tmp_path, format="packed", verify_crc=True)
