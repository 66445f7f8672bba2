"""Read pickles as data, without calling anything that they name.

The reader is Python's own, limited to the opcodes that Python writes for data with protocols 2 to 5. Where a pickle
asks for an object or a call, it records the name (`Name`) or the call (`RecordedCall`), and accepts only listed names.
Protocol 2 has no opcode for bytes: Python writes a text and a call that encodes it, which becomes bytes here.

It is the reader in Python because the one in C can neither leave out opcodes nor check the objects that they change.

Arrays in pickles: torch tensors, which contain files of torch.save, and arrays of numpy.

They are read as views of the pickle's bytes, and cannot have more elements than bytes. A tensor is

    torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)
    storage: torch.storage._load_from_bytes(file)
    file: the pickles of a magic number, version and machine, of a reference to the storage, and of the list of all
        storages, here one; then its int64 number of elements, and these, little-endian.

Sources: torch.serialization (`_legacy_save`), numpy's reduce functions.

"""

from __future__ import annotations

import io
import math
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

PERSISTENT: Final = "persistent id"
"""Name of an object outside of the pickle; its only argument is the reference to it."""
ENCODE: Final = "_codecs.encode"
NO_BYTES: Final = "__builtin__.bytes"
"""What protocol 2 names for bytes, and for empty ones."""
MOST_CHARACTERS: Final = 200
"""Of a name: an opcode of one byte can join two long texts to one, again and again."""
OPCODES: Final = frozenset(b"\x80\x95.N\x88\x89KMJG\x8aX\x8c\x8dCB\x8e\x96(t)\x85\x86\x87]ae}suqr\x94hjc\x93QR\x81b")


class PickleError(ValueError):
    """Bytes are not a pickle, or one that asks for something that is not allowed."""


class Name(str):
    """The full name of a class or a function, such as collections.OrderedDict, without the object."""

    __slots__ = ()


@dataclass(slots=True, eq=False, repr=False)
class RecordedCall:
    """An object that the pickle would make by calling `name` with `args`, and then set to `state`."""

    name: Name
    args: tuple[Any, ...]
    state: Any = None


def load_pickle(data: bytes, allowed: Callable[[str], bool], start: int = 0) -> tuple[Any, int]:
    """Return the content of the pickle that starts at byte `start`, and the offset after it.

    allowed: tells whether a name may occur. The content consists of None, bool, int, float, str, bytes, bytearray,
    tuple, list, dict with keys of type str, Name and RecordedCall. Time and memory are proportional to the pickle's
    length, and there are no side effects. Raises PickleError.
    """
    file = io.BytesIO(data)
    file.seek(start)
    try:
        return _Reader(file, allowed, len(data)).load(), file.tell()
    except PickleError:
        raise
    except KeyError as error:  # the opcode
        raise PickleError(
            f"not a pickle of data with protocol 2 to 5: unexpected {error} before byte {file.tell()} of {len(data)}"
        ) from error
    except (pickle.UnpicklingError, EOFError, IndexError, struct.error, ValueError) as error:
        raise PickleError(f"not a complete pickle: invalid at byte {file.tell()} of {len(data)}") from error
    except (AttributeError, TypeError) as error:  # of an object that is not a list or a dict
        raise PickleError(f"byte {file.tell() - 1} changes an object of another kind") from error


class _Reader(pickle._Unpickler):
    """A reader of one pickle. bytes_left: the most that its texts can stand for.

    self is Any where it is used as the reader in Python, since type checkers know the one in C alone.
    """

    dispatch: ClassVar[dict[int, Any]] = {
        code: load for code, load in pickle._Unpickler.dispatch.items() if code in OPCODES
    }

    def __init__(self, file: io.BytesIO, allowed: Callable[[str], bool], bytes_left: int) -> None:
        super().__init__(file)
        self.allowed, self.bytes_left = allowed, bytes_left

    def find_class(self, module: str, name: str) -> Name:
        full = Name(f"{module}.{name}")
        if full not in (ENCODE, NO_BYTES) and not (len(full) <= MOST_CHARACTERS and self.allowed(full)):
            raise PickleError(
                f"it asks for {str(full)[:80]!r}, which a record of data does not need: do not trust its source"
            )
        return full

    def persistent_load(self, pid: Any) -> RecordedCall:
        return RecordedCall(Name(PERSISTENT), (pid,))

    def load_reduce(self: Any) -> None:
        """Record a call instead of making it."""
        args, name = self.stack.pop(), self.stack.pop()
        if type(name) is not Name or type(args) is not tuple:
            raise PickleError("it calls an object without a name")
        self.append(self.decode_bytes(name, args) if name in (ENCODE, NO_BYTES) else RecordedCall(name, args))

    def decode_bytes(self, name: Name, args: tuple[Any, ...]) -> bytes:
        """Return the bytes that protocol 2 writes as a text with a character for each."""
        if name == NO_BYTES and args == ():
            return b""
        if name != ENCODE or len(args) != 2 or type(args[0]) is not str or args[1] != "latin1":
            raise PickleError(f"it calls {name} for something else than bytes: do not trust its source")
        self.bytes_left -= len(args[0])
        if self.bytes_left < 0:
            raise PickleError("it makes more bytes than it has: do not trust its source")
        try:
            return args[0].encode("latin-1")
        except UnicodeEncodeError as error:
            raise PickleError(f"a text that does not stand for bytes: {error.reason}") from error

    def load_build(self: Any) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) is not RecordedCall:
            raise PickleError("it changes an object that no call makes")
        self.stack[-1].state = state

    def load_setitem(self: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.put_items([key, value])

    def load_setitems(self: Any) -> None:
        self.put_items(self.pop_mark())

    def put_items(self: Any, items: list[Any]) -> None:
        """Put keys and values into a dict; a key that is no text may be too deep to compare."""
        if not all(type(key) is str for key in items[::2]):
            raise PickleError("it gives a dict keys that are not text")
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def load_bytearray8(self: Any) -> None:
        self.load_binbytes8()  # which takes no memory for bytes that do not follow
        self.stack[-1] = bytearray(self.stack[-1])

    dispatch |= {
        pickle.REDUCE[0]: load_reduce,
        pickle.NEWOBJ[0]: load_reduce,
        pickle.BUILD[0]: load_build,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.BYTEARRAY8[0]: load_bytearray8,
    }


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
    return np.dtype(call.args[0]).newbyteorder("<")


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
    location = b"".join(map(encode_plain, ("0", "cpu", array.size, None)))
    reference = encode_plain("storage") + encode_name(kind) + location
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
