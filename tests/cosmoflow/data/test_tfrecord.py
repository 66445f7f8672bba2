"""The record format: what is written, what other writers may write, and what damage leads to."""

import gzip
import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmoflow.data import tfrecord
from cosmoflow.data.tfrecord import RecordError, Sample, _read_record, encode_sample, read_sample, write_sample

SHAPE = (4, 4, 4, 4)
X = np.random.default_rng(0).poisson(1.0, SHAPE).astype(np.int16)
Y = np.array([0.25, -0.5, 1.0, -1.0], np.float32)
X_BYTES, Y_BYTES = X.tobytes(), struct.pack("<4f", *Y)


def decode_sample(data, into, verify_crc=False):
    return _read_record(io.BytesIO(data), "record", into, verify_crc)


def crc32c(data):
    """Castagnoli's CRC, bit by bit: polynomial 0x1EDC6F41, reflected."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % 2**32)


def framed(payload):
    length = struct.pack("<Q", len(payload))
    return length + masked(length) + payload + masked(payload)


def field(number, contents, wire=2):
    size, head = len(contents), bytes([number << 3 | wire])
    if wire != 2:
        return head + contents
    low = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])  # enough for these tests
    return head + low + contents


def entry(key, feature):
    return field(1, field(1, key) + field(2, feature))


X_ENTRY = entry(b"x", field(1, field(1, X_BYTES)))
Y_ENTRY = entry(b"y", field(2, field(1, Y_BYTES)))
Y_UNPACKED = entry(b"y", field(2, b"".join(field(1, Y_BYTES[i : i + 4], wire=5) for i in range(0, 16, 4))))
INTEGERS = entry(b"seed", field(3, field(1, b"\x07\x83\x01")))
UNKNOWN_FIELDS = (
    field(9, b"\x85\x01", wire=0) + field(10, bytes(8), wire=1) + field(11, bytes(4), wire=5) + field(12, b"abc")
)


def assert_sample(sample):
    assert np.array_equal(sample.x, X) and sample.x.dtype == np.int16
    assert np.array_equal(sample.y, Y) and sample.y.dtype == np.float32


def test_the_crc_of_the_tests_is_castagnolis():
    assert crc32c(b"123456789") == 0xE3069283


def test_a_record_has_the_published_layout():
    assert encode_sample(X, Y) == framed(field(1, X_ENTRY + Y_ENTRY))


def test_a_published_size_of_record():
    x = np.zeros((128, 128, 128, 4), np.int16)
    x[0, 0, 0, 0] = 0x1234
    record = encode_sample(x, Y)
    assert len(record) == 16_777_287 and struct.unpack_from("<Q", record) == (16_777_271,)
    assert record.index(b"\x34\x12") == 40
    assert np.array_equal(decode_sample(record, Sample.empty(x.shape), verify_crc=True).x, x)


@pytest.mark.parametrize("options", [{"compress": False}, {}, {"level": 6}], ids=str)
def test_a_written_sample_is_read_back(tmp_path, options):
    path = tmp_path / "a.any name"  # compression is told by the contents
    write_sample(path, X, Y, **options)
    assert_sample(read_sample(path, Sample.empty(SHAPE), verify_crc=True))
    first = path.read_bytes()
    assert (first[:2] == b"\x1f\x8b") == options.get("compress", True)
    write_sample(path, X, Y, **options)
    assert path.read_bytes() == first
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "payload",
    [
        field(1, Y_ENTRY + X_ENTRY),
        field(1, X_ENTRY + Y_UNPACKED),
        field(1, INTEGERS + X_ENTRY + entry(b"name", field(1, field(1, b"univ"))) + Y_ENTRY + INTEGERS),
        field(1, entry(b"a very long name" * 50, field(1, b"")) + X_ENTRY + Y_ENTRY),
        UNKNOWN_FIELDS + field(1, UNKNOWN_FIELDS + X_ENTRY + Y_ENTRY) + UNKNOWN_FIELDS,
    ],
    ids=["y first", "unpacked", "other features", "long name", "unknown fields"],
)
def test_what_other_writers_may_write_is_read(payload):
    assert_sample(decode_sample(framed(payload), Sample.empty(SHAPE), verify_crc=True))


def test_without_isal_the_standard_library_does(monkeypatch, tmp_path):
    monkeypatch.setattr(tfrecord, "igzip", gzip)
    monkeypatch.setattr(tfrecord, "isal_zlib", zlib)
    write_sample(tmp_path / "a", X, Y)
    data = (tmp_path / "a").read_bytes()
    assert_sample(decode_sample(data, Sample.empty(SHAPE)))
    for damaged in (data[:-9], data[:30] + bytes(10) + data[40:]):
        with pytest.raises(RecordError, match=r"gzip data are (damaged|cut off)"):
            decode_sample(damaged, Sample.empty(SHAPE))


def test_several_gzip_members_are_one_file():
    record = encode_sample(X, Y)
    assert_sample(decode_sample(gzip.compress(record[:99]) + gzip.compress(record[99:]), Sample.empty(SHAPE)))


GOOD = encode_sample(X, Y)
PACKED = gzip.compress(GOOD)
TOO_SHORT = framed(field(1, entry(b"x", field(1, field(1, X_BYTES[:-2]))) + Y_ENTRY))
OF_3 = framed(field(1, entry(b"x", field(1, field(1, X_BYTES[: 27 * 8]))) + Y_ENTRY))
FLOATS = framed(field(1, entry(b"x", field(2, field(1, bytes(64)))) + Y_ENTRY))
HUGE = struct.pack("<Q", 2**60)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "byte 0: the file is empty"),
        (GOOD[:9], "byte 9: the file ends in the middle"),
        (GOOD[:300], "byte 300: the file ends in the middle"),
        (GOOD[:-1], "the file ends in the middle of the record; copy, fetch or make it again"),
        (b"\x00" + GOOD[1:], "not a TFRecord: the CRC of its length"),
        (b"<html>Not Found</html>", "this is a web page (perhaps of a login), not a TFRecord file"),
        (GOOD + GOOD, "one record per file"),
        (PACKED[:-9], "gzip data are cut off"),
        (PACKED[:-6] + bytes(6), "gzip data are damaged"),
        (framed(field(1, Y_ENTRY)), "no feature 'x'"),
        (framed(field(1, X_ENTRY)), "no feature 'y'"),
        (framed(b""), "no feature 'x' or 'y'"),
        (FLOATS, "list of floats, a format of early 2020"),
        (TOO_SHORT, "'x' has 510 bytes; data.sample_shape is 4 × 4 × 4 × 4, that is 512 bytes"),
        (OF_3, "; set 'data.sample_shape=[3, 3, 3, 4]'"),
        (framed(field(1, entry(b"x", field(1, 2 * field(1, X_BYTES))) + Y_ENTRY)), "'x' has a second string"),
        (framed(field(1, X_ENTRY + entry(b"y", field(2, field(1, Y_BYTES[:12]))))), "'y' has 3 values"),
        (framed(field(1, X_ENTRY + entry(b"y", field(2, field(1, Y_BYTES + Y_BYTES))))), "more than 4 values"),
        (framed(field(1, X_ENTRY + Y_ENTRY)[:-3]), "bytes in a message with"),
        (framed(b"\x0b\x00"), "wire type 3"),
        (framed(b"\xff" * 12), "more than ten bytes"),
        (HUGE + masked(HUGE) + b"\x12" + b"\xff" * 7 + b"\x07" + bytes(100), "ends in the middle"),
    ],
)
def test_damage_is_named_with_file_and_place(tmp_path, data, message):
    path = tmp_path / "univ_a1_000.tfrecord"
    path.write_bytes(data)
    with pytest.raises(RecordError, match=r"univ_a1_000.tfrecord, byte \d+: ") as raised:
        read_sample(path, Sample.empty(SHAPE))
    assert message in str(raised.value)


def test_the_crc_of_the_payload_is_compared_on_demand():
    changed = bytearray(GOOD)
    changed[100] ^= 1
    decode_sample(bytes(changed), Sample.empty(SHAPE))
    with pytest.raises(RecordError, match="CRC of the payload"):
        decode_sample(bytes(changed), Sample.empty(SHAPE), verify_crc=True)


@settings(max_examples=300)
@given(
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 620), st.binary(min_size=1, max_size=9)), max_size=4),
    st.integers(0, 640),
)
def test_any_damage_is_a_record_error(packed, frame_again, changes, length):
    data = bytearray(GOOD[12:-4] if frame_again else GOOD)
    for place, change in changes:
        data[place : place + len(change)] = change
    data = framed(bytes(data[:length])) if frame_again else bytes(data[:length])
    if packed:
        data = gzip.compress(data, 1)
    try:
        decode_sample(data, Sample.empty(SHAPE), verify_crc=True)
    except RecordError:
        return
    if not changes:
        assert_sample(decode_sample(data, Sample.empty(SHAPE)))


@settings(max_examples=200)
@given(st.integers(0, len(PACKED)), st.binary(min_size=1, max_size=6))
def test_damaged_gzip_data_are_a_record_error(place, change):
    data = PACKED[:place] + change + PACKED[place + len(change) :]
    if data == PACKED:
        return
    try:
        sample = decode_sample(data, Sample.empty(SHAPE), verify_crc=True)
    except RecordError:
        return
    assert_sample(sample)  # such as another time in gzip's header


def test_memory_does_not_follow_the_numbers_in_a_file():
    claims = HUGE + masked(HUGE) + b"\x12\xff\xff\xff\xff\xff\xff\xff\x07"
    bomb = gzip.compress(claims + bytes(50_000_000), 6)
    tracemalloc.start()
    try:
        with pytest.raises(RecordError, match="middle"):
            decode_sample(bomb, Sample.empty(SHAPE))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_what_is_no_sample_is_not_written(tmp_path):
    for x, y in ((X.astype(np.float32), Y), (X[0], Y), (X, Y[:3]), (X, Y.astype(np.float64))):
        with pytest.raises(ValueError, match="expected"):
            write_sample(tmp_path / "a.tfrecord", x, y)
    assert not list(tmp_path.iterdir())


def test_a_view_is_written_as_what_it_shows():
    whole = np.arange(8 * 4 * 4 * 8, dtype=np.int16).reshape(8, 4, 4, 8)
    view = whole[::2, :, ::-1, 4:]
    assert np.array_equal(decode_sample(encode_sample(view, Y), Sample.empty(view.shape)).x, view)
