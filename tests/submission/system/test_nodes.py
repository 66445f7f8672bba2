"""The description of several nodes: their lines under the variables of each launcher, and how they merge."""

import json
import os

import pytest

from common.errors import LaunchError
from common.ranks.launch import find_rank_position
from submission.system.__main__ import main
from submission.system.describe import collect_notes, count_parts, merge_fields


def srun(rank, nodes=2, per_node=1):
    """Return the variables of a rank that srun starts."""
    return {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": f"{nodes * per_node}",
        "SLURM_STEP_NUM_NODES": f"{nodes}",
        "SLURM_STEP_TASKS_PER_NODE": f"{per_node}(x{nodes})",
        "SLURM_PROCID": f"{rank}",
        "SLURM_NODEID": f"{rank // per_node}",
        "SLURM_LOCALID": f"{rank % per_node}",
    }


def torchrun(rank):
    return {
        "TORCHELASTIC_RUN_ID": "none",
        **{"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "RANK": f"{rank}", "WORLD_SIZE": "4"},
        **{"LOCAL_RANK": f"{rank % 2}", "LOCAL_WORLD_SIZE": "2"},
        **{"GROUP_RANK": f"{rank // 2}", "GROUP_WORLD_SIZE": "2"},
    }


def openmpi(rank):
    names = {"RANK": rank, "SIZE": 4, "LOCAL_RANK": rank % 2, "LOCAL_SIZE": 2}
    return {f"OMPI_COMM_WORLD_{name}": f"{value}" for name, value in names.items()}


def by_hand(rank):
    return {"RANK": f"{rank}", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.fixture
def print_node(monkeypatch, call):
    """Return what --this-node prints in a process with a launcher's variables; host: that it takes itself to be on."""

    def print_lines(variables, host, *words):
        with monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("SLURM_")]:
                patch.delenv(name)
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.setattr("socket.gethostname", lambda: host)
            return call(main, "--this-node", *words).out

    return print_lines


@pytest.fixture
def lines(print_node):
    """Return what makes the lines of three nodes of a job: nid0 to nid2; CUDNN_VERSION is what differs."""

    def make(*versions, words=()):
        variables = [srun(rank, nodes=3) | {"CUDNN_VERSION": version} for rank, version in enumerate(versions)]
        return [print_node(each, f"nid{at}", *words) for at, each in enumerate(variables)]

    return make


@pytest.fixture
def merge(tmp_path, call):
    """Merge the nodes of a text into a description; return what is said, and the fields."""

    def merge_nodes(text, *words):
        nodes, system = tmp_path / "nodes.jsonl", tmp_path / "system.json"
        nodes.write_text(text)
        said = call(main, "--merge", nodes, "-o", system, "--force", *words).err
        return said, json.loads(system.read_text())

    return merge_nodes


@pytest.mark.parametrize(
    ("ranks", "printing"),
    [
        ([srun(rank) for rank in range(2)], 2),
        ([srun(rank, per_node=2) for rank in range(4)], 2),
        ([srun(rank, nodes=1, per_node=2) for rank in range(2)], 1),
        ([torchrun(rank) for rank in range(4)], 2),
        ([openmpi(rank) for rank in range(4)], 2),
        # Nothing says which ranks share a node: each prints a line, and the host counts once.
        ([by_hand(rank) for rank in range(2)], 2),
        ([{}], 1),
    ],
    ids=["srun", "srun-2-per-node", "srun-1-node", "torchrun", "openmpi", "by-hand", "single"],
)
def test_one_process_of_a_node_prints_lines_that_srun_leaves_whole(print_node, merge, ranks, printing):
    hosts = [rank.get("SLURM_NODEID", str(at // 2)) for at, rank in enumerate(ranks)]
    printed = [print_node(rank, host) for rank, host in zip(ranks, hosts, strict=True)]
    said = [text for text in printed if text]
    assert len(said) == printing and all(len(line.encode()) < 1024 for text in said for line in text.splitlines())
    assert merge("".join(printed))[1]["number_of_nodes"] == str(len(set(hosts)))


def test_lines_are_read_from_files_in_any_order_among_others(tmp_path, lines, merge):
    first, second, third = lines("8", "8", "8")
    (tmp_path / "more").write_text(f"{second}{first}")
    mixed = "".join(f"1: {line}\nLoading modules\n" for line in reversed(third.splitlines()))
    text = mixed + first + '\x00\n{"node": 1}\n'
    said, fields = merge(text, "--merge", tmp_path / "nodes.jsonl", tmp_path / "more")
    assert "3 nodes read\n" in said
    assert fields["number_of_nodes"] == "3" and "nid" not in str(fields)


def test_differences_are_told_and_noted(lines, merge):
    text = "".join(lines("8", "8", "9"))
    said, fields = merge(text)
    assert "3 nodes read; they differ" in said and "warning: other_software_stack: " in said
    assert "cuDNN 9 on node 2 (nid2)" in said
    assert "cuDNN 8" in fields["other_software_stack"] and "cuDNN 9 on 1 of 3 nodes" in fields["sw_notes"]
    said, fields = merge(text, "--set", "other_software_stack=cuDNN")
    assert "3 nodes read\n" in said and "warning" not in said
    assert fields["other_software_stack"] == "cuDNN" and "cuDNN" not in fields["sw_notes"]


def test_differences_are_noted_after_what_people_note(tmp_path, lines, merge):
    """And in place of those of an earlier description."""
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"sw_notes": "built with love; other_software_stack: cuDNN 7 on 1 of 2 nodes"}))
    notes = merge("".join(lines("8", "8", "9")), "--from", other)[1]["sw_notes"]
    assert notes.startswith("built with love; other_software_stack: ")
    assert "cuDNN 9 on 1 of 3 nodes" in notes and "cuDNN 7" not in notes


def test_the_power_of_each_node_is_told_and_noted_once(tmp_path, lines, merge):
    """The meter of node 1 is broken, which does not count as a difference between the nodes."""
    meter = tmp_path / "meter"
    meter.write_text('#!/bin/sh\n[ $1 = nid1 ] && echo "no answer" >&2 && exit 3\necho $((240 + SLURM_NODEID * 10))\n')
    meter.chmod(0o755)
    words = ("--power", f"command:node:watts:{meter} {{host}}")
    said, fields = merge("".join(lines("8", "8", "8", words=words)))
    assert "3 nodes read\n" in said and "\nnode 0 (nid0): 240 W\n" in said and "\nnode 2 (nid2): 260 W\n" in said
    assert f"warning: no power of node 1 (nid1): {meter} nid1: ended with exit status 3: no answer" in said
    assert fields["hw_notes"].endswith("power of a node when described: 240 to 260 W (command, 2 of 3 nodes)")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one, two, three: one + three, "2 nodes (nid0, nid2), which are 2 of the 3 nodes or ranks"),
        (lambda one, two, three: one + two + three.replace('"nid2"', '"nid1"'), "2 nodes (nid0, nid1)"),
        (lambda one, two, three: "srun: error\n", "no lines about a node"),
        (lambda one, two, three: one + two.replace("cuDNN 8", "cuDNN 9").replace("nid1", "nid0"), "another other_soft"),
        (lambda one, two, three: one.replace('"total":3', '"total":1') + one, "another number of nodes"),
        (lambda one, two, three: one[:90] + two + three, "nodes.jsonl:1: not the description of a node"),
        (lambda one, two, three: one.partition("\n")[2] + two + three, "fields of nid0: a line is missing"),
        (lambda one, two, three: one + two.replace('"parts":1', '"parts":0'), "not the description of a node"),
        (lambda one, two, three: one.replace('"parts":1', '"parts":true'), "not the description of a node"),
        (lambda one, two, three: one.replace('"watts":null', '"watts":-1'), "not the description of a node"),
        (lambda one, two, three: one.replace('"fields":{', '"fields":{"cooling":3,'), "not the description of a node"),
        (lambda one, two, three: one.partition("{")[1] + '"mlperf_hpc_node":' + "[" * 100_000, "not the description"),
    ],
)
def test_lines_that_do_not_describe_all_nodes_are_refused(tmp_path, lines, call, change, said):
    (tmp_path / "nodes.jsonl").write_text(change(*lines("8", "8", "8")))
    assert said in call(main, "--merge", tmp_path / "nodes.jsonl", "-o", tmp_path / "system.json", status=1).err
    assert not (tmp_path / "system.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "system.json"], "2 processes would each describe their node: add --this-node"),
        (["--this-node", "-o", "system.json"], "--this-node prints"),
        (["--this-node", "--power", "rapl"], "reads parts of a node"),
    ],
)
def test_wrong_use_ends_all_ranks_and_is_told_once(words, said, monkeypatch, call):
    errors = []
    for rank in range(2):
        for name, value in srun(rank).items():
            monkeypatch.setenv(name, value)
        errors.append(call(main, *words, status=2).err)
    assert said in errors[0] and errors[1] == ""


def test_a_launcher_must_say_how_many_ranks_there_are():
    for variables in ({"PMIX_RANK": "0", "PMIX_NAMESPACE": "a"}, {"PALS_RANKID": "0", "PALS_APID": "a"}):
        with pytest.raises(LaunchError, match="does not say how many ranks there are"):
            count_parts(find_rank_position(variables))


def test_most_nodes_decide_and_unknown_values_never():
    large, small, unknown = {"host_memory_capacity": "512 GB", "cooling": "air"}, {"host_memory_capacity": "384 GB"}, {}
    fields, differences = merge_fields([small, large, unknown, unknown, large, unknown])
    assert fields == {"number_of_nodes": "6", "host_memory_capacity": "512 GB", "cooling": "air"}
    assert collect_notes(differences, 6) == {"hw_notes": ["host_memory_capacity: 384 GB on 1 of 6 nodes"]}
    told = [difference.format_warning([f"{node}" for node in range(6)]) for difference in differences]
    assert told == [
        "host_memory_capacity: 512 GB on nodes 1, 4; 384 GB on node 0; not detected on nodes 2, 3, 5",
        "cooling: air on nodes 1, 4; not detected on nodes 0, 2, 3, 5",
    ]
    assert merge_fields([large, large]) == ({"number_of_nodes": "2", **large}, [])


def test_many_differences_stay_short():
    nodes = [{"host_processor_frequency": f"{number} MHz"} for number in range(1000)]
    _, [difference] = merge_fields(nodes)
    assert collect_notes([difference], 1000)["hw_notes"][0].endswith("5 MHz on 1 of 1000 nodes, 994 more values")
    assert difference.format_warning([f"{node}" for node in range(1000)]).endswith("4 MHz on node 4; 995 more values")
