"""Published records: read and written without torch-geometric, without a call to what they name, wrong ones refused."""

import contextlib
import os
import pickle
import random
import re
import struct
import sys
import types
import weakref
from collections import OrderedDict
from dataclasses import replace

import lmdb
import numpy as np
import pytest
import torch

from oc20.data import records
from oc20.data.lmdb_file import LmdbError, LmdbFile
from oc20.data.pickles import PickleError, encode_tensor
from oc20.data.records import FrameError, LmdbShard
from tests.oc20.conftest import find_differences

# -- torch-geometric, as far as its pickles show it ------------------------------------------------------------


class Data:
    """As before version 2: the fields are attributes."""

    def __init__(self, **given):
        self.__dict__ |= dict.fromkeys(("x", "edge_index", "edge_attr", "y", "pos", "normal", "face")) | given

    __module__ = "torch_geometric.data.data"


class GlobalStorage:
    """The fields and a reference to the graph."""

    __module__ = "torch_geometric.data.storage"

    def __getstate__(self):
        return self.__dict__ | {"_parent": self._parent()}

    def __setstate__(self, state):
        self.__dict__ |= state | {"_parent": weakref.ref(state["_parent"])}


class NewData:
    """Since version 2: the fields are in a store, which has a reference to the graph."""

    __module__, __qualname__ = "torch_geometric.data.data", "Data"

    def __init__(self, **given):
        store = GlobalStorage()
        store.__dict__ |= {"_mapping": given, "_parent": weakref.ref(self)}
        self.__dict__ |= {"_edge_attr_cls": GlobalStorage, "_store": store}


@pytest.fixture(params=["pyg1", "pyg2"])
def geometric(request, monkeypatch):
    """Put the class Data of a version where pickle finds it; return it."""
    data = Data if request.param == "pyg1" else NewData
    modules = {"": {}, ".data": {}, ".data.data": {"Data": data}, ".data.storage": {"GlobalStorage": GlobalStorage}}
    for last, classes in modules.items():
        module = types.ModuleType(f"torch_geometric{last}")
        module.__dict__.update(classes)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return data


def published(frame):
    """Return the fields of a frame as the published preprocessing makes them."""
    return {
        "cell": torch.tensor(frame.cell)[None],
        "pos": torch.tensor(frame.pos),
        "atomic_numbers": torch.tensor(frame.numbers.astype(np.float32)),
        "natoms": len(frame.numbers),
        "tags": torch.tensor(frame.tags, dtype=torch.int64),
        "edge_index": torch.tensor(frame.edges.T, dtype=torch.int64),
        "cell_offsets": torch.tensor(frame.offsets, dtype=torch.int64),
        "y": frame.energy,
        "force": torch.tensor(frame.force),
        "fixed": torch.tensor(frame.fixed, dtype=torch.float32),
        "sid": frame.sid,
        "fid": frame.fid,
    }


def test_pickles_of_torch_geometric_are_read(slabs, geometric):
    for frame in slabs:
        assert not find_differences(
            records.decode_frame(pickle.dumps(geometric(**published(frame)), protocol=-1)), frame
        )


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_numbers_and_arrays_of_numpy_and_views_of_tensors_are_read(slabs, geometric, protocol):
    frame = slabs[0]
    odd = published(frame) | {
        "y": np.float64(frame.energy),
        "pos": frame.pos.astype(np.float64),
        "force": np.asfortranarray(frame.force),
        "tags": torch.tensor(np.stack([frame.tags, frame.tags]))[1],
        "cell_offsets": torch.tensor(np.ascontiguousarray(frame.offsets.T)).T,
        "fixed": torch.tensor(frame.fixed),
        "hooks": OrderedDict(),
    }
    assert not find_differences(records.decode_frame(pickle.dumps(geometric(**odd), protocol)), frame)


def test_numbers_may_be_tensors_of_one_element(slabs, geometric):
    frame = slabs[0]
    numbers = {"y": torch.tensor([frame.energy], dtype=torch.float64)}
    numbers |= {key: torch.tensor([value]) for key, value in published(frame).items() if type(value) is int}
    assert set(numbers) == {"y", "natoms", "sid", "fid"}
    assert not find_differences(
        records.decode_frame(pickle.dumps(geometric(**published(frame) | numbers), protocol=-1)), frame
    )


def test_torch_geometric_reads_what_is_written(slabs, geometric):
    layout = "pyg1" if geometric is Data else "pyg2"
    for frame in slabs:
        found = pickle.loads(records.encode_frame(frame, layout))
        assert type(found) is geometric
        expected, store = published(frame), found.__dict__
        if layout == "pyg2":
            assert found._store._parent() is found
            store = found._store._mapping
        assert set(store) == set(expected) | ({"x", "edge_attr", "normal", "face"} if layout == "pyg1" else set())
        for key, value in expected.items():
            if isinstance(value, torch.Tensor):
                assert store[key].dtype == value.dtype and torch.equal(store[key], value)
                assert store[key].is_contiguous() and not store[key].requires_grad
            else:
                assert type(store[key]) is type(value) and store[key] == value


def test_edges_come_grouped_by_centre(slabs, geometric):
    frame = slabs[1]
    order = np.random.default_rng(0).permutation(len(frame.edges))
    given = published(replace(frame, edges=frame.edges[order], offsets=frame.offsets[order]))
    found = records.decode_frame(pickle.dumps(geometric(**given), protocol=-1))
    assert (np.diff(found.edges[:, 1]) >= 0).all()
    rows = [sorted(map(tuple, np.hstack([some.edges, some.offsets]).tolist())) for some in (found, frame)]
    assert rows[0] == rows[1]


# -- hostile pickles -------------------------------------------------------------------------------------------


class Call:
    """What a pickle calls when it is loaded."""

    def __init__(self, function, *args):
        self.called = function, args

    def __reduce__(self):
        return self.called


def name(module, last):
    return f"c{module}\n{last}\n".encode()


def text(value):
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def encoded(value, how):
    """Return the opcodes by which protocol 2 pushes bytes."""
    return name("_codecs", "encode") + text(value) + text(how) + b"\x86R"


def graph(key, value):
    """Return a pickled graph with one field, given by the opcodes that push its value."""
    return b"\x80\x04" + name("torch_geometric.data.data", "Data") + b")\x81}" + text(key) + value + b"sb."


def hostile(mark):
    """Pickles that touch the file `mark`, or more, if they get what they ask for; and what must be said about them."""
    command = f"touch {mark}"
    shell = pickle.dumps(Call(os.system, command), 2)
    getting = Call(getattr, Call(__import__, "os"), "system")
    saved = name("torch.storage", "_load_from_bytes") + b"B" + struct.pack("<I", len(shell)) + shell + b"\x85R"
    ones = encode_tensor(np.ones(1, np.float32))
    return {
        "a shell": (shell, "posix.system"),
        "eval": (pickle.dumps(Call(eval, f"open({str(mark)!r}, 'w')")), "builtins.eval"),
        "a chain of getattr": (pickle.dumps(getting), "builtins.getattr"),
        "a field": (graph("edge_index", shell[2:-1]), "posix.system"),
        "a class of a storage": (
            graph("edge_index", ones.replace(b"torch\nFloatStorage", b"posixpath\nos.popen")),
            "`edge_index`.*posixpath.os.popen",
        ),
        "a file of torch.save": (
            graph("edge_index", name("torch._utils", "_rebuild_tensor_v2") + b"(" + saved + b"K\0))tR"),
            "`edge_index`: a tensor in an unknown format",
        ),
        "a method of a stub": (
            graph("__setstate__", name("os", "system"))[:-1] + text(command) + b"b.",
            "os.system",
        ),
        "an encoding that runs code": (graph("y", encoded("x", "hex")), "it calls _codecs.encode"),
        "a text beyond bytes": (graph("y", encoded("\u20ac", "latin1")), "does not stand for bytes"),
        "a call of text": (text("os.system") + text(command) + b"\x85R.", "calls an object without a name"),
        "a call in torch_geometric": (
            name("torch_geometric.data.makedirs", "os.system") + text(command) + b"\x85R.",
            "expected a pickled",
        ),
        "a change of a function": (name("torch._utils", "_rebuild_tensor_v2") + b"}b.", "changes an object"),
        "an element of a number": (b"K\1K\2a.", "changes an object of another kind"),
        "a name with dots": (text("torch._utils") + text("os.system") + b"\x93.", "torch._utils.os.system"),
        "a name that is none": (b"K\1K\2\x93.", "not a complete pickle"),
        "the same long name often": (
            text("torch_geometric." + "x" * 1000) + b"q\0" + b"h\0h\0\x93" * 1000 + b".",
            "asks for 'torch_geometric.x",
        ),
        "the same bytes often": (
            text("x" * 1000) + text("latin1") + b"\x86q\0" + (name("_codecs", "encode") + b"h\0R") * 1000 + b".",
            "more bytes than it has",
        ),
        "an extension": (b"\x82\1.", "unexpected 130"),
        "an instance of protocol 0": (b"(iposix\nsystem\n.", "unexpected 105"),
        "a memo of 32 GB": (b"Nr\xff\xff\xff\x7f.", "expected a pickled"),
        "an exabyte": (b"\x8e" + struct.pack("<Q", 2**60) + b".", "not a complete pickle"),
        "a giant of one number": (
            graph("edge_index", ones.replace(b"K\1\x85", b"J\0\0\0\x40\x85")),
            "1073741824 elements in 4",
        ),
        "what is before a tensor": (
            graph("edge_index", ones.replace(b"RK\0", b"RJ\xf0\xff\xff\xff")),
            "a damaged array",
        ),
        "a key too deep to compare": (b"})" + b"\x85" * 200_000 + b"Ns.", "keys that are not text"),
        "nothing": (b"", "not a complete pickle"),
        "too much": (b"N" * (2**24 + 1), "16,777,217 bytes; expected at most"),
    }


@pytest.mark.parametrize("case", hostile("x"))
def test_a_hostile_pickle_runs_nothing_and_is_named_with_file_key_and_what_it_asks_for(case, tmp_path):
    mark = tmp_path / "mark"
    data, expected = hostile(mark)[case]
    path = stored(tmp_path, {b"0": data, b"length": pickle.dumps(1)})
    with pytest.raises(FrameError, match=f"{re.escape(str(path))}, key 0: .*{expected}"):
        LmdbShard(path).read_frame(0)
    assert not mark.exists()


def test_the_length_may_be_hostile_too(tmp_path):
    for length, expected in ((pickle.dumps(Call(os.system, "x")), "posix.system"), (pickle.dumps("9"), "found a str")):
        with pytest.raises(FrameError, match=f"key length: .*{expected}"):
            LmdbShard(stored(tmp_path, {b"length": length}))


def test_damage_to_a_record_is_an_error_or_harmless(slabs):
    rng = random.Random(0)
    record = records.encode_frame(slabs[0], "pyg2")
    for _ in range(500):
        damaged = bytearray(record)
        for _ in range(rng.choice((1, 5))):
            place = rng.randrange(len(damaged))
            damaged[place : place + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        with contextlib.suppress(PickleError, FrameError):
            records.check_frame(records.decode_frame(bytes(damaged)))


# -- wrong frames ----------------------------------------------------------------------------------------------

NAN = float("nan")
WRONG = {
    "edge_index": (None, "`edge_index` is missing: preprocess the data with --get-edges.*oc20.prepare"),
    "tags": (None, "`tags` is missing"),
    "pos": (lambda pos: pos.fill_(NAN), "pos has values that are NaN or infinite"),
    "force": (lambda force: force[1:].fill_(float("inf")), r"force is float32 \(4, 3\); expected float32 \(5, 3\)"),
    "y": (NAN, "energy has values that are NaN"),
    "natoms": (6, "natoms is 6, but there are 5 atomic numbers"),
    "atomic_numbers": (lambda numbers: numbers.fill_(95), "an atomic number is not in 1 to 94"),
    "cell_offsets": (lambda offsets: offsets.fill_(128), "`cell_offsets` has values that are not int8"),
    "cell": (lambda cell: cell[0], r"`cell` has the shape \(3, 3\); expected 3 axes"),
    "sid": ("x", "`sid` is a str; expected numbers"),
    "fid": (2**70, "`fid` is a int; expected numbers"),
    "fixed": (lambda fixed: fixed + 0.5, "`fixed` has values that are not bool"),
}


@pytest.mark.parametrize("key", WRONG)
def test_a_wrong_field_is_named_with_file_and_key(key, slabs, geometric, tmp_path):
    change, expected = WRONG[key]
    given = published(slabs[0])
    given[key] = change(given[key]) if callable(change) else change
    path = stored(tmp_path, {b"0": pickle.dumps(geometric(**given), protocol=-1), b"length": pickle.dumps(1)})
    with pytest.raises(FrameError, match=f"{re.escape(str(path))}, key 0: {expected}"):
        LmdbShard(path).read_frame(0)


@pytest.mark.parametrize(
    "change, expected",
    [
        (lambda frame: {"force": frame.force * np.float32("nan")}, "force has values that are NaN"),
        (lambda frame: {"edges": frame.edges + np.int32(1)}, "an edge refers to an atom beyond the 13"),
        (lambda frame: {"edges": frame.edges[:-1]}, "offsets is int8 .*; expected int8"),
        (lambda frame: {"edges": frame.edges[::-1]}, "not grouped by centre"),
        (
            lambda frame: {"edges": frame.edges.repeat(2, axis=0), "offsets": frame.offsets.repeat(2, axis=0)},
            "an edge is repeated",
        ),
        (lambda frame: {"tags": frame.tags.astype(np.int64)}, "tags is int64"),
        (lambda frame: {"numbers": frame.numbers[:0]}, "0 atoms; expected 1 to 32,767"),
    ],
)
def test_an_impossible_frame_is_not_written(change, expected, slabs, tmp_path):
    path = tmp_path / "data.0000.lmdb"
    with pytest.raises(FrameError, match=f"{re.escape(str(path))}, key 1: .*{expected}"):
        records.write_frames(path, [slabs[0], replace(slabs[1], **change(slabs[1]))])
    assert not list(tmp_path.iterdir())


# -- files -----------------------------------------------------------------------------------------------------


def stored(folder, values):
    """Write an LMDB file with these values."""
    path = folder / "data.0000.lmdb"
    path.unlink(missing_ok=True)
    with (
        lmdb.open(str(path), subdir=False, lock=False, map_size=2**28) as file,
        file.begin(write=True) as transaction,
    ):
        for key, value in values.items():
            transaction.put(key, value)
    return path


@pytest.mark.parametrize("layout", ["pyg1", "pyg2"])
def test_files_hold_the_frames_in_order_and_nothing_else(layout, slabs, tmp_path):
    path = tmp_path / "data.0000.lmdb"
    assert records.write_frames(path, slabs * 40, layout) == 320
    shard = LmdbShard(path)
    assert len(shard) == 320 and list(tmp_path.iterdir()) == [path]
    for index in range(320):
        assert not find_differences(shard.read_frame(index), slabs[index % 8])
    with lmdb.open(str(path), subdir=False, lock=False, readonly=True) as file, file.begin() as transaction:
        assert {key for key, _ in transaction.cursor()} == {b"length", *(b"%d" % index for index in range(320))}
        assert pickle.loads(transaction.get(b"length")) == 320


@pytest.mark.parametrize("count, longest", [(0, 1), (1, 9000), (40, 10), (3000, 60), (300, 9000)])
def test_values_are_those_that_the_library_wrote(count, longest, tmp_path):
    rng = random.Random(count)
    values = {b"%d" % index: rng.randbytes(rng.randrange(longest)) for index in range(count)}
    file = LmdbFile(stored(tmp_path, values))
    assert all(file.read_value(key) == value for key, value in values.items())
    assert file.read_value(b"") is file.read_value(b"00") is file.read_value(b"x") is None


def test_a_damaged_file_is_an_error_with_its_name(slabs, tmp_path):
    path = tmp_path / "data.0000.lmdb"
    records.write_frames(path, slabs)
    whole = path.read_bytes()
    for damaged, expected in (
        (whole[:-4096], r"ends after [\d,]+ of [\d,]+ bytes; fetch it again"),
        (whole[:100], "ends after 100 bytes"),
        (b"", "ends after 0 bytes"),
        (b"\x89HDF\r\n\x1a\n" + bytes(len(whole)), "this is an HDF5 file, not an LMDB file"),
        (b"x" * len(whole), "not an LMDB file.*0x78787878; expected 0xbeefc0de"),
        (whole[:20] + b"\2" + whole[21:], "format 2.*expected format 1"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(LmdbError, match=f"{re.escape(str(path))}.*{expected}"):
            LmdbShard(path)
    path.write_bytes(whole[:8192] + bytes(len(whole) - 8192))
    with pytest.raises(LmdbError, match=r"damaged at page \d+; fetch it again"):
        LmdbShard(path)


def test_damage_to_pages_of_the_tree_is_an_error_or_harmless(tmp_path):
    path = stored(tmp_path, {b"%d" % index: bytes(30 + 60 * (index % 50)) for index in range(400)})
    whole, rng = path.read_bytes(), random.Random(0)
    tree = [at for at in range(8192, len(whole), 4096) if struct.unpack_from("<H", whole, at + 10)[0] in (1, 2)]
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(10):
            damaged[rng.choice(tree) + rng.randrange(4096)] = rng.randrange(256)
        path.write_bytes(damaged)
        try:
            file = LmdbFile(path)
            for index in range(0, 400, 7):
                file.read_value(b"%d" % index)
        except LmdbError as error:
            assert str(path) in str(error)


def test_files_that_were_not_finished_are_told(slabs, tmp_path):
    record = records.encode_frame(slabs[0])
    with pytest.raises(FrameError, match="has no key `length`: writing it was interrupted"):
        LmdbShard(stored(tmp_path, {b"0": record}))
    others = dict.fromkeys((b"%d" % index for index in range(300)), pickle.dumps({"pos": [0.0], "numbers": np.ones(2)}))
    with pytest.raises(
        FrameError, match=r"it has 300 keys such as '0', pickled dictionaries \('pos', .*another project"
    ):
        LmdbShard(stored(tmp_path, others))
    shard = LmdbShard(stored(tmp_path, {b"0": record, b"length": pickle.dumps(3)}))
    assert not find_differences(shard.read_frame(0), slabs[0])
    with pytest.raises(FrameError, match="has no key 2, but a length of 3; make it again"):
        shard.read_frame(2)
