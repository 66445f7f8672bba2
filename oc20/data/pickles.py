"""Read pickles as data, without calling anything that they name.

A pickle is a program for a stack machine. The machine here has no instruction that imports or calls: if a pickle asks
for a call, it records (`RecordedCall`) the function and its arguments. It knows the opcodes that Python writes for data
with protocols 2 to 5, and accepts only listed names. Protocol 2 has no opcode for bytes: Python writes a text and a
call that encodes it, which becomes bytes here.

Source: the opcodes' documentation in Python's pickletools.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

PERSISTENT: Final = "persistent id"
"""Name of an object outside of the pickle; its only argument is the reference to it."""
ENCODE: Final = "_codecs.encode"
NO_BYTES: Final = "__builtin__.bytes"
"""What protocol 2 names for bytes, and for empty ones."""


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
    machine = _Machine(data, allowed, start)
    try:
        while (code := data[machine.at]) != _STOP:
            machine.at += 1
            _OPCODES[code](machine)
        return machine.pop(), machine.at + 1
    except KeyError as error:  # the opcode, or the index of a memo
        raise PickleError(
            f"not a pickle of data with protocol 2 to 5: unexpected {error} before byte {machine.at} of {len(data)}"
        ) from error
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise PickleError(f"not a complete pickle: invalid at byte {machine.at} of {len(data)}") from error


class _Machine:
    """A machine that runs a pickle. at: the next byte. marks: heights of the stack."""

    __slots__ = ("allowed", "at", "data", "marks", "memo", "stack")

    def __init__(self, data: bytes, allowed: Callable[[str], bool], start: int) -> None:
        self.data, self.allowed, self.at = data, allowed, start
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    # -- bytes -----------------------------------------------------------------------------------------------

    def take_bytes(self, count: int) -> bytes:
        begin = self.at
        self.at += count
        if self.at > len(self.data):
            raise IndexError(self.at)
        return self.data[begin : self.at]

    def take_number(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def take_line(self) -> str:
        end = self.data.find(b"\n", self.at)
        text = self.take_bytes((len(self.data) if end < 0 else end) - self.at).decode()
        self.take_bytes(1)
        return text

    # -- stack -----------------------------------------------------------------------------------------------

    def pop(self) -> Any:
        return self.stack.pop()

    def pop_some(self, count: int) -> tuple[Any, ...]:
        if len(self.stack) < count:
            raise IndexError(count)
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        return items

    def pop_to_mark(self) -> list[Any]:
        height = self.marks.pop()
        items = self.stack[height:]
        del self.stack[height:]
        return items

    def check_top(self, kind: type[Any]) -> Any:
        if type(self.stack[-1]) is not kind:
            raise PickleError(f"byte {self.at - 1} changes an object that is not a {kind.__name__}")
        return self.stack[-1]

    # -- opcodes ---------------------------------------------------------------------------------------------

    def push_name(self, module: Any, name: Any) -> None:
        full = Name(f"{module}.{name}") if type(module) is type(name) is str else Name()
        if full not in (ENCODE, NO_BYTES) and not self.allowed(full):
            raise PickleError(
                f"it asks for {str(full)[:80]!r}, which a record of data does not need: do not trust its source"
            )
        self.stack.append(full)

    def record_call(self) -> None:
        """Record a call instead of making it, for REDUCE and NEWOBJ."""
        name, args = self.pop_some(2)
        if type(name) is not Name or type(args) is not tuple:
            raise PickleError(f"byte {self.at - 1} calls an object without a name")
        self.stack.append(_decode_bytes(name, args) if name in (ENCODE, NO_BYTES) else RecordedCall(name, args))

    def set_state(self) -> None:
        state = self.pop()
        self.check_top(RecordedCall).state = state

    def put_elements(self, elements: Sequence[Any]) -> None:
        self.check_top(list).extend(elements)

    def put_items(self, items: list[Any]) -> None:
        into = self.check_top(dict)
        if len(items) % 2 or not all(type(key) is str for key in items[::2]):
            raise PickleError(f"byte {self.at - 1} gives a dict keys that are not text")
        into.update(zip(items[::2], items[1::2], strict=True))


def _decode_bytes(name: Name, args: tuple[Any, ...]) -> bytes:
    """Return the bytes that protocol 2 writes as a text with a character for each."""
    if name == NO_BYTES and args == ():
        return b""
    if name == ENCODE and len(args) == 2 and type(args[0]) is str and args[1] == "latin1":
        try:
            return args[0].encode("latin-1")
        except UnicodeEncodeError as error:
            raise PickleError(f"a text that does not stand for bytes: {error.reason}") from error
    raise PickleError(f"it calls {name} for something else than bytes: do not trust its source")


def _push_value(value: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(value(machine))


def _push_sized(form: struct.Struct, convert: Callable[[bytes], Any]) -> Callable[[_Machine], None]:
    """Push the bytes that follow their own length."""
    return lambda machine: machine.stack.append(convert(machine.take_bytes(machine.take_number(form))))


def _store_memo(number: Callable[[_Machine], int]) -> Callable[[_Machine], None]:
    def put_memo(machine: _Machine) -> None:
        machine.memo[number(machine)] = machine.stack[-1]

    return put_memo


def _decode_text(data: bytes) -> str:
    return data.decode(errors="surrogatepass")


_U1, _U2, _U4, _U8, _I4, _F8 = (struct.Struct(form) for form in ("<B", "<H", "<I", "<Q", "<i", ">d"))
_STOP: Final = ord(".")
_OPCODES: Final[dict[int, Callable[[_Machine], object]]] = {
    ord(code): does
    for code, does in {
        # Frames and the number of the protocol are not needed.
        "\x80": lambda m: m.take_bytes(1),
        "\x95": lambda m: m.take_bytes(8),
        "N": _push_value(lambda m: None),
        "\x88": _push_value(lambda m: True),
        "\x89": _push_value(lambda m: False),
        "K": _push_value(lambda m: m.take_number(_U1)),
        "M": _push_value(lambda m: m.take_number(_U2)),
        "J": _push_value(lambda m: m.take_number(_I4)),
        "G": _push_value(lambda m: m.take_number(_F8)),
        "\x8a": _push_sized(_U1, lambda data: int.from_bytes(data, "little", signed=True)),
        "X": _push_sized(_U4, _decode_text),
        "\x8c": _push_sized(_U1, _decode_text),
        "\x8d": _push_sized(_U8, _decode_text),
        "C": _push_sized(_U1, bytes),
        "B": _push_sized(_U4, bytes),
        "\x8e": _push_sized(_U8, bytes),
        "\x96": _push_sized(_U8, bytearray),
        # Containers.
        "(": lambda m: m.marks.append(len(m.stack)),
        ")": _push_value(lambda m: ()),
        "\x85": _push_value(lambda m: m.pop_some(1)),
        "\x86": _push_value(lambda m: m.pop_some(2)),
        "\x87": _push_value(lambda m: m.pop_some(3)),
        "t": _push_value(lambda m: tuple(m.pop_to_mark())),
        "]": _push_value(lambda m: []),
        "a": lambda m: m.put_elements(m.pop_some(1)),
        "e": lambda m: m.put_elements(m.pop_to_mark()),
        "}": _push_value(lambda m: {}),
        "s": lambda m: m.put_items(list(m.pop_some(2))),
        "u": lambda m: m.put_items(m.pop_to_mark()),
        # Memos: objects that are used more than once.
        "q": _store_memo(lambda m: m.take_number(_U1)),
        "r": _store_memo(lambda m: m.take_number(_U4)),
        "\x94": _store_memo(lambda m: len(m.memo)),
        "h": _push_value(lambda m: m.memo[m.take_number(_U1)]),
        "j": _push_value(lambda m: m.memo[m.take_number(_U4)]),
        # Names and calls.
        "c": lambda m: m.push_name(m.take_line(), m.take_line()),
        "\x93": lambda m: m.push_name(*m.pop_some(2)),
        "Q": _push_value(lambda m: RecordedCall(Name(PERSISTENT), m.pop_some(1))),
        "R": lambda m: m.record_call(),
        "\x81": lambda m: m.record_call(),
        "b": lambda m: m.set_state(),
    }.items()
}
