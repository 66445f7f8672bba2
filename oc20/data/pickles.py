"""Read pickles as data, without calling anything that they name.

The reader is Python's own, limited to the opcodes that Python writes for data with protocols 2 to 5. Where a pickle
asks for an object or a call, it records the name (`Name`) or the call (`RecordedCall`), and accepts only listed names.
Protocol 2 has no opcode for bytes: Python writes a text and a call that encodes it, which becomes bytes here.

It is the reader in Python because the one in C can neither leave out opcodes nor check the objects that they change.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

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
