"""Arrays in pickles: torch tensors, which contain files of torch.save, and arrays of numpy.

They are read as views of the pickle's bytes, and cannot have more elements than bytes. A tensor is

    torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)
    storage: torch.storage._load_from_bytes(file)
    file: the pickles of a magic number, version and machine, of a reference to the storage, and of the list of all
        storages, here one; then its int64 number of elements, and these, little-endian.

Sources: torch.serialization (`_legacy_save`), numpy's reduce functions.
"""

from __future__ import annotations

import math
import pickle
import struct
from typing import Any, Final

import numpy as np

from oc20.data.pickles import PERSISTENT, Name, PickleError, RecordedCall, load_pickle

TENSOR: Final = "torch._utils._rebuild_tensor_v2"
STORAGE: Final = "torch.storage._load_from_bytes"
HOOKS: Final = "collections.OrderedDict"
DTYPE: Final = "numpy.dtype"
ARRAY, BUFFER, SCALAR = (
    (f"numpy.core.{name}", f"numpy._core.{name}")  # before and since numpy 2
    for name in ("multiarray._reconstruct", "numeric._frombuffer", "multiarray.scalar")
)
DTYPES: Final = frozenset(("f4", "f8", "i8", "i4", "i2", "i1", "u1", "b1"))
MOST_AXES: Final = 8
STORAGES: Final = {
    "torch.FloatStorage": np.dtype("<f4"),
    "torch.DoubleStorage": np.dtype("<f8"),
    "torch.LongStorage": np.dtype("<i8"),
    "torch.IntStorage": np.dtype("<i4"),
    "torch.ShortStorage": np.dtype("<i2"),
    "torch.CharStorage": np.dtype("i1"),
    "torch.ByteStorage": np.dtype("u1"),
    "torch.BoolStorage": np.dtype("?"),
}
NAMES: Final = frozenset((TENSOR, STORAGE, HOOKS, DTYPE, "numpy.ndarray", *ARRAY, *BUFFER, *SCALAR))
"""The names that may occur in the pickle of an array."""
SAVED: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + b"\x80\x02M\xe9\x03."
"""The start of files of torch.save: the pickles of magic number and version."""
MACHINE: Final = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


def array_of(call: RecordedCall) -> np.ndarray:
    """Return the array that a pickle describes: of numbers or bool, possibly read-only; a scalar has the shape ().

    Raises PickleError for anything else.
    """
    try:
        if call.name == TENSOR:
            return _build_tensor(*call.args[:4])
        if call.name in BUFFER:
            buffer, dtype, shape, order = call.args
            return _build_array(buffer, dtype, shape, order == "F")
        if call.name in SCALAR:
            dtype, buffer = call.args
            return _build_array(buffer, dtype, ())
        if call.name in ARRAY:
            _, shape, dtype, by_columns, buffer = call.state
            return _build_array(buffer, dtype, shape, by_columns)
    except PickleError:
        raise
    except (TypeError, ValueError, IndexError, struct.error, OverflowError) as error:
        raise PickleError(f"a damaged array: {error}") from error
    raise PickleError(f"{str(call.name)!r} where an array was expected")


def _build_tensor(storage: Any, offset: Any, size: Any, stride: Any) -> np.ndarray:
    if type(storage) is not RecordedCall or storage.name != STORAGE:
        raise PickleError("a tensor without its bytes")
    (saved,) = storage.args
    if type(saved) is not bytes or not saved.startswith(SAVED):
        raise PickleError("a tensor in an unknown format: expected what torch pickles with pickle.dumps")
    machine, at = load_pickle(saved, _allow_nothing, len(SAVED))
    reference, at = load_pickle(saved, STORAGES.__contains__, at)
    _, at = load_pickle(saved, _allow_nothing, at)
    if type(machine) is not dict or machine.get("little_endian") is not True:
        raise PickleError("a tensor with another byte order")
    if type(reference) is not RecordedCall or reference.name != PERSISTENT:
        raise PickleError("a tensor without a storage")
    _, kind, _, _, count, view = reference.args[0]
    (stored,) = struct.unpack_from("<q", saved, at)
    values = memoryview(saved)[at + 8 :]
    if type(kind) is not Name or view is not None:
        raise PickleError("a tensor with a view of a storage")
    dtype = STORAGES[kind]
    if stored != count or len(values) != stored * dtype.itemsize:
        raise PickleError(f"a tensor of {stored} elements with {len(values)} bytes")
    strides = tuple(step * dtype.itemsize for step in stride)
    return _view_bytes(values, dtype, size, offset * dtype.itemsize, strides)


def _build_array(buffer: Any, dtype: Any, shape: Any, by_columns: Any = False) -> np.ndarray:
    if by_columns:
        return _view_bytes(buffer, _read_dtype(dtype), shape[::-1]).T
    return _view_bytes(buffer, _read_dtype(dtype), shape)


def _view_bytes(buffer: Any, dtype: np.dtype, shape: Any, offset: int = 0, strides: Any = None) -> np.ndarray:
    """Return the bytes as an array; ValueError for elements outside of them."""
    if type(shape) is not tuple or len(shape) > MOST_AXES or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("an invalid shape")
    if math.prod(shape) * dtype.itemsize > len(buffer):  # such as one number repeated by a stride of 0
        raise ValueError(f"{math.prod(shape)} elements in {len(buffer)} bytes")
    return np.ndarray(shape, dtype, buffer, offset, strides)


def _read_dtype(call: Any) -> np.dtype:
    is_dtype = type(call) is RecordedCall and call.name == DTYPE and type(call.args[0]) is str
    if not is_dtype or call.args[0] not in DTYPES:
        raise PickleError("an array of elements other than numbers")
    if call.state[1] == ">":
        raise PickleError("an array with another byte order")
    dtype: np.dtype = np.dtype(call.args[0]).newbyteorder("<")
    return dtype


def _allow_nothing(_: str) -> bool:
    return False


# -- writing -------------------------------------------------------------------------------------------------


def encode_plain(value: Any) -> bytes:
    """Return the opcodes that push a number, a text, None, or a tuple of these; they use the first memos."""
    return pickle.dumps(value, 2)[2:-1]


def encode_name(name: str) -> bytes:
    """Return the opcodes that push the object of this full name."""
    module, _, last = name.rpartition(".")
    return f"c{module}\n{last}\n".encode()


def encode_tensor(array: np.ndarray) -> bytes:
    """Return the opcodes that push an array, of float32 or int64, as a torch tensor: for protocol 3 or higher."""
    kind = {dtype: name for name, dtype in STORAGES.items()}[array.dtype]
    place = b"".join(map(encode_plain, ("0", "cpu", array.size, None)))
    reference = encode_plain("storage") + encode_name(kind) + place
    saved = b"".join(
        (
            SAVED,
            pickle.dumps(MACHINE, 2),
            b"\x80\x02(" + reference + b"tQ.",
            pickle.dumps(["0"], 2),
            struct.pack("<q", array.size),
            array.tobytes(),
        )
    )
    stride = tuple(math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim))
    storage = encode_name(STORAGE) + struct.pack("<cI", b"B", len(saved)) + saved + b"\x85R"
    rest = b"".join(map(encode_plain, (0, array.shape, stride, False))) + encode_name(HOOKS) + b")R"
    return encode_name(TENSOR) + b"(" + storage + rest + b"tR"
