"""What Slurm says of a job in its environment: hosts, tasks and GPUs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping


def list_hosts(nodes: str) -> Iterator[str]:
    """Yield the hosts of a Slurm node list: nid001, nid002, nid007 and login1 of `nid[001-002,007],login1`."""
    for name in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes):
        parts = re.split(r"\[([^\]]*)\]", name)  # what is outside the brackets and what is inside, in turn
        choices = [list(_expand_ranges(part)) if inside % 2 else [part] for inside, part in enumerate(parts)]
        yield from map("".join, itertools.product(*choices))


def _expand_ranges(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield from (f"{number:0{len(first)}}" for number in range(int(first), int(last or first) + 1))


def count_tasks(counts: str) -> list[int]:
    """Return the tasks on each node of a Slurm step: [4, 4, 3] for `4(x2),3`.

    Raises ValueError for another form.
    """
    tasks = []
    for part in counts.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:\(x(\d{1,7})\))?", part)
        if not match:
            raise ValueError(f"{counts!r} is not a list of tasks per node, such as 4(x2),3")
        tasks += [int(match[1])] * int(match[2] or 1)
    return tasks


def count_tasks_without_srun(environ: Mapping[str, str]) -> int:
    """Return the tasks of the Slurm job in whose script or shell this process runs, outside any step; 0: none."""
    tasks = "" if "SLURM_STEP_NUM_TASKS" in environ else environ.get("SLURM_NTASKS", "")
    return int(tasks) if re.fullmatch(r"\d{1,18}", tasks, re.ASCII) else 0


def find_slurm_devices(environ: Mapping[str, str]) -> str:
    """Return the variable by which Slurm says that this process has GPUs on its node; empty if it has none."""
    # After the manual of srun: a number, and then lists of IDs. A step inherits the batch script's SLURM_JOB_GPUS, even
    # if it has none itself.
    names = ["SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS"]
    if not environ.get("SLURM_STEP_NUM_TASKS"):
        names.append("SLURM_JOB_GPUS")
    if environ.get("SLURM_GPUS_ON_NODE") == "0":
        return ""
    return next((f"{name}={environ[name]}" for name in names if environ.get(name)), "")
