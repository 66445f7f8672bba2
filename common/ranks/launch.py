"""Find the rank of this process and its position among the ranks, from the environment variables of its launcher.

Facts that a launcher does not set stay None, and `dist` fills them in. The variables are those documented by torchrun,
Open MPI, MPICH (Hydra), MVAPICH2, Flux, IBM JSM, HPE PALS, Slurm and PMIx. torchrun, Open MPI, Hydra and Slurm were
tested by running them (tests/cluster); the others only with recorded environments.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from common.errors import LaunchError
from common.slurm import count_tasks, list_hosts

PORTS: Final = range(20_000, 30_000)
"""Where ports of Slurm steps are. Above those of most services; below those that Kubernetes gives away (30000 and up)
and below the ephemeral ones (32768 and up), of which any may be in use by an outgoing connection at any time."""
OWN_VARIABLES: Final = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT"
"""Variables of torchrun that users also set by hand, and forget."""
NUMBER: Final = re.compile("[0-9]{1,18}")
FACTS: Final = ("world_size", "local_rank", "local_size", "node_rank", "nodes")
"""What a `RankPosition` may not know."""


@dataclass(frozen=True)
class RankPosition:
    """The position of this process: its rank among all, its rank on its node, and its node among the nodes.

    address: where rank 0 opens the store in which the ranks meet: MASTER_ADDR and MASTER_PORT. None: not set by the
    launcher.
    """

    launcher: str
    rank: int
    world_size: int | None
    local_rank: int | None = None
    local_size: int | None = None
    node_rank: int | None = None
    nodes: int | None = None
    address: tuple[str, int] | None = None

    def require_facts(self) -> tuple[int, int, int, int, int]:
        """Return world_size, local_rank, local_size, node_rank and nodes of a position that was completed."""
        return tuple(getattr(self, name) for name in FACTS)


@dataclass(frozen=True)
class Launcher:
    """The variables of one launcher; of several names for a fact, the first that is set counts.

    marks: one of them is set if it started this process. within: launchers in whose jobs it starts its own ranks, so
    that their variables describe the process around it and may differ.
    """

    name: str
    marks: str
    rank: str
    size: str = ""
    local_rank: str = ""
    local_size: str = ""
    node_rank: str = ""
    nodes: str = ""
    within: str = ""


# In order of precedence: the first that started this process decides, those after it fill gaps.
LAUNCHERS: Final = (
    Launcher(
        "torchrun",
        marks="TORCHELASTIC_RUN_ID",
        rank="RANK",
        size="WORLD_SIZE",
        local_rank="LOCAL_RANK",
        local_size="LOCAL_WORLD_SIZE",
        node_rank="GROUP_RANK",
        nodes="GROUP_WORLD_SIZE",
        within="openmpi pmi mvapich2 jsm flux pals slurm pmix",
    ),
    # torchrun's names, set by hand: they must agree with the launcher around the process.
    Launcher(
        "environment",
        marks="RANK WORLD_SIZE",
        rank="RANK",
        size="WORLD_SIZE",
        local_rank="LOCAL_RANK",
        local_size="LOCAL_WORLD_SIZE",
    ),
    # OMPI_COMM_WORLD_NODE_RANK is not the rank of the node: it counts processes of all jobs on this node.
    Launcher(
        "openmpi",
        marks="OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE",
        rank="OMPI_COMM_WORLD_RANK",
        size="OMPI_COMM_WORLD_SIZE",
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
        local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
        within="flux pals slurm",
    ),
    # Hydra (MPICH, Intel MPI) uses the MPI_ names, Cray's library the PMI_ ones. Slurm, Flux and PALS can set PMI_RANK
    # too; then they agree, and fill PMI's gaps.
    Launcher(
        "pmi",
        marks="PMI_RANK PMI_SIZE",
        rank="PMI_RANK",
        size="PMI_SIZE",
        local_rank="MPI_LOCALRANKID PMI_LOCAL_RANK",
        local_size="MPI_LOCALNRANKS PMI_LOCAL_SIZE",
        within="flux pals slurm",
    ),
    Launcher(
        "mvapich2",
        marks="MV2_COMM_WORLD_RANK MV2_COMM_WORLD_SIZE",
        rank="MV2_COMM_WORLD_RANK",
        size="MV2_COMM_WORLD_SIZE",
        local_rank="MV2_COMM_WORLD_LOCAL_RANK",
        local_size="MV2_COMM_WORLD_LOCAL_SIZE",
        within="flux pals slurm",
    ),
    # jsrun of Spectrum LSF, which also sets Open MPI's variables: they agree.
    Launcher(
        "jsm",
        marks="JSM_NAMESPACE_RANK",
        rank="JSM_NAMESPACE_RANK",
        size="JSM_NAMESPACE_SIZE",
        local_rank="JSM_NAMESPACE_LOCAL_RANK",
        local_size="JSM_NAMESPACE_LOCAL_SIZE",
    ),
    Launcher(
        "flux",
        marks="FLUX_TASK_RANK",
        rank="FLUX_TASK_RANK",
        size="FLUX_JOB_SIZE",
        local_rank="FLUX_TASK_LOCAL_ID",
        nodes="FLUX_JOB_NNODES",
        within="pals slurm",
    ),
    Launcher(
        "pals",
        marks="PALS_RANKID",
        rank="PALS_RANKID",
        local_rank="PALS_LOCAL_RANKID",
        local_size="PALS_LOCAL_SIZE",
        node_rank="PALS_NODEID",
    ),
    # A batch script without srun also has SLURM_PROCID and SLURM_NTASKS, but not the number of a step's tasks.
    Launcher(
        "slurm",
        marks="SLURM_STEP_NUM_TASKS",
        rank="SLURM_PROCID",
        size="SLURM_STEP_NUM_TASKS",
        local_rank="SLURM_LOCALID",
        node_rank="SLURM_NODEID",
        nodes="SLURM_STEP_NUM_NODES",
    ),
    Launcher("pmix", marks="PMIX_RANK", rank="PMIX_RANK"),
)


def find_rank_position(environ: Mapping[str, str]) -> RankPosition:
    """Return the position of this process; without a launcher's variables it is the only rank.

    LaunchError if variables are incomplete or impossible (rank 4 of 4), or if two launchers disagree.
    """
    launchers = [launcher for launcher in LAUNCHERS if _find_set(environ, launcher.marks)]
    if len(launchers) > 1 and launchers[0].name == "environment" and not environ.get("RANK"):
        around, size = launchers[1], _read_number(environ, "WORLD_SIZE", least=1)  # such as that of a batch script
        if size != _read_position(around, environ).world_size:
            raise LaunchError(
                f"WORLD_SIZE={size} is set without RANK, but {_quote_variables(around, environ)}: unset WORLD_SIZE, "
                f"and the variables of {around.name} tell the ranks"
            )
        launchers = launchers[1:]
    positions = [(launcher, _read_position(launcher, environ)) for launcher in launchers]
    if not positions:
        _check_known(environ)
        return RankPosition("single", 0, 1, 0, 1, 0, 1)
    (first, position), *others = positions
    slurm = first.name == "slurm"
    for other, theirs in others:
        if position.rank == theirs.rank and len({position.world_size, theirs.world_size} - {None}) < 2:
            gaps = {name: getattr(theirs, name) for name in FACTS if getattr(position, name) is None}
            position = replace(position, **gaps)
            slurm |= other.name == "slurm"
        elif other.name not in first.within.split():
            raise LaunchError(
                f"two launchers disagree: {_quote_variables(first, environ)}, but {_quote_variables(other, environ)}; "
                f"unset the variables of the launcher that did not start this process"
            )
    position = _derive_from_node(position)
    _check_position(position, first, environ)
    return replace(position, address=None if position.world_size == 1 else _find_address(environ, slurm))


def _check_known(environ: Mapping[str, str]) -> None:
    """Raise LaunchError if a launcher that is not in the table has started several processes."""
    for name, rank in sorted(environ.items()):
        size = environ.get(f"{name.removesuffix('RANK')}SIZE", "")
        if name.endswith("_RANK") and NUMBER.fullmatch(rank) and NUMBER.fullmatch(size) and int(rank) < int(size) > 1:
            raise LaunchError(
                f"{name}={rank} and {name.removesuffix('RANK')}SIZE={size} look like those of a launcher, which this "
                "program does not know: set RANK and WORLD_SIZE to them, MASTER_ADDR (rank 0's host) and MASTER_PORT "
                "(a free port there); or unset them to run as a single process"
            )


def guess_node(rank: int, environ: Mapping[str, str]) -> str:
    """Return where a rank of a Slurm step or of torchrun is if they are dealt out in blocks; "" if unknown."""
    nodes, tasks = environ.get("SLURM_STEP_NODELIST", ""), environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    with contextlib.suppress(ValueError, IndexError, ZeroDivisionError):
        if nodes and tasks:
            ends = list(itertools.accumulate(count_tasks(tasks)))
            return list(list_hosts(nodes))[bisect.bisect_right(ends, rank)]
        return f"node {rank // int(environ.get('LOCAL_WORLD_SIZE', ''))}"
    return ""


def blame_environment(environ: Mapping[str, str]) -> str:
    """Return which variables make this process one of several ranks, and how to be rid of them; "" under torchrun."""
    own = [name for name in OWN_VARIABLES.split() if environ.get(name)]
    if "RANK" not in own or "TORCHELASTIC_RUN_ID" in environ:
        return ""
    values = ", ".join(f"{name}={environ[name]}" for name in own)
    return (
        f"{values} in the environment make this process one of several ranks; if it is to run alone, `unset "
        f"{' '.join(own)}`. Otherwise: "
    )


def _find_set(environ: Mapping[str, str], names: str) -> str | None:
    """Return the first variable that is set; an empty value counts as unset."""
    return next((name for name in names.split() if environ.get(name)), None)


def _read_number(environ: Mapping[str, str], names: str, least: int = 0) -> int | None:
    name = _find_set(environ, names)
    if name is None:
        return None
    if not NUMBER.fullmatch(environ[name]) or int(environ[name]) < least:
        raise LaunchError(
            f"{name} is {environ[name]!a:.40}, expected a whole number from {least}: start through the launcher, or "
            "unset it"
        )
    return int(environ[name])


def _read_position(launcher: Launcher, environ: Mapping[str, str]) -> RankPosition:
    # Where a launcher tells no size, a job script may.
    rank, size = _read_number(environ, launcher.rank), _read_number(environ, launcher.size or "WORLD_SIZE", least=1)
    if rank is None or (size is None and launcher.size):
        lost = launcher.rank if rank is None else launcher.size
        there = _find_set(environ, launcher.marks)
        alone = "" if environ.get("SLURM_STEP_NUM_TASKS") else f", or unset {there} to run as a single process"
        raise LaunchError(f"{there} is set, but {lost} is not: start all ranks by one launcher that sets both{alone}")
    position = RankPosition(
        launcher.name,
        rank,
        size,
        local_rank=_read_number(environ, launcher.local_rank),
        local_size=_read_number(environ, launcher.local_size, least=1),
        node_rank=_read_number(environ, launcher.node_rank),
        nodes=_read_number(environ, launcher.nodes, least=1),
    )
    tasks = environ.get("SLURM_STEP_TASKS_PER_NODE")
    if launcher.name == "slurm" and tasks and position.node_rank is not None:
        with contextlib.suppress(ValueError, IndexError):  # then the host names decide which ranks share a node
            position = replace(position, local_size=count_tasks(tasks)[position.node_rank])
    return position


def _quote_variables(launcher: Launcher, environ: Mapping[str, str]) -> str:
    return f"{launcher.name} says " + ", ".join(
        f"{name}={environ.get(name)}" for name in (launcher.rank, launcher.size) if name
    )


def _derive_from_node(position: RankPosition) -> RankPosition:
    """Return the position with gaps filled if all ranks are on one node."""
    if position.world_size is None or (position.nodes != 1 and position.world_size not in (1, position.local_size)):
        return position
    local_rank = position.rank if position.local_rank is None else position.local_rank
    return replace(position, local_rank=local_rank, local_size=position.world_size, node_rank=0, nodes=1)


def _check_position(position: RankPosition, launcher: Launcher, environ: Mapping[str, str]) -> None:
    pairs = (
        ("rank", position.rank, position.world_size),
        ("local rank", position.local_rank, position.local_size),
        ("node", position.node_rank, position.nodes),
    )
    for noun, number, count in pairs:
        if number is not None and count is not None and number >= count:
            raise LaunchError(
                f"{noun} {number} of {count} is impossible, counted from 0: {_quote_variables(launcher, environ)}; "
                f"correct these variables or those of the local ranks and nodes, or start through the launcher alone"
            )


def _find_address(environ: Mapping[str, str], slurm: bool) -> tuple[str, int] | None:
    """Return MASTER_ADDR and MASTER_PORT, or what follows from the Slurm step; None if the environment has neither."""
    host, port = environ.get("MASTER_ADDR"), _read_number(environ, "MASTER_PORT", least=1)
    if host and port is not None:
        if port >= 65_536:
            raise LaunchError(f"MASTER_PORT is {port}, expected a port from 1 to 65535")
        return host.removeprefix("[").removesuffix("]"), port  # an address of IPv6 has brackets in URLs only
    if host or port is not None:
        raise LaunchError("only one of MASTER_ADDR and MASTER_PORT is set: set both, or unset both")
    nodes, job = environ.get("SLURM_STEP_NODELIST"), _read_number(environ, "SLURM_JOB_ID")
    # The list of nodes is sorted, and rank 0 is on the first, except in an arbitrary distribution.
    if not slurm or not nodes or job is None or environ.get("SLURM_DISTRIBUTION", "").startswith("arbitrary"):
        return None
    step = _read_number(environ, "SLURM_STEP_ID") or 0
    try:
        return next(list_hosts(nodes)), PORTS[(job + 7919 * step) % len(PORTS)]
    except (ValueError, StopIteration):
        raise LaunchError(
            f"SLURM_STEP_NODELIST is {nodes!r}, expected a list such as nid[001-004,007]: "
            f"set MASTER_ADDR (rank 0's host) and MASTER_PORT (a free port there)"
        ) from None
