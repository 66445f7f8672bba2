"""`python -m deepcam.fetch DIR`: download the published snapshots of DeepCAM, file by file."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Final

from common.commands.fetch import FetchCommand
from common.data.fetch import Published, RemoteFolder
from common.reference import FULL
from deepcam.data.values import NAME as STATS

SNAPSHOT: Final = re.compile(r"data-\d{4}-\d\d-\d\d-\d\d-\d\.h5")
"""Year, month, day, index of the time step in the day, number of the simulation."""
BYTES: Final = 63.7e6
"""Of a snapshot: 16 channels of float32 and two label maps of 4 bytes."""


def _next_command(folder: Path) -> str:
    data = shlex.quote(str(folder))
    if (folder / STATS).exists():
        note = "   (a part: in the open division, see docs/guide/data.md)"
        return f"python -m deepcam.train config data.data_dir={data}{note}"
    return f"python -m deepcam.summarize {data}   (makes {STATS}, which is not there)"


FETCH: Final = FetchCommand(
    module="deepcam.fetch",
    sets=(
        Published(
            name=FULL,
            text="121,266 + 15,158 snapshots",
            address="https://portal.nersc.gov/project/dasrepo/deepcam/climate-data/All-Hist",
            counts={"train": 121_266, "validation": 15_158},
            folders=(RemoteFolder("train", SNAPSHOT, BYTES), RemoteFolder("validation", SNAPSHOT, BYTES)),
            beside=(STATS,),
            notes=("file by file; Globus is made for this, see docs/guide/data.md",),
        ),
    ),
    licence="not stated where we looked; ask the authors before you redistribute data",
    next_step=_next_command,
    shares={"train": 1, "validation": 8},
)
main = FETCH.main

if __name__ == "__main__":
    sys.exit(main())
