"""What each node of a job detects, brought together through a hidden folder beside the output; without torch.

Rank 0 opens a call: a new folder with a random name, and a file that names it. One process of each node puts its answer
there and ends once the call is closed. So what an earlier launch left behind, broken or not, is never taken for an
answer, even if the job has the same number. The outer folder carries an id of the launch where the launcher sets one:
launches at the same time do not answer each other's calls.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from common.files import write_whole_file
from common.measure.power.sources import is_watts
from common.ranks.launch import LaunchError, RankPosition
from common.tree import Tree
from compliance.model.finding import listed
from submission.system.hardware import Fields
from submission.system.machine import NO_READING, Reading

IDS: Final = {
    "torchrun": ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"),
    "environment": ("MASTER_ADDR", "MASTER_PORT"),
    "openmpi": ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    "pmi": ("PALS_APID", "FLUX_JOB_ID"),
    "flux": ("FLUX_JOB_ID",),
    "slurm": ("SLURM_JOB_ID", "SLURM_STEP_ID"),
}
"""Variables that all ranks of a launch share, and those of another launch do not, by the launcher's name.

PALS, and Flux by default, set PMI's variables, which decide; Hydra sets those too, and documents no id.
"""
CALL: Final = "call"
NAME: Final = re.compile(r"\w{1,64}")
ANSWER: Final = re.compile(r"rank_(\d{1,9})\.json")
PAUSE_S: Final = 0.1
MOST_BYTES: Final = 1 << 20
"""Of an answer."""
MOST_NAMED: Final = 10
"""Missing nodes that the error names."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A process's description of its node. parts: the number of nodes or ranks it answers for. node: None if unknown.

    power: the reading, if requested.
    """

    rank: int
    parts: int
    node: int | None
    host: str
    fields: Fields
    power: Reading = NO_READING


def count_parts(launch: RankPosition) -> tuple[int, int]:
    """Return the number of nodes or ranks that this process answers for, and their total.

    0: another process of the node answers. Counted are nodes, or ranks if the launcher does not number the nodes; each
    rank answers for itself if the launcher does not say which ranks share a node.
    Raises LaunchError if the launcher does not say how many ranks there are.
    """
    if launch.nodes is not None and launch.local_rank is not None:
        return int(launch.local_rank == 0), launch.nodes
    if launch.world_size is None:
        raise LaunchError(f"{launch.launcher} does not say how many ranks there are: use srun, mpirun or torchrun")
    if launch.local_size is not None and launch.local_rank is not None:
        return (0 if launch.local_rank else launch.local_size), launch.world_size
    return 1, launch.world_size


def meeting_folder(output: Path, launch: RankPosition, environ: Mapping[str, str]) -> Path:
    """Return the folder beside the output through which the processes of a launch meet."""
    ids = "\n".join(environ.get(name, "") for name in IDS.get(launch.launcher, ()))
    digest = hashlib.sha256(f"{launch.launcher}\n{ids}".encode(errors="replace")).hexdigest()
    return output.with_name(f".{output.name}.nodes-{digest[:12]}")


# -- rank 0 --------------------------------------------------------------------------------------------------


@contextmanager
def open_call(folder: Path) -> Iterator[Path]:
    """Yield the folder for the answers to a new call; at the end the call is closed, and all of it removed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        answers = Path(tempfile.mkdtemp(dir=folder, prefix="call_"))
        write_whole_file(folder / CALL, answers.name)
        yield answers
    finally:
        (folder / CALL).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def collect_answers(answers: Path, own: Answer, launch: RankPosition, timeout_s: float) -> list[Answer]:
    """Return one answer of each node, in the order of the nodes.

    Raises LaunchError if answers are missing after the timeout, or one is not what this command writes.
    """
    _, total = count_parts(launch)
    by_rank = {own.rank: own}
    for last in _poll_until(timeout_s):
        for path in answers.iterdir():
            match = ANSWER.fullmatch(path.name)
            if match and int(match[1]) not in by_rank:
                by_rank[int(match[1])] = _read_answer(path, int(match[1]))
        parts = sum(answer.parts for answer in by_rank.values())
        if sys.stderr.isatty():
            end = "\n" if last or parts >= total else ""
            print(f"\r{parts} of {total} {_counted_unit(launch)} described", end=end, file=sys.stderr, flush=True)
        if parts >= total:
            break
    else:
        raise LaunchError(_explain_missing(list(by_rank.values()), launch, answers.parent.parent, timeout_s))
    by_node: dict[int | str, Answer] = {}
    for answer in sorted(by_rank.values(), key=lambda answer: (answer.node or 0, answer.rank)):
        by_node.setdefault(answer.host if answer.node is None else answer.node, answer)
    return list(by_node.values())


def _explain_missing(answers: Sequence[Answer], launch: RankPosition, folder: Path, timeout_s: float) -> str:
    _, total = count_parts(launch)
    counted = _counted_unit(launch)
    if counted == "nodes" and all(answer.node is not None for answer in answers):
        missing = [str(node) for node in range(total) if node not in {answer.node for answer in answers}]
        who = f"node{'s' * (len(missing) > 1)} {listed(missing, MOST_NAMED)} of {total} (counted from 0)"
    else:
        hosts = list(dict.fromkeys(answer.host for answer in answers))
        parts = sum(answer.parts for answer in answers)
        who = f"{total - parts} of {total} {counted} (answers came from {', '.join(hosts[:MOST_NAMED])})"
    return (
        f"no description of {who} within {timeout_s:g} s; nothing is written. If the nodes do not share {folder}, "
        f"give -o a folder that they share; if they are slow, raise --timeout"
    )


def _counted_unit(launch: RankPosition) -> str:
    return "ranks" if launch.nodes is None or launch.local_rank is None else "nodes"


def _read_answer(path: Path, rank: int) -> Answer:
    try:
        answer = msgspec.json.decode(Tree.at(path.parent).read(path, MOST_BYTES), type=Answer)
        watts = answer.power.watts
        if answer.rank != rank or answer.parts < 0 or not (watts is None or is_watts(watts)):
            raise ValueError(f"rank {answer.rank}, {answer.parts} parts, {watts} W")
    except (ValueError, RecursionError) as error:
        raise LaunchError(
            f"{path} is not the description of a node ({error}): start all nodes with the same version of the suite; "
            "nothing is written"
        ) from error
    return answer


# -- the other nodes -----------------------------------------------------------------------------------------


def answer_calls(folder: Path, mine: Answer, timeout_s: float) -> bool:
    """Answer rank 0's call until it is closed; return whether there was one before the timeout.

    A call may be what a killed launch left; then a new one follows, and is answered, too.
    """
    answered = ""
    for _ in _poll_until(timeout_s):
        call = Tree.at(folder).begin(folder / CALL, 100).decode("ascii", "replace")
        call = call if NAME.fullmatch(call) else ""  # the name of the open call, if any
        if call == answered:
            continue
        if not call:
            break
        with suppress(FileNotFoundError):
            write_whole_file(folder / call / f"rank_{mine.rank}.json", msgspec.json.encode(mine).decode())
        answered = call
    return bool(answered)


def _poll_until(timeout_s: float) -> Iterator[bool]:
    """Yield until the timeout, with pauses; at least once. Yields whether it is the last time."""
    end = time.monotonic() + timeout_s
    while (left := end - time.monotonic()) > 0:
        yield False
        time.sleep(min(PAUSE_S, max(left, 0)))
    yield True
