"""A rank that trains by recorded steps: `recorded.py BENCHMARK CONFIG OVERRIDE...`.

It says so if recordings are alive when its process group is destroyed, for which NCCL would wait.
"""

import sys
from importlib import import_module

import torch.distributed as td

from common.ranks import dist
from tests.tape import Tape, Tapes, record_on

all_reduce = td.all_reduce


def recorded_all_reduce(tensor, *arguments, **options):
    """Reduce now, or with the tape if one records."""
    if Tape.recording is None:
        return all_reduce(tensor, *arguments, **options)
    Tape.recording.operations.append((all_reduce, (tensor, *arguments), options, tensor))
    return tensor


tapes, leave_group = Tapes(), dist.leave_group


def leave_group_without_recordings(group=None):
    """Leave the group, and say what is alive."""
    print(f"recorded {tapes.recorded}, alive {len(tapes.alive)}", flush=True)
    leave_group(group)


td.all_reduce = recorded_all_reduce
dist.leave_group = leave_group_without_recordings
record_on(tapes)
sys.exit(import_module(f"{sys.argv[1]}.train").main(sys.argv[2:]))
