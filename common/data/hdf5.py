"""HDF5 files that others wrote: only what is in the file itself is read, and no more of it than its values take."""

from __future__ import annotations

from itertools import accumulate
from math import prod
from typing import Any, Final

import h5py

HDF5_ERRORS: Final = (OSError, RuntimeError, KeyError, TypeError, ValueError)
"""Errors that h5py raises for damaged files, depending on where the damage is."""
MOST_BYTES: Final = 64 << 20
"""A dataset with few values may have chunks of so many bytes: it is inflated chunk by chunk, whatever is read of it."""


class RefusedDataError(ValueError):
    """What a name of an HDF5 file leads to is not read; the message names it."""


def find_dataset(group: Any, name: str) -> Any:
    """Return the dataset of a name of one or more parts, None if there is none.

    RefusedDataError if a link leads to it, if its values are in other files, and if it would take much more memory than
    they do.
    """
    for path in accumulate(name.split("/"), "{}/{}".format):
        if not group.id.links.exists(path.encode()):
            return None
        if group.id.links.get_info(path.encode()).type != h5py.h5l.TYPE_HARD:
            raise RefusedDataError(f"`{name}` is a link, which is not followed; copy what it leads to into the file")
    dataset = group[name]
    if not isinstance(dataset, h5py.Dataset):
        return None
    plan = dataset.id.get_create_plist()
    layout = plan.get_layout()
    if plan.get_external_count() or layout not in (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED):
        raise RefusedDataError(f"the values of `{name}` are not all in this file; copy them into it")
    chunk = prod(plan.get_chunk()) * dataset.dtype.itemsize if layout == h5py.h5d.CHUNKED else 0
    if (largest := max(chunk, dataset.id.get_storage_size())) > max(2 * dataset.nbytes, MOST_BYTES):
        raise RefusedDataError(
            f"`{name}` has {dataset.nbytes:,} bytes of values, in chunks of {largest:,}; write it again in smaller ones"
        )
    return dataset
