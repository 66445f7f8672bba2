"""Published frames: LMDB files whose values are pickled graphs of torch-geometric, of old and new versions.

    *.lmdb                keys "0", "1", ... in decimal, from 0 in each file, and "length", a pickled int
    value                 a pickle of torch_geometric.data.data.Data: before version 2 with its fields as `__dict__`
                          ("pyg1", as published), since then as `_store._mapping` ("pyg2")

torch-geometric is not needed: pickles are read as data (oc20/data/pickles.py) and written opcode by opcode.

    cell float32 (1, 3, 3)         pos, force float32 (N, 3)        edge_index int64 (2, E): sources, centres
    natoms, sid, fid int           atomic_numbers float32 (N,)      cell_offsets int64 (E, 3)
    y float: energy                fixed float32 (N,), tags int64 (N,)

Other writers store single numbers as tensors of shape (1,), which are read too.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from common.data.build import BadItemError
from common.file_kind import PICKLE, find_kind
from common.files import whole_file
from oc20.data.lmdb_file import LmdbFile
from oc20.data.pickles import (
    NAMES,
    PickleError,
    RecordedCall,
    array_of,
    encode_name,
    encode_plain,
    encode_tensor,
    load_pickle,
)
from oc20.graphs import Frame

PATTERN: Final = "*.lmdb"
"""Of the names of such files, as the reference reads them, in their order; here they are data.0000.lmdb and so on."""
Layout = Literal["pyg1", "pyg2"]
DATA: Final = "torch_geometric.data.data.Data"
STORE: Final = "torch_geometric.data.storage.GlobalStorage"
EMPTY: Final = ("x", "edge_attr", "normal", "face")
"""Fields without a value that all objects of old versions have."""
LENGTH: Final = b"length"
MOST_BYTES: Final = 16 * 2**20
"""The largest size of a record: 40 times that of a large one."""
MOST_ATOMS: Final = 2**15 - 1
ELEMENTS: Final = 94
PER_COMMIT: Final = 256
AGAIN: Final = "fetch the file again, or make it again without this frame"
FORM: Final = {
    "numbers": (np.uint8, ("N",)),
    "pos": (np.float32, ("N", 3)),
    "cell": (np.float32, (3, 3)),
    "tags": (np.int8, ("N",)),
    "fixed": (np.bool_, ("N",)),
    "force": (np.float32, ("N", 3)),
    "edges": (np.int32, ("E", 2)),
    "offsets": (np.int8, ("E", 3)),
}
"""Types and shapes of a frame's arrays."""


class FrameError(BadItemError):
    """A frame is damaged, incomplete or invalid; the message says where, what was expected and how to fix it."""


def check_frame(frame: Frame) -> None:
    """Raise FrameError unless the frame is valid: types, shapes, indices, at least one atom, unique edges, no NaN.

    Atoms without neighbours are right, and so is a frame without any edge.
    """
    atoms, edges = len(frame.numbers), len(frame.edges)
    if not 1 <= atoms <= MOST_ATOMS:
        raise FrameError(f"{atoms} atoms; expected 1 to {MOST_ATOMS:,}: {AGAIN}")
    sizes = {"N": atoms, "E": edges}
    for key, (dtype, shape) in FORM.items():
        array, wanted = getattr(frame, key), tuple(sizes.get(str(length), length) for length in shape)
        if array.dtype != dtype or array.shape != wanted:
            raise FrameError(
                f"{key} is {array.dtype} {array.shape}; expected {np.dtype(dtype)} {wanted}, for {atoms} "
                f"atoms and {edges} edges: {AGAIN}"
            )
    for key in ("pos", "cell", "force", "energy"):
        if not np.isfinite(getattr(frame, key)).all():
            raise FrameError(f"{key} has values that are NaN or infinite: {AGAIN}")
    if frame.numbers.min() < 1 or frame.numbers.max() > ELEMENTS:
        raise FrameError(f"an atomic number is not in 1 to {ELEMENTS}: {AGAIN}")
    if edges and not 0 <= frame.edges.min() <= frame.edges.max() < atoms:
        raise FrameError(f"an edge refers to an atom beyond the {atoms} of the frame: {AGAIN}")
    if (np.diff(frame.edges[:, 1]) < 0).any():
        raise FrameError("the edges are not grouped by centre: sort them by their second column")
    atoms_E = frame.edges.astype(np.int64) @ [1 << 16, 1]
    which_E = (atoms_E << 24) + (frame.offsets.astype(np.int64) + 128) @ [1 << 16, 1 << 8, 1]
    which_E.sort()
    if (which_E[1:] == which_E[:-1]).any():
        raise FrameError(f"an edge is repeated: {AGAIN}")


# -- reading -------------------------------------------------------------------------------------------------


class LmdbShard:
    """The frames of an LMDB file, for several threads; LmdbError or FrameError if it is invalid or damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = LmdbFile(path)
        length = self._file.read_value(LENGTH)
        if length is None:
            raise FrameError(f"{path} has no key `length`{_explain_no_length(self._file)}")
        try:
            self._length, _ = load_pickle(length, NAMES.__contains__)
        except PickleError as error:
            raise FrameError(f"{path}, key length: {error}") from error
        if type(self._length) is not int or self._length < 0:
            found = type(self._length).__name__
            raise FrameError(f"{path}, key length: expected a number, found a {found}; make it again")

    def __len__(self) -> int:
        return self._length

    def read_frame(self, index: int) -> Frame:
        """Return a frame; LmdbError or FrameError with file and key if it is damaged, OSError if unreadable."""
        data = self._file.read_value(b"%d" % index)
        if data is None:
            raise FrameError(f"{self.path} has no key {index}, but a length of {self._length:,}; make it again")
        try:
            return decode_frame(data)
        except (PickleError, FrameError) as error:
            raise FrameError(f"{self.path}, key {index}: {error}") from error


def _explain_no_length(file: LmdbFile) -> str:
    """Return why a file lacks this key, after its name: it is another project's, or writing it was interrupted."""
    interrupted = ": writing it was interrupted; make it again"
    key, value = file.read_first()
    if value is None:
        return interrupted
    try:
        _read_fields(value)
    except (FrameError, PickleError):
        return (
            f"; it has {file.entries:,} keys such as {key[:40].decode('latin-1')!a}, "
            f"{_describe_value(value)}: written by another project, not by Open Catalyst's tools. Write its frames as "
            "extxyz, and convert these by `python -m oc20.prepare`"
        )
    return interrupted


def _describe_value(value: bytes) -> str:
    kind = find_kind(value)
    if kind is None or kind.name != PICKLE:
        return f"the first value is {kind.name if kind else 'no pickle'}"
    try:
        content, _ = load_pickle(value[:MOST_BYTES], lambda name: True)  # read as data, whatever it names
    except PickleError:
        return "pickles"
    if type(content) is RecordedCall:
        return f"pickled objects of {content.name!a}"
    names = f" ({', '.join(map(ascii, list(content)[:3]))[:80]} …)" if type(content) is dict else ""
    return f"pickled {'dictionaries' if names else 'values'}{names}"


def decode_frame(data: bytes) -> Frame:
    """Return the frame of a pickled record; PickleError or FrameError, without its place, if it is invalid."""
    fields = _read_fields(data)
    edges = _read_as(fields, "edge_index", 2, np.int32).T
    images = _read_as(fields, "cell_offsets", 2, np.int8)
    if edges.shape == (len(images), 2) and (np.diff(edges[:, 1]) < 0).any():
        order = np.argsort(edges[:, 1], kind="stable")
        edges, images = edges[order], images[order]
    frame = Frame(
        numbers=_read_as(fields, "atomic_numbers", 1, np.uint8),
        pos=_read_as(fields, "pos", 2, np.float32),
        cell=_read_as(fields, "cell", 3, np.float32).reshape(-1, 3),
        tags=_read_as(fields, "tags", 1, np.int8),
        fixed=_read_as(fields, "fixed", 1, np.bool_),
        force=_read_as(fields, "force", 2, np.float32),
        energy=float(_read_array(fields, "y", 0)),
        edges=np.ascontiguousarray(edges),
        offsets=images,
        sid=_read_integer(fields, "sid"),
        fid=_read_integer(fields, "fid"),
    )
    atoms = _read_integer(fields, "natoms")
    if atoms != len(frame.numbers):
        raise FrameError(f"natoms is {atoms}, but there are {len(frame.numbers)} atomic numbers: {AGAIN}")
    check_frame(frame)
    return frame


def _read_fields(data: bytes) -> Mapping[str, Any]:
    """Return the fields of a pickled graph; arrays as records of how they are made."""
    if len(data) > MOST_BYTES:
        raise FrameError(f"a record of {len(data):,} bytes; expected at most {MOST_BYTES:,}")
    graph, _ = load_pickle(data, lambda name: name in NAMES or name.startswith("torch_geometric."))
    fields = graph.state if type(graph) is RecordedCall and graph.name == DATA else None
    if type(fields) is dict and "_store" in fields:
        store = fields["_store"].state if type(fields["_store"]) is RecordedCall else None
        fields = store.get("_mapping") if type(store) is dict else None
    if type(fields) is not dict:
        raise FrameError(f"expected a pickled {DATA}; fetch the file again, or make it again")
    return fields


def _read_array(fields: Mapping[str, Any], key: str, axes: int) -> np.ndarray:
    """Return a field as in the file; a number has no axes. FrameError or PickleError if it is invalid or missing."""
    value = fields.get(key)
    if value is None:
        edges = "preprocess the data with --get-edges, or " if key in ("edge_index", "cell_offsets") else ""
        raise FrameError(f"`{key}` is missing: {edges}make the data again by `python -m oc20.prepare`")
    if type(value) is not RecordedCall:
        if type(value) not in (int, float) or abs(value) >= 2**63:
            raise FrameError(f"`{key}` is a {type(value).__name__}; expected numbers: {AGAIN}")
        return np.asarray(value)
    try:
        array = array_of(value)
    except PickleError as error:
        raise PickleError(f"`{key}`: {error}") from error
    if axes == 0 and array.shape == (1,):  # as other writers store single numbers
        array = array[0]
    if array.ndim != axes:
        raise FrameError(f"`{key}` has the shape {array.shape}; expected {axes} axes: {AGAIN}")
    return array


def _read_as(fields: Mapping[str, Any], key: str, axes: int, dtype: type[np.generic]) -> np.ndarray:
    """Return a copy in another type; FrameError if that changes a value other than by rounding to float32."""
    array = _read_array(fields, key, axes)
    with np.errstate(invalid="ignore"):
        cast = array.astype(dtype)
    if dtype != np.float32 and not np.array_equal(cast, array):
        raise FrameError(f"`{key}` has values that are not {np.dtype(dtype)}: {AGAIN}")
    return cast


def _read_integer(fields: Mapping[str, Any], key: str) -> int:
    return int(_read_as(fields, key, 0, np.int64))


# -- writing -------------------------------------------------------------------------------------------------


def write_frames(path: Path, frames: Iterable[Frame], layout: Layout = "pyg1") -> int:
    """Write the frames to a file, whole or not at all; return their number. FrameError for an invalid frame."""
    import lmdb  # needed only to make data

    count, rest = 0, iter(frames)
    with whole_file(path) as part:
        # map_size: address space, not memory.
        file = lmdb.open(str(part), subdir=False, map_size=2**40, lock=False, sync=False)
        try:
            while some := list(islice(rest, PER_COMMIT)):
                with file.begin(write=True) as transaction:
                    for frame in some:
                        try:
                            transaction.put(b"%d" % count, encode_frame(frame, layout))
                        except FrameError as error:
                            raise FrameError(f"{path}, key {count}: {error}") from error
                        count += 1
            with file.begin(write=True) as transaction:
                transaction.put(LENGTH, pickle.dumps(count, 4))
            file.sync(True)
        finally:
            file.close()
    return count


def encode_frame(frame: Frame, layout: Layout = "pyg1") -> bytes:
    """Return the record of a frame, which torch-geometric can unpickle; FrameError for an invalid frame."""
    check_frame(frame)
    fields = {
        "cell": encode_tensor(frame.cell[None]),
        "pos": encode_tensor(frame.pos),
        "atomic_numbers": encode_tensor(frame.numbers.astype(np.float32)),
        "natoms": encode_plain(len(frame.numbers)),
        "tags": encode_tensor(frame.tags.astype(np.int64)),
        "edge_index": encode_tensor(np.ascontiguousarray(frame.edges.T, np.int64)),
        "cell_offsets": encode_tensor(frame.offsets.astype(np.int64)),
        "y": encode_plain(float(frame.energy)),
        "force": encode_tensor(frame.force),
        "fixed": encode_tensor(frame.fixed.astype(np.float32)),
        "sid": encode_plain(frame.sid),
        "fid": encode_plain(frame.fid),
    }
    if layout == "pyg1":
        graph = _encode_object(DATA, dict.fromkeys(EMPTY, encode_plain(None)) | fields)
    else:
        # The store refers to its graph, by a memo that `plain` does not use. New versions also keep two
        # classes in the graph, which some versions lack and none needs for this.
        remember, recall = b"q\xff", b"h\xff"
        store = _encode_object(STORE, {"_mapping": _encode_dict(fields), "_parent": recall})
        graph = _encode_object(DATA, {"_store": store}, remember)
    return b"\x80\x03" + graph + b"."


def _encode_object(name: str, state: Mapping[str, bytes], remember: bytes = b"") -> bytes:
    """Return the opcodes that push an object of a class and set its state."""
    return encode_name(name) + b")\x81" + remember + _encode_dict(state) + b"b"


def _encode_dict(items: Mapping[str, bytes]) -> bytes:
    """Return the opcodes that push a dict."""
    return b"}(" + b"".join(encode_plain(key) + value for key, value in items.items()) + b"u"
