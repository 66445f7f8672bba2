"""HDF5 files that others wrote: only what is in the file itself is read, and no more of it than its values take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any, Final

import h5py

from common.data.arrays import ArrayError
from common.data.build import BadItemError
from common.file_kind import HDF5, explain_file
from common.files import check_regular
from common.tree import RefusedFileError

HDF5_ERRORS: Final = (OSError, RuntimeError, KeyError, TypeError, ValueError)
"""Errors that h5py raises for damaged files, depending on where the damage is."""
MOST_BYTES: Final = 64 << 20
"""A dataset with few values may have chunks of so many bytes: it is inflated chunk by chunk, whatever is read of it."""


PLUGINS: Final = {
    307: "bzip2",
    32001: "Blosc",
    32004: "LZ4",
    32008: "Bitshuffle",
    32013: "ZFP",
    32015: "Zstandard",
    32017: "SZ",
    32018: "FCIDECOMP",
    32024: "SZ3",
    32026: "Blosc2",
    32028: "SPERR",
}
"""The filters of the package hdf5plugin, by their registered numbers."""


SET_PLUGINS: Final = "export HDF5_PLUGIN_PATH=$(python -c 'import hdf5plugin; print(hdf5plugin.PLUGIN_PATH)')"


class RefusedDataError(ValueError):
    """What a name of an HDF5 file leads to is not read; the message names it."""


def find_dataset(group: Any, name: str) -> Any:
    """Return the dataset of a name of one or more parts, None if there is none.

    RefusedDataError if a link leads to it, if its values are in other files, if this HDF5 lacks a filter that they went
    through, and if it would take much more memory than they do.
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
    _check_filters(plan, name)
    layout = plan.get_layout()
    if plan.get_external_count() or layout not in (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED):
        raise RefusedDataError(f"the values of `{name}` are not all in this file; copy them into it")
    chunk = prod(plan.get_chunk()) * dataset.dtype.itemsize if layout == h5py.h5d.CHUNKED else 0
    if (largest := max(chunk, dataset.id.get_storage_size())) > max(2 * dataset.nbytes, MOST_BYTES):
        raise RefusedDataError(
            f"`{name}` has {dataset.nbytes:,} bytes of values, in chunks of {largest:,}; write it again in smaller ones"
        )
    return dataset


def _check_filters(plan: Any, name: str) -> None:
    """Raise RefusedDataError if values were written through a filter that this HDF5 does not have."""
    for position in range(plan.get_nfilters()):
        number, _, _, stored_name = plan.get_filter(position)
        if h5py.h5z.filter_avail(number):
            continue
        title = PLUGINS.get(number) or ascii(stored_name[:40].decode("latin-1"))
        if number in PLUGINS:
            fix = f"`pip install hdf5plugin`, then `{SET_PLUGINS}`"
        else:
            fix = "install it, and set HDF5_PLUGIN_PATH to its folder"
        raise RefusedDataError(
            f"`{name}` is compressed with filter {number} ({title}), which this HDF5 does not have: {fix}; or repack "
            "the file with gzip where the filter is installed: `h5repack -f GZIP=1 FILE repacked.h5`"
        )


@contextmanager
def open_hdf5(path: Path, opened: Any = None) -> Iterator[Any]:
    """Open an HDF5 file, and close it at the end of the `with`; BadItemError if it is not one, OSError for no file.

    opened: the file object to read, for HDF5 itself opens no file that has no name.
    """
    check_regular(path)
    try:
        file = h5py.File(opened or path, "r", locking=False)  # nobody writes to it; not all file systems have locks
    except HDF5_ERRORS as error:
        if isinstance(error, OSError) and error.errno:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error  # shorter than HDF5's message
        damage = f"not a readable HDF5 file ({error}); copy, fetch or make it again"
        raise BadItemError(f"{path}: {explain_file(path, HDF5) or damage}") from error
    with file:
        yield file


def get_dataset(file: Any, name: str, path: Path) -> Any:
    """Return the dataset of a name in an open file of this path; BadItemError if there is none that can be read."""
    title = f"{path}: `{name}`"
    with name_damage(title):
        dataset = find_dataset(file, name)
        if dataset is None:
            there: list[str] = []
            file.visit(there.append)
            raise BadItemError(f"{title} is missing; the file has: {', '.join(map(str, there)) or 'nothing'}")
        return dataset


@contextmanager
def name_damage(name: str) -> Iterator[None]:
    """Turn errors about content into a BadItemError that names file and key; system errors pass unchanged."""
    try:
        yield
    except (BadItemError, RefusedFileError):
        raise
    except RefusedDataError as error:
        raise BadItemError(f"{name} is not read: {error}") from error
    except ArrayError as error:
        raise BadItemError(f"{name}: {error.problem}") from error
    except HDF5_ERRORS as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise BadItemError(f"{name} is damaged ({error}); fetch the file again") from error
