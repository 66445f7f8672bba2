"""Published records: read and written without torch-geometric, without a call to what they name, wrong ones refused."""

import builtins
import os
import pickle
import random
import re
import struct
import sys
import types
import weakref
from collections import OrderedDict
from dataclasses import fields, replace

import lmdb
import numpy as np
import pytest
import torch

from oc20 import records
from oc20.graphs import Frame
from oc20.lmdbfile import LmdbError, LmdbFile
from oc20.pickles import PickleError
from oc20.records import RecordError, Shard
from oc20.tensors import tensor


def assert_same(found, expected):
    for field in fields(Frame):
        ours, given = (np.asarray(getattr(frame, field.name)) for frame in (found, expected))
        assert ours.dtype == given.dtype and np.array_equal(ours, given), field.name


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
    """The class Data of a version, where pickle finds it."""
    data = Data if request.param == "pyg1" else NewData
    for name, classes in (("data", {"Data": data}), ("storage", {"GlobalStorage": GlobalStorage})):
        module = types.ModuleType(f"torch_geometric.data.{name}")
        module.__dict__.update(classes)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return data


def published(frame):
    """The fields of a frame as the published preprocessing makes them."""
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
        assert_same(records.decode(pickle.dumps(geometric(**published(frame)), protocol=-1)), frame)


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
    assert_same(records.decode(pickle.dumps(geometric(**odd), protocol)), frame)


def test_torch_geometric_reads_what_is_written(slabs, geometric):
    layout = "pyg1" if geometric is Data else "pyg2"
    for frame in slabs:
        found = pickle.loads(records.encode(frame, layout))
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
    found = records.decode(pickle.dumps(geometric(**given), protocol=-1))
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


def named(module, name):
    return f"c{module}\n{name}\n".encode()


GRAPH = b"\x80\x04" + named("torch_geometric.data.data", "Data") + b")\x81"
STORAGE = named("torch._utils", "_rebuild_tensor_v2") + b"(" + named("torch.storage", "_load_from_bytes")


def hostile(mark):
    """Pickles that touch the file `mark` when they get what they ask for, and what must be said about them."""
    command = f"touch {mark}"
    shell = pickle.dumps(Call(os.system, command))
    inside = tensor(np.zeros(3, np.float32)).replace(b"ctorch\nFloatStorage\n", named("os", "system"))
    text = b"X" + struct.pack("<I", len(command)) + command.encode()
    return {
        "a shell": (shell, "posix.system"),
        "eval": (pickle.dumps(Call(eval, f"open({str(mark)!r}, 'w')")), "builtins.eval"),
        "a chain of getattr": (pickle.dumps(Call(getattr, Call(__import__, "os"), "system")), "builtins.getattr"),
        "a field": (pickle.dumps(Data(pos=Call(os.system, command))).replace(b"posix", b"posix"), "posix.system"),
        "in a tensor": (GRAPH + b"}X\3\0\0\0pos" + inside + b"sb.", "`pos`.*os.system"),
        "in a file of torch.save": (
            GRAPH + b"}X\3\0\0\0pos" + STORAGE + b"B" + struct.pack("<I", len(shell)) + shell + b"\x85RK\0))tRsb.",
            "`pos`: a tensor in an unknown format",
        ),
        "a method of a stub": (
            GRAPH + b"}X\x0c\0\0\0__setstate__" + named("os", "system") + b"sb" + text + b"b.",
            "os.system",
        ),
        "a call of a stub's class": (GRAPH + b"(" + text + b"tR.", "no name"),
        "a stub that calls": (b"\x80\x04" + named("torch_geometric.os", "system") + b"(" + text + b"tR.", "expected a"),
        "a changed name": (b"\x80\x04" + named("torch._utils", "_rebuild_tensor_v2") + b"}b.", "changes something"),
        "names with dots": (b"\x80\x04X\1\0\0\0aX\3\0\0\0b.c\x93.", "a.b.c"),
        "names that are none": (b"\x80\x04K\1K\2\x93.", "asks for ''"),
        "an extension": (b"\x80\x04\x82\1.", "unexpected 130"),
        "an instance of protocol 0": (b"(iposix\nsystem\n.", "unexpected 105"),
        "a memo of 32 GB": (b"\x80\x04Nr\xff\xff\xff\x7f.", "expected a pickled"),
        "an exabyte of bytes": (b"\x80\x04\x8e" + struct.pack("<Q", 2**60) + b".", "no whole pickle"),
        "a giant from one number": (
            GRAPH + b"}X\3\0\0\0pos" + tensor(np.zeros(1, np.float32)).replace(b"K\1\x85", b"J\0\0\0\x40\x85") + b"sb.",
            "1073741824 elements in 4 bytes",
        ),
        "numbers before a tensor": (
            GRAPH + b"}X\3\0\0\0pos" + tensor(np.zeros(1, np.float32)).replace(b"RK\0", b"RJ\xf0\xff\xff\xff") + b"sb.",
            "a damaged array",
        ),
        "keys too deep to compare": (b"\x80\x04}" + b")" + b"\x85" * 200_000 + b"Ns.", "keys that are no text"),
        "nothing": (b"", "no whole pickle"),
        "too much": (b"\x80\x04(" + b"N" * 2**24 + b"t.", "16,777,2.. bytes; expected at most"),
    }


@pytest.mark.parametrize("case", hostile("x"))
def test_a_hostile_pickle_runs_nothing_and_is_named_with_file_key_and_what_it_asks_for(case, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric.data.data", types.SimpleNamespace(Data=Data))
    mark = tmp_path / "mark"
    data, expected = hostile(mark)[case]
    path = stored(tmp_path, {b"0": data, b"length": pickle.dumps(1)})
    for forbidden in ("eval", "exec", "__import__"):
        monkeypatch.delattr(builtins, forbidden, raising=False) if forbidden != "__import__" else None
    with pytest.raises(RecordError, match=f"{re.escape(str(path))}, key 0: .*{expected}"):
        Shard(path).read(0)
    assert not mark.exists()
