"""The bytes that the operations of a step read and write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def bytes_touched(work: Callable[[], object]) -> int:
    """Return the bytes of inputs and outputs of all operations in `work`, each operation by itself.

    Memory moves less where caches keep what one operation leaves to the next, and more where one reads twice. Kernels
    of Triton are not seen.
    """
    with _ByteCounter() as counter:
        work()
    return int(counter.total)


class _ByteCounter(TorchDispatchMode):
    """Adds up the bytes of what is called inside it; views and new memory cost nothing, and filling reads nothing."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if not func.is_view and name != "_unsafe_view" and "empty" not in name:
            touched = tree_leaves(result if name in ("fill_", "zero_") else (args, kwargs, result))
            self.total += sum(leaf.nbytes for leaf in touched if isinstance(leaf, Tensor) and not leaf.is_sparse)
        return result
