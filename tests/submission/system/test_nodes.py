"""The description of several nodes: processes under the variables of each launcher, and how their answers merge."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from common.ranks.launch import LaunchError, find_rank_position
from submission.system.__main__ import main
from submission.system.describe import collect_notes, merge_fields
from submission.system.nodes import Answer, collect_answers, count_parts, meeting_folder, open_call

ROOT = Path(__file__).parents[3]


def srun(rank, nodes=2, per_node=1, job="7"):
    """Return the variables of a rank that srun starts."""
    return {
        "SLURM_JOB_ID": job,
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


def start(variables, *words):
    """Start the command as one rank; CUDNN_VERSION stands for what differs between nodes."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.Popen(
        [sys.executable, "-m", "submission.system", *map(str, words)],
        env=kept | {"PYTHONPATH": str(ROOT)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(ranks):
    """Return the exit statuses, and what each rank printed on standard error."""
    said = [rank.communicate(timeout=60)[1] for rank in ranks]
    return [rank.returncode for rank in ranks], said


@pytest.mark.parametrize(
    ("ranks", "nodes"),
    [
        ([srun(rank) for rank in range(2)], 2),
        ([srun(rank, per_node=2) for rank in range(4)], 2),
        ([srun(rank, nodes=1, per_node=2) for rank in range(2)], 1),
        ([torchrun(rank) for rank in range(4)], 2),
        # These launchers do not number the nodes; the host names do, and all ranks here share one.
        ([openmpi(rank) for rank in range(4)], 1),
        ([by_hand(rank) for rank in range(2)], 1),
    ],
    ids=["srun", "srun-2-per-node", "srun-1-node", "torchrun", "openmpi", "by-hand"],
)
def test_the_nodes_of_a_launch_are_merged(tmp_path, ranks, nodes):
    path = tmp_path / "system.json"
    statuses, said = ended([start(variables, "-o", path) for variables in ranks])
    assert statuses == [0] * len(ranks), said
    assert f"{path}: written" in said[0] and not any(said[1:]), "rank 0 alone speaks"
    assert json.loads(path.read_text())["number_of_nodes"] == str(nodes)
    assert list(path.parent.iterdir()) == [path]


def differing(path, *words):
    """Return what two nodes with different software say, and the fields that they write."""
    ranks = [start({**srun(rank), "CUDNN_VERSION": f"{8 + rank}"}, "-o", path, *words) for rank in range(2)]
    statuses, said = ended(ranks)
    assert statuses == [0, 0], said
    return said[0], json.loads(path.read_text())


def test_differences_are_told_and_noted(tmp_path):
    said, fields = differing(tmp_path / "system.json")
    assert "2 nodes, which differ; the value of most nodes is written\nwarning: other_software_stack: " in said
    assert "cuDNN 9 on node 1 (" in said
    assert fields["other_software_stack"].endswith("cuDNN 8") and "cuDNN 9 on 1 of 2 nodes" in fields["sw_notes"]


def test_differences_are_noted_after_what_people_note(tmp_path):
    """And in place of those of an earlier description."""
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"sw_notes": "built with love; other_software_stack: cuDNN 7 on 1 of 2 nodes"}))
    _, fields = differing(tmp_path / "system.json", "--from", other)
    assert fields["sw_notes"].startswith("built with love; other_software_stack: ")
    assert "cuDNN 9 on 1 of 2 nodes" in fields["sw_notes"] and "cuDNN 7" not in fields["sw_notes"]
    _, fields = differing(tmp_path / "set.json", "--from", other, "--set", "sw_notes=as given")
    assert fields["sw_notes"] == "as given"


def test_the_power_of_each_node_is_told_and_noted_once(tmp_path):
    """The meter of node 1 is broken, which does not count as a difference between the nodes."""
    meter = tmp_path / "meter"
    meter.write_text(
        '#!/bin/sh\n[ $SLURM_NODEID = 1 ] && echo "no answer" >&2 && exit 3\necho $((240 + SLURM_NODEID * 10))\n'
    )
    meter.chmod(0o755)
    path = tmp_path / "system.json"
    words = ("-o", path, "--power", f"command:node:watts:{meter} {{host}}")
    statuses, said = ended([start(srun(rank, nodes=3), *words) for rank in range(3)])
    assert statuses == [0, 0, 0] and not any(said[1:]), said
    host = socket.gethostname()
    assert "3 nodes, all the same" in said[0]
    assert f"\nnode 0 ({host}): 240 W\n" in said[0] and f"\nnode 2 ({host}): 260 W\n" in said[0]
    assert (
        f"warning: no power of node 1 ({host}): {meter} {host.partition('.')[0]}: exit status 3: no answer" in said[0]
    )
    notes = json.loads(path.read_text())["hw_notes"]
    assert notes.endswith("power of a node when described: 240 to 260 W (command, 2 of 3 nodes)")


def test_given_fields_do_not_differ(tmp_path):
    said, fields = differing(tmp_path / "system.json", "--set", "other_software_stack=cuDNN")
    assert "2 nodes, all the same" in said and "warning" not in said
    assert fields["other_software_stack"] == "cuDNN" and "cuDNN" not in fields["sw_notes"]


def test_what_a_killed_launch_left_is_not_merged(tmp_path):
    path = tmp_path / "system.json"
    folder = meeting_folder(path, find_rank_position(srun(0)), srun(0))
    stale = folder / "call_stale"
    stale.mkdir(parents=True)
    (folder / "call").write_text("call_stale")
    old = {"rank": 1, "parts": 1, "node": 1, "host": "old", "fields": {"cooling": "old"}}
    (stale / "rank_1.json").write_text(json.dumps(old))
    node = start(srun(1), "-o", path)
    while json.loads((stale / "rank_1.json").read_text())["host"] == "old":
        assert node.poll() is None, "it answers the stale call, and waits for another"
    statuses, said = ended([start(srun(0), "-o", path), node])
    assert statuses == [0, 0], said
    fields = json.loads(path.read_text())
    assert fields["number_of_nodes"] == "2" and "old" not in fields["cooling"] and not folder.exists()


def test_a_missing_node_is_named(tmp_path, capsys, monkeypatch):
    for name, value in srun(0, nodes=3).items():
        monkeypatch.setenv(name, value)
    node = start(srun(2, nodes=3), "-o", tmp_path / "system.json", "--timeout", "5")
    assert main(["-o", str(tmp_path / "system.json"), "--timeout", "1"]) == 1
    error = capsys.readouterr().err
    assert "no description of node 1 of 3" in error or "no description of nodes 1, 2 of 3" in error
    assert "give -o a folder that they share" in error and list(tmp_path.iterdir()) == []
    node.communicate(timeout=60)


def test_a_node_that_no_call_reaches_ends(tmp_path):
    statuses, said = ended([start(srun(1), "-o", tmp_path / "system.json", "--timeout", "1")])
    assert (statuses, said) == ([1], [""])


@pytest.mark.parametrize("words", [[], ["-o", "x.json", "--set", "coolnig=air"], ["-o", "x.json", "--power", "rapl"]])
def test_wrong_use_ends_all_ranks_and_is_told_once(words):
    statuses, said = ended([start(srun(rank), *words) for rank in range(2)])
    assert statuses == [2, 2] and said[0].startswith("error: ") and said[1] == ""


def pals(rank, job):
    """Return the variables of a rank on a Cray: those of PALS, and of its library's PMI, which alone says how many."""
    names = {"RANK": rank, "SIZE": 2, "LOCAL_RANK": 0, "LOCAL_SIZE": 1}
    return {"PALS_APID": job, "PALS_RANKID": f"{rank}", **{f"PMI_{name}": f"{value}" for name, value in names.items()}}


@pytest.mark.parametrize("launch", [lambda rank, job: srun(rank, job=job), pals], ids=["srun", "pals"])
def test_several_launches_beside_each_other_do_not_meet(tmp_path, launch):
    ranks = [launch(rank, job) for job in "12" for rank in range(2)]
    paths = [meeting_folder(tmp_path / "s.json", find_rank_position(rank), rank) for rank in ranks]
    assert paths[0] == paths[1] != paths[2] == paths[3] and paths[0].parent == tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"parts": 1}',
        '{"rank": 1, "parts": true, "node": 1, "host": "a", "fields": {}}',
        '{"rank": 1, "parts": -1, "node": 1, "host": "a", "fields": {}}',
        '{"rank": 2, "parts": 1, "node": 1, "host": "a", "fields": {}}',
        '{"rank": 1, "parts": 1, "node": 1, "host": "a", "fields": {"cooling": 3}}',
        '{"rank": 1, "parts": 1, "node": 1, "host": "a", "fields": ' + "[" * 100_000,
        '{"rank": 1, "parts": 1, "node": 1, "host": "a", "fields": {}, "power": 250}',
        '{"rank": 1, "parts": 1, "node": 1, "host": "a", "fields": {}, "power": {"watts": -1, "problem": ""}}',
    ],
)
def test_bad_answers_are_refused(tmp_path, text):
    place = find_rank_position(srun(0))
    with (
        open_call(tmp_path / "folder") as answers,
        pytest.raises(LaunchError, match=r"rank_1\.json .*nothing is written"),
    ):
        (answers / "rank_1.json").write_text(text)
        collect_answers(answers, Answer(0, 1, 0, "a", {}), place, 5)
    assert list(tmp_path.iterdir()) == []


def test_a_launcher_must_say_how_many_ranks_there_are():
    for variables in ({"PMIX_RANK": "0", "PMIX_NAMESPACE": "a"}, {"PALS_RANKID": "0", "PALS_APID": "a"}):
        with pytest.raises(LaunchError, match="does not say how many ranks there are"):
            count_parts(find_rank_position(variables))


def test_most_nodes_decide_and_unknown_values_never():
    large, small, unknown = {"host_memory_capacity": "512 GB", "cooling": "air"}, {"host_memory_capacity": "384 GB"}, {}
    fields, differences = merge_fields([small, large, unknown, unknown, large, unknown])
    assert fields == {
        "number_of_nodes": "6",
        "host_memory_capacity": "512 GB",
        "cooling": "air",
    }
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
