"""Arrays in pickles: torch tensors, with the files of torch.save inside that they consist of, and arrays of numpy.

They are read as views of the pickle's bytes, and none has more elements than it has bytes for. A tensor is

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
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from oc20.pickles import PERSISTENT, Made, Name, PickleError, load

TENSOR: Final = "torch._utils._rebuild_tensor_v2"
STORAGE: Final = "torch.storage._load_from_bytes"
HOOKS: Final = "collections.OrderedDict"
DTYPE: Final = "numpy.dtype"
ARRAY: Final = "numpy.ndarray"
MULTIARRAY: Final = ("numpy.core.multiarray", "numpy._core.multiarray")
FROM_BUFFER: Final = ("numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer")
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
NAMES: Final = frozenset(
    {TENSOR, STORAGE, HOOKS, DTYPE, ARRAY, *FROM_BUFFER, *STORAGES}
    | {f"{module}.{name}" for module in MULTIARRAY for name in ("_reconstruct", "scalar")}
)
"""What may occur in the pickle of an array."""
SAVED: Final = struct.pack("<2sB", b"\x80\x02", 0x8A) + b"\nl\xfc\x9cF\xf9 j\xa8P\x19." + b"\x80\x02M\xe9\x03."
"""How files of torch.save begin: the pickles of magic number and version."""
KEY: Final = "0"


def array_of(made: Made) -> np.ndarray:
    """Return the array that a note in a pickle describes: of numbers or bool, read-only; a scalar has the shape ().

    Raises PickleError for anything else.
    """
    try:
        if made.name == TENSOR:
            return _tensor(*made.args[:4])
        if made.name in FROM_BUFFER:
            buffer, dtype, shape, order = made.args
            return _view(buffer, _dtype(dtype), shape, order=order)
        module, _, function = made.name.rpartition(".")
        if module in MULTIARRAY and function == "scalar":
            dtype, buffer = made.args
            return _view(buffer, _dtype(dtype), ())
        if module in MULTIARRAY:
            _, shape, dtype, by_columns, buffer = made.state
            return _view(buffer, _dtype(dtype), shape, order="F" if by_columns else "C")
    except (TypeError, ValueError, IndexError, AttributeError, struct.error, OverflowError) as error:
        if isinstance(error, PickleError):
            raise
        raise PickleError(f"a damaged array ({error})") from error
    raise PickleError(f"expected an array, found {str(made.name)!r}")
