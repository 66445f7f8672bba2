"""A byte per count: nothing is lost, on the host and as on a device; damage is found before it can do harm."""

import struct

import numpy as np
import pytest
import torch
from crc32c import crc32c

from common.datasets.build import BadItemError
from cosmoflow.data.narrow import Body, encode_sample, read_body, read_sample, write_sample
from cosmoflow.data.pipeline import widen_counts
from cosmoflow.data.tfrecord import RecordError, Sample

SHAPE = (8, 8, 9, 4)
"""2,304 counts, and room for 8 large ones."""
Y = np.array([0.25, -0.5, 1.0, -1.0], np.float32)


def counts(*large):
    """Return counts of which those at the places given are large or negative: pairs of place and value."""
    x = np.random.default_rng(len(large)).integers(0, 255, SHAPE, np.int16)
    for place, value in large:
        x.flat[place] = value
    return x


PLAIN = counts()
SAMPLES = {
    "none": PLAIN,
    "ends": counts((0, 255), (2303, 32767)),
    "negative": counts((7, -1), (8, -32768), (9, 254)),
    "full": counts(*((i * 5, 255 + i) for i in range(8))),
    "zeros": np.zeros(SHAPE, np.int16),
}


@pytest.fixture(params=SAMPLES)
def x(request):
    return SAMPLES[request.param]


def test_counts_and_labels_come_back(tmp_path, x):
    write_sample(tmp_path / "s.narrow", x, Y)
    found = read_sample(tmp_path / "s.narrow", Sample.empty(SHAPE), verify_crc=True)
    assert found.x.dtype == np.int16 and np.array_equal(found.x, x) and np.array_equal(found.y, Y)


def test_the_device_widens_a_batch_to_the_same_counts(tmp_path):
    bodies, labels = torch.empty((len(SAMPLES), Body(SHAPE).nbytes), dtype=torch.uint8), np.empty(4, np.float32)
    for body, x in zip(bodies.numpy(), SAMPLES.values(), strict=True):
        write_sample(tmp_path / "s.narrow", x, Y)
        read_body(tmp_path / "s.narrow", body, labels, Body(SHAPE))
        assert np.array_equal(labels, Y)
    found = widen_counts(bodies, Body(SHAPE))
    assert found.dtype == torch.int16 and np.array_equal(found.numpy(), np.stack(list(SAMPLES.values())))
    assert widen_counts(bodies[:0], Body(SHAPE)).shape == (0, *SHAPE)
    assert widen_counts(bodies.to("meta"), Body(SHAPE)).shape == found.shape  # no shape depends on the data


def test_the_file_is_as_described(x):
    data = encode_sample(x, Y)
    magic, version, *shape = struct.unpack_from("<8s5I", data)
    assert (magic, version, tuple(shape)) == (b"\x93COUNTS\n", 1, SHAPE)
    assert np.frombuffer(data, "<f4", 4, 28).tolist() == Y.tolist()
    assert struct.unpack_from("<II", data, 44) == (crc32c(data[64:]), crc32c(data[:48]))
    index, value = np.frombuffer(data, "<i4", 8, 64), np.frombuffer(data, "<i2", 8, 96)
    found = np.frombuffer(data, np.uint8, x.size, 112)
    assert len(data) == 112 + 2304 and np.array_equal(value, x.flat[index])
    large = np.flatnonzero((x < 0) | (x > 254))
    assert sorted(set(index)) == (list(large) or [0])
    assert (found[large] == 255).all() and np.array_equal(np.delete(found, large), np.delete(x, large))


def test_too_many_large_counts_are_refused(tmp_path):
    with pytest.raises(BadItemError, match=r"s.narrow: 9 counts are outside of 0 to 254.*room for 8.*tfrecord"):
        write_sample(tmp_path / "s.narrow", counts(*((i, 300) for i in range(9))), Y)
    assert not list(tmp_path.iterdir())


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "s.narrow"
    good = encode_sample(SAMPLES["ends"], Y)
    with_version = bytearray(good)
    with_version[8:12] = struct.pack("<I", 2)
    with_version[48:52] = struct.pack("<I", crc32c(bytes(with_version[:48])))

    def damaged(data, message, verify_crc=False, shape=SHAPE):
        path.write_bytes(data)
        with pytest.raises(RecordError, match=rf"s\.narrow: .*{message}"):
            read_sample(path, Sample.empty(shape), verify_crc)

    damaged(b"", "not a narrow sample")
    damaged(good[:60], "not a narrow sample")
    damaged(good[:-1], r"2415 bytes; expected 2416; fetch")
    damaged(good + b"\0", r"2417 bytes; expected 2416; fetch")
    damaged(bytes(with_version), "version 2 of the narrow format; this suite reads version 1")
    damaged(good, r"8 × 8 × 9 × 4; data.sample_shape is 8 × 8 × 8 × 4", shape=(8, 8, 8, 4))
    for byte in range(64):
        damaged(good[:byte] + bytes([good[byte] ^ 16]) + good[byte + 1 :], "")
    for entry in (b"\xff\xff\xff\xff", struct.pack("<i", 2304), b"\0\0\0\0"):
        damaged(good[:92] + entry + good[96:], "its places do not ascend")
    for byte in range(64, len(good), 7):
        damaged(good[:byte] + bytes([good[byte] ^ 1]) + good[byte + 1 :], "", verify_crc=True)
