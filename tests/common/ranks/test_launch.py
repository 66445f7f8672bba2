"""common.ranks.launch: places from the environments of the launchers, as they set them on clusters."""

import random

import pytest

from common.errors import LaunchError
from common.ranks.launch import LAUNCHERS, RankPosition, find_rank_position, guess_node
from common.slurm import count_tasks, count_tasks_without_srun, list_hosts

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "ROLE_RANK": "5",
    "MASTER_ADDR": "nid001",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "7",
}
SBATCH = {
    "SLURM_JOB_ID": "1234567",
    "SLURM_NTASKS": "11",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_TASKS_PER_NODE": "4(x2),3",
    "SLURM_NODELIST": "nid[001-002,007]",
}
SRUN = SBATCH | {
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "11",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
    "SLURM_STEP_NODELIST": "nid[001-002,007]",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "PMIX_RANK": "3",
    "PMIX_NAMESPACE": "prterun-1",
}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "4", "PMI_FD": "9", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
PALS = {
    "PALS_RANKID": "13",
    "PALS_NODEID": "1",
    "PALS_LOCAL_RANKID": "1",
    "PALS_LOCAL_SIZE": "12",
    "PALS_APID": "0d9e",
    "PMI_RANK": "13",
    "PMI_SIZE": "24",
    "PMI_LOCAL_RANK": "1",
    "PMI_LOCAL_SIZE": "12",
}
FLUX = {
    "FLUX_TASK_RANK": "6",
    "FLUX_JOB_SIZE": "8",
    "FLUX_TASK_LOCAL_ID": "2",
    "FLUX_JOB_NNODES": "2",
    "FLUX_JOB_ID": "f2XR",
    "PMI_RANK": "6",
    "PMI_SIZE": "8",
}
JSRUN = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "12",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "6",
    "PMIX_RANK": "3",
    "JSM_NAMESPACE_RANK": "3",
    "JSM_NAMESPACE_SIZE": "12",
}
INTEL_IN_SLURM = SRUN | {
    "PMI_RANK": "3",
    "PMI_SIZE": "8",
    "MPI_LOCALRANKID": "3",
    "MPI_LOCALNRANKS": "4",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
CRAY = SRUN | {
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "PMI_RANK": "5",
    "PMI_SIZE": "8",
    "PMI_LOCAL_RANK": "1",
    "PMI_LOCAL_SIZE": "4",
    "PALS_RANKID": "5",
    "PALS_NODEID": "1",
}
STEP = ("nid001", 24567)


PLACES = {
    "nothing": ({"HOME": "/home/me"}, RankPosition("single", 0, 1, 0, 1, 0, 1)),
    "torchrun": (TORCHRUN, RankPosition("torchrun", 5, 8, 1, 4, 1, 2, ("nid001", 29500))),
    "torchrun, one process": (
        TORCHRUN
        | {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0"}
        | {"GROUP_WORLD_SIZE": "1"},
        RankPosition("torchrun", 0, 1, 0, 1, 0, 1),
    ),
    "set by hand": (
        {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
        RankPosition("environment", 1, 2, address=("a", 1)),
    ),
    "sbatch without srun": (SBATCH, RankPosition("single", 0, 1, 0, 1, 0, 1)),
    "srun": (SRUN, RankPosition("slurm", 9, 11, 1, 3, 2, 3, STEP)),
    "srun --mpi=pmi2": (
        SRUN | {"PMI_RANK": "9", "PMI_SIZE": "11"},
        RankPosition("pmi", 9, 11, 1, 3, 2, 3, STEP),
    ),
    "srun --mpi=pmix": (SRUN | {"PMIX_RANK": "9"}, RankPosition("slurm", 9, 11, 1, 3, 2, 3, STEP)),
    "srun, position set by hand in the script": (
        SRUN | {"RANK": "9", "WORLD_SIZE": "11", "LOCAL_RANK": "1", "MASTER_ADDR": "nid001", "MASTER_PORT": "4000"},
        RankPosition("environment", 9, 11, 1, 3, 2, 3, ("nid001", 4000)),
    ),
    "srun, one torchrun per node": (
        SRUN | TORCHRUN | {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x3)"},
        RankPosition("torchrun", 5, 8, 1, 4, 1, 2, ("nid001", 29500)),
    ),
    "srun --pty bash": (
        SRUN
        | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_STEP_NUM_TASKS": "1"}
        | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_TASKS_PER_NODE": "1"},
        RankPosition("slurm", 0, 1, 0, 1, 0, 1),
    ),
    "Open MPI": (OPENMPI, RankPosition("openmpi", 3, 4, 1, 2)),
    "Open MPI in a Slurm job, whose step is its daemons": (OPENMPI | SRUN, RankPosition("openmpi", 3, 4, 1, 2)),
    "Hydra, one node": (HYDRA, RankPosition("pmi", 1, 4, 1, 4, 0, 1)),
    "Hydra, two nodes": (HYDRA | {"MPI_LOCALNRANKS": "2"}, RankPosition("pmi", 1, 4, 1, 2)),
    "Hydra in a Slurm job": (HYDRA | SRUN, RankPosition("pmi", 1, 4, 1, 4, 0, 1)),
    "PALS": (PALS, RankPosition("pmi", 13, 24, 1, 12, 1)),
    "PALS with PMIx": (
        {name: value for name, value in PALS.items() if "PMI" not in name} | {"PMIX_RANK": "13"},
        RankPosition("pals", 13, None, 1, 12, 1),
    ),
    "Flux": (FLUX, RankPosition("pmi", 6, 8, 2, None, None, 2)),
    "Flux without PMI": (
        {name: value for name, value in FLUX.items() if "PMI" not in name},
        RankPosition("flux", 6, 8, 2, None, None, 2),
    ),
    "MVAPICH2": (
        {"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_SIZE": "4", "MV2_COMM_WORLD_LOCAL_RANK": "1"}
        | {"MV2_COMM_WORLD_LOCAL_SIZE": "2"},
        RankPosition("mvapich2", 3, 4, 1, 2),
    ),
    "jsrun without Open MPI": (
        {"JSM_NAMESPACE_RANK": "3", "JSM_NAMESPACE_SIZE": "12", "JSM_NAMESPACE_LOCAL_RANK": "3"}
        | {"JSM_NAMESPACE_LOCAL_SIZE": "6"},
        RankPosition("jsm", 3, 12, 3, 6),
    ),
    "srun of a script that exports WORLD_SIZE": (
        SRUN | {"WORLD_SIZE": "11"},
        RankPosition("slurm", 9, 11, 1, 3, 2, 3, STEP),
    ),
    "srun with tasks of too few nodes": (
        SRUN | {"SLURM_STEP_TASKS_PER_NODE": "4(x2)"},
        RankPosition("slurm", 9, 11, 1, None, 2, 3, STEP),
    ),
    "a launcher that started one process": ({"X_RANK": "0", "X_SIZE": "1"}, RankPosition("single", 0, 1, 0, 1, 0, 1)),
    "PMIx alone": ({"PMIX_RANK": "3", "PMIX_NAMESPACE": "a"}, RankPosition("pmix", 3, None)),
    "jsrun": (JSRUN, RankPosition("openmpi", 3, 12, 3, 6)),
    "Intel MPI in a Slurm job, one step of daemons": (INTEL_IN_SLURM, RankPosition("pmi", 3, 8, 3, 4)),
    "srun --mpi=cray_shasta": (CRAY, RankPosition("pmi", 5, 8, 1, 4, 1, 2, STEP)),
    "salloc, a shell on the node": (
        SRUN
        | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_STEP_NUM_TASKS": "1"}
        | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_STEP_ID": "4294967290"},
        RankPosition("slurm", 0, 1, 0, 1, 0, 1),
    ),
    "an address of IPv6, as in a URL": (
        {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "[::1]", "MASTER_PORT": "1"},
        RankPosition("environment", 1, 2, address=("::1", 1)),
    ),
    "Kubeflow PyTorchJob": (
        {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"},
        RankPosition("environment", 1, 4, address=("job-master-0", 23456)),
    ),
    "srun --distribution=arbitrary: rank 0 may be anywhere": (
        SRUN | {"SLURM_DISTRIBUTION": "arbitrary"},
        RankPosition("slurm", 9, 11, 1, 3, 2, 3),
    ),
    "the last port": (
        {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "65535"},
        RankPosition("environment", 1, 2, address=("a", 65535)),
    ),
    "a job of one rank": ({"RANK": "0", "WORLD_SIZE": "1"}, RankPosition("environment", 0, 1, 0, 1, 0, 1)),
    "empty values": ({"RANK": "", "WORLD_SIZE": ""}, RankPosition("single", 0, 1, 0, 1, 0, 1)),
}


@pytest.mark.parametrize(("environ", "position"), PLACES.values(), ids=PLACES)
def test_place(environ, position):
    assert find_rank_position(environ) == position


REFUSED = {
    "an unknown launcher": ({"X_RANK": "0", "X_SIZE": "4"}, "X_RANK=0 and X_SIZE=4 look .*: set RANK and WORLD_SIZE"),
    "another WORLD_SIZE in srun": (SRUN | {"WORLD_SIZE": "2"}, "WORLD_SIZE=2 is set without RANK.*unset WORLD_SIZE, "),
    "no size": ({"RANK": "1"}, "RANK is set, but WORLD_SIZE is not: .*unset RANK"),
    "no rank": ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set, but RANK is not"),
    "size lost": ({"OMPI_COMM_WORLD_RANK": "1"}, "OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE is not"),
    "rank lost in a container": (
        {name: value for name, value in SRUN.items() if name != "SLURM_PROCID"},
        "SLURM_STEP_NUM_TASKS is set, but SLURM_PROCID is not",
    ),
    "rank too large": (HYDRA | {"PMI_RANK": "4"}, "rank 4 of 4 is impossible.*PMI_RANK=4, PMI_SIZE=4"),
    "local rank too large": (OPENMPI | {"OMPI_COMM_WORLD_LOCAL_RANK": "2"}, "local rank 2 of 2 is impossible"),
    "no number": (HYDRA | {"PMI_SIZE": "many"}, "PMI_SIZE is 'many', expected a whole number"),
    "negative": (HYDRA | {"PMI_RANK": "-1"}, "PMI_RANK is '-1', expected a whole number from 0"),
    "negative without RANK": ({"PMI_RANK": "-1", "WORLD_SIZE": "4"}, "PMI_RANK is '-1'"),
    "no ranks on the node": (
        {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "0"},
        "LOCAL_WORLD_SIZE is '0'.*from 1",
    ),
    "too many digits": ({"RANK": "0", "WORLD_SIZE": "9" * 5000}, "WORLD_SIZE is '9{30,40}, expected"),
    "negative port": (HYDRA | {"MASTER_ADDR": "a", "MASTER_PORT": "-1"}, "MASTER_PORT is '-1'.*from 1"),
    "leftovers in the shell": (
        SRUN | {"RANK": "0", "WORLD_SIZE": "1"},
        "environment says RANK=0, WORLD_SIZE=1, but slurm says SLURM_PROCID=9, SLURM_STEP_NUM_TASKS=11; unset",
    ),
    "two mpiruns": (OPENMPI | HYDRA, "openmpi says .*, but pmi says PMI_RANK=1"),
    "pmix of another rank": (SRUN | {"PMIX_RANK": "1"}, "slurm says .*, but pmix says PMIX_RANK=1"),
    "leftover RANK without WORLD_SIZE in srun": (SRUN | {"RANK": "9"}, "RANK is set, but WORLD_SIZE is not"),
    "no port": (HYDRA | {"MASTER_ADDR": "a", "MASTER_PORT": "65536"}, "MASTER_PORT is 65536, expected a port from 1"),
    "no list": (SRUN | {"SLURM_STEP_NODELIST": "nid[a-b]"}, r"SLURM_STEP_NODELIST is 'nid\[a-b\]', expected a list"),
    "half an address": (HYDRA | {"MASTER_ADDR": "a"}, "only one of MASTER_ADDR and MASTER_PORT is set"),
}


@pytest.mark.parametrize(("environ", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(environ, message):
    with pytest.raises(LaunchError, match=message):
        find_rank_position(environ)


def test_any_environment_gives_a_position_or_an_error_that_names_a_variable():
    fields = ("marks", "rank", "size", "local_rank", "local_size", "node_rank", "nodes")
    names = sorted({name for launcher in LAUNCHERS for field in fields for name in getattr(launcher, field).split()})
    names += "MASTER_ADDR MASTER_PORT SLURM_STEP_NODELIST SLURM_STEP_TASKS_PER_NODE SLURM_JOB_ID A_RANK".split()
    values = ["", "9" * 5000, *"-1 0 1 4 a 1.5 ² ٣ \udcff 4(x2) 4(x99999999999) n[1- n[b-1]".split()]
    draw = random.Random(0)
    for _ in range(3000):
        environ = {name: draw.choice(values) for name in draw.sample(names, draw.choice((1, 2, 3, 6)))}
        guess_node(draw.randrange(5), environ)
        count_tasks_without_srun(environ)
        try:
            find_rank_position(environ)
        except LaunchError as error:
            assert any(name in str(error) for name in environ)


def test_steps_of_a_job_meet_elsewhere():
    """Jobs and steps have different ports, below the ephemeral ones."""
    positions = [
        find_rank_position(SRUN | {"SLURM_JOB_ID": job, "SLURM_STEP_ID": step}) for job in "12" for step in "01"
    ]
    ports = {position.address[1] for position in positions}
    assert len(ports) == 4 and all(20_000 <= port < 30_000 for port in ports)


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [
        ("nid[001-002,007]", "nid001 nid002 nid007"),
        ("nid[007,009-010],login1", "nid007 nid009 nid010 login1"),
        ("node1,node[2-3]", "node1 node2 node3"),
        ("rack[1-2]-node[03-04]", "rack1-node03 rack1-node04 rack2-node03 rack2-node04"),
        ("a-[1,3]-ib,b", "a-1-ib a-3-ib b"),
        ("n[8-11]", "n8 n9 n10 n11"),
        ("x1000c0s0b0n0,x1000c0s0b0n1", "x1000c0s0b0n0 x1000c0s0b0n1"),
        ("", ""),
    ],
)
def test_host_names(nodes, hosts):
    assert list(list_hosts(nodes)) == hosts.split()


def test_tasks_per_node():
    assert count_tasks("4(x2),3") == [4, 4, 3] and count_tasks("12") == [12]
    with pytest.raises(ValueError, match="such as"):
        count_tasks("4x2")


def test_the_likely_node_of_a_rank():
    step = {"SLURM_STEP_NODELIST": "nid[1-3]", "SLURM_STEP_TASKS_PER_NODE": "4(x2),3"}
    assert [guess_node(rank, step) for rank in (0, 3, 4, 10, 11)] == ["nid1", "nid1", "nid2", "nid3", ""]
    assert guess_node(5, {"LOCAL_WORLD_SIZE": "4"}) == "node 1" and guess_node(5, {}) == ""


def test_tasks_that_srun_did_not_start_are_counted():
    assert count_tasks_without_srun({"SLURM_NTASKS": "4"}) == 4
    assert count_tasks_without_srun({"SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}) == 0
