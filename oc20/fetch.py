"""`python -m oc20.fetch DIR`: download the published frames of OC20, verify and unpack them."""

from __future__ import annotations

import shlex
import sys
from typing import Final

from common.commands.fetch import FetchCommand
from common.data.fetch import GB, Archive, Published, by_name
from common.reference import FULL

ADDRESS: Final = "https://dl.fbaipublicfiles.com/opencatalystproject/data"
PAIRS: Final = r"(?:^|/)(?P<folder>s2ef_\w+)/(?P<file>\d+\.(?:extxyz|txt)\.xz)$"


def _pair_archive(name: str, split: str, sizes: tuple[float, float], md5: str) -> Archive:
    """Return an archive of pairs of files. sizes: packed and unpacked, in the project's G, which may be 2^30 bytes."""
    packed, unpacked = sizes
    return Archive(f"{name}.tar", packed * GB, unpacked * GB, by_name(PAIRS, {name: split}), md5)


VALIDATION: Final = _pair_archive("s2ef_val_id", "validation", (1.7, 8.3), "f57f7f5c1302637940f2cc858e789410")


FETCH: Final = FetchCommand(
    module="oc20.fetch",
    sets=(
        Published(
            name=FULL,
            text="2,000,000 + 999,866 frames, as pairs of files without edges",
            address=ADDRESS,
            counts={"train": None, "validation": None},
            archives=(
                # The project's first table had the sums of 2M and 20M swapped: facebookresearch/fairchem, issue 302.
                _pair_archive("s2ef_train_2M", "train", (3.4, 17), "953474cb93f0b08cdc523399f03f7c36"),
                VALIDATION,
            ),
        ),
        Published(
            name="200K",
            text="200,000 + 999,866 frames",
            address=ADDRESS,
            counts={"train": None, "validation": None},
            archives=(
                _pair_archive("s2ef_train_200K", "train", (0.344, 1.7), "f8d0909c2623a393148435dede7d3a46"),
                VALIDATION,
            ),
        ),
    ),
    licence="CC-BY-4.0, by the Open Catalyst Project",
    next_step=lambda folder: (
        f"python -m oc20.prepare convert {shlex.quote(str(folder))} data/oc20 --format compact --verify"
    ),
)
main = FETCH.main

if __name__ == "__main__":
    sys.exit(main())
