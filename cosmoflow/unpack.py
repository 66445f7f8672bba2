"""Packed samples decoded on a GPU, by two Triton kernels: the input of the network from the bytes of the files.

The first writes the input of the four counts in each word, coalesced, the second overwrites those of the exceptions.
The input of each of the 65,536 possible counts is looked up in a table, which is small enough for the caches: equal to
the bit to what `dataset.scaled_input` makes of the counts, which computes the table, and no logarithm for each voxel.

Shapes: B batch, N bytes of a file and of room behind it; in kernels P words or exceptions.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from cosmoflow.data.packed import COUNT_AT, HEAD, RARE, count_words

PER_PROGRAM: Final = 2048
"""Words, or exceptions, of a program of the kernels."""


def unpack_input(files_BN: Tensor, table: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the input (B, *shape) of the samples in these files, uint8, which `packed.read_file` has checked.

    table: the input of the counts from -32,768 to 32,767, in the type of the result.
    """
    x = torch.empty(len(files_BN), *shape, dtype=table.dtype, device=table.device)
    if x.numel():
        sizes = plan_unpacking(prod(shape), files_BN.shape[1])
        halves_BN, ints_BN = files_BN.view(torch.int16), files_BN.view(torch.int32)
        grid = triton.cdiv(sizes["WORDS"], PER_PROGRAM), len(x)
        _unpack_words_kernel[grid](halves_BN, table, x, **sizes)
        grid = triton.cdiv(sizes["COUNTS"] // RARE, PER_PROGRAM), len(x)
        _unpack_exceptions_kernel[grid](halves_BN, ints_BN, table, x, **sizes, AT=COUNT_AT // 4)
    return x


def plan_unpacking(counts: int, file_bytes: int) -> dict[str, Any]:
    """Return the sizes for which the kernels are compiled; START and STRIDE are in numbers of 16 bits."""
    return {
        "COUNTS": counts,
        "WORDS": count_words(counts),
        "START": HEAD.size // 2,
        "STRIDE": file_bytes // 2,
        "P": PER_PROGRAM,
    }


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _unpack_words_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # types come with the arguments
    halves, table, x,
    COUNTS: tl.constexpr, WORDS: tl.constexpr, START: tl.constexpr, STRIDE: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(1).to(tl.int64)
    word_P = tl.program_id(0) * P + tl.arange(0, P)
    bits_P = tl.load(halves + sample * STRIDE + START + word_P, mask=word_P < WORDS, other=0).to(tl.int32)
    for quarter in tl.static_range(4):
        at_P = quarter * WORDS + word_P
        value_P = tl.load(table + 32768 + ((bits_P >> (4 * quarter)) & 15))
        tl.store(x + sample * COUNTS + at_P, value_P, mask=(word_P < WORDS) & (at_P < COUNTS))


@triton.jit  # type: ignore[untyped-decorator]  # triton's
def _unpack_exceptions_kernel(  # type: ignore[no-untyped-def]  # noqa: PLR0913  # as above
    halves, ints, table, x,
    COUNTS: tl.constexpr, WORDS: tl.constexpr, START: tl.constexpr, STRIDE: tl.constexpr, AT: tl.constexpr,
    P: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(1).to(tl.int64)
    exception_P = tl.program_id(0) * P + tl.arange(0, P)
    exceptions = tl.load(ints + sample * (STRIDE // 2) + AT)
    ok_P = exception_P < exceptions
    position_P = tl.load(ints + sample * (STRIDE // 2) + (START + WORDS) // 2 + exception_P, mask=ok_P, other=0)
    values = halves + sample * STRIDE + START + WORDS + 2 * exceptions
    count_P = tl.load(values + exception_P, mask=ok_P, other=0).to(tl.int32)
    tl.store(x + sample * COUNTS + position_P, tl.load(table + 32768 + count_P), mask=ok_P)
