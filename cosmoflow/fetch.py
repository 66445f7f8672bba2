"""`python -m cosmoflow.fetch DIR`: download the published samples of CosmoFlow, verify and unpack them."""

from __future__ import annotations

import shlex
import sys
from typing import Final

from common.commands.fetch import FetchCommand
from common.data.fetch import GB, TB, Archive, Published, by_name
from common.reference import FULL

ADDRESS: Final = "https://portal.nersc.gov/project/dasrepo/cosmoflow-benchmark"
SPLITS: Final = {"train": "train", "val": "validation", "validation": "validation"}
"""The dataset's folders by those of the archives, which have a test split, too."""
SAMPLES: Final = by_name(r"(?:^|/)(?P<folder>\w+)/(?P<file>[\w.-]+\.tfrecord)$", SPLITS)


FETCH: Final = FetchCommand(
    module="cosmoflow.fetch",
    sets=(
        Published(
            name=FULL,
            text="524,288 + 65,536 samples, as of round 1.0",
            address=ADDRESS,
            counts={"train": 524_288, "validation": 65_536},
            archives=(Archive("cosmoUniverse_2019_05_4parE_tf_v2.tar", 1.7 * TB, 1.7 * TB, SAMPLES),),
            notes=("Globus is faster, see docs/guide/data.md",),
        ),
        Published(
            name="mini",
            text="about 1,024 + 1,024 samples of the same (reported by others)",
            address=ADDRESS,
            counts={"train": None, "validation": None},
            archives=(Archive("cosmoUniverse_2019_05_4parE_tf_v2_mini.tar", 6 * GB, 6 * GB, SAMPLES),),
        ),
        Published(
            name="small",
            text="32 + 32 samples of round 0.7",
            address=ADDRESS,
            counts={"train": 32, "validation": 32},
            archives=(Archive("cosmoUniverse_2019_05_4parE_tf_small.tgz", 0.179 * GB, 1.1 * GB, SAMPLES),),
        ),
    ),
    licence="not stated where we looked; ask the authors before you redistribute data",
    next_step=lambda folder: (
        f"python -m cosmoflow.train config {shlex.quote(f'data.data_dir={folder}')}"
        "   (a part: in the open division, see docs/guide/data.md)"
    ),
)
main = FETCH.main

if __name__ == "__main__":
    sys.exit(main())
