"""Staging on several nodes, which four ranks on this machine pretend to be: each node has a folder of its own.

Run as a script, by torchrun, this file is one of the ranks.
"""

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.data import node_memory
from common.ranks.connect import connect
from common.settings.machine import DistConfig
from common.staging import plan
from common.staging.stage import StagingConfig, StagingError, stage_dataset, stage_url
from common.staging.stage_dir import UnfinishedFile
from tests.common.data.server import FileServer, needs_storage
from tests.common.files import write_files
from tests.common.staging.test_stage import SAMPLES, contents, described, make_source

CHUNK_BYTES = 1300
"""Some files are smaller, some larger."""


class Rank:
    """One of four ranks, as 2 nodes of 2 ranks and as 4 nodes; each node has a folder of its own."""

    def __init__(self, folder):
        plan.CHUNK_BYTES, node_memory.LEAST_SHARED = CHUNK_BYTES, 1
        os.umask(0o022)  # others must not be able to write to what is prepared in a stage_dir
        self.rank, self.folder, self.source = int(os.environ["RANK"]), folder, folder / "source"
        names = [(name, i) for name, n in SAMPLES.items() for i in range(n)]
        self.files = [described(self.source, *name) for name in names] if self.rank == 0 else []
        self.opened, self.report = [], {}
        sys.addaudithook(self.note)

    def note(self, event, arguments):
        if event == "open" and str(arguments[0]).startswith(f"{self.source}/"):
            self.opened.append(str(arguments[0]).removeprefix(f"{self.source}/"))

    def main(self):
        for local_size in (2, 1):
            node, nodes = self.rank // local_size, 4 // local_size
            local = {"LOCAL_RANK": str(self.rank % local_size), "LOCAL_WORLD_SIZE": str(local_size)}
            os.environ.update(local | {"GROUP_RANK": str(node), "GROUP_WORLD_SIZE": str(nodes)})
            with connect(DistConfig(device="cpu", timeout_s=60)) as dist:
                self.stage("replicate", dist)
                self.stage("shard", dist, mode="shard")
                self.stage("url", dist, url=os.environ["DATASET_URL"])
                if nodes == 2:
                    self.resume(dist)
                    self.repair(dist)
                    self.fail(dist)
        (self.folder / f"rank{self.rank}.json").write_text(json.dumps(self.report))

    def stage(self, case, dist, mode="replicate", stage_dir=None, keep=False, url=None):
        """Stage, and report what was opened and read, or the error."""
        self.opened.clear()
        stage_dir = stage_dir or node_folder(self.folder, case, dist.nodes, dist.node_rank)
        config = StagingConfig(mode=mode, stage_dir=stage_dir, workers=2, keep=keep, source=url)
        try:
            staged = stage_url(config, dist) if url else stage_dataset(self.files, self.source, config, dist, SAMPLES)
        except StagingError as error:
            report = {"error": str(error)}
        else:
            report = staged.log_facts() | {
                "node": dist.node_rank,
                "names": sorted(staged.names),
                "opened": [*self.opened],
            }
            if keep:
                staged.close()
        self.report[f"{case}-{dist.nodes}"] = report

    def resume(self, dist):
        """Both nodes have a file, one node has another one too."""
        for name, ranks in (("train/00.bin", (0, 2)), ("train/01.bin", (2,))):
            if dist.rank in ranks:
                body = (self.source / name).read_bytes()
                write_files(node_folder(self.folder, "resumed", 2, dist.node_rank), {name: body})
        dist.barrier()
        self.stage("resumed", dist)

    def repair(self, dist):
        """One node has lost a file since the last staging, which the first or the second of its ranks looks for."""
        for mode in ("replicate", "shard"):
            for place in (0, -1):
                case = f"repaired-{mode}{place}"
                self.stage(case, dist, mode, keep=True)
                if dist.rank == 2:
                    files = sorted(node_folder(self.folder, case, 2, 1).rglob("*.bin"))
                    files[place].unlink()
                dist.barrier()
                self.stage(case, dist, mode, keep=True)

    def fail(self, dist):
        self.stage("common", dist, stage_dir=self.folder / "common")
        write = UnfinishedFile.write_data

        def write_or_fail(unfinished, data):
            if dist.rank == 2 and unfinished.file.name == "train/09.bin":
                raise OSError(errno.ENOSPC, "No space left on device")
            write(unfinished, data)

        UnfinishedFile.write_data = write_or_fail
        self.stage("full", dist)
        UnfinishedFile.write_data = write


def node_folder(folder, case, nodes, node):
    return folder / f"{case}-{nodes}/node{node}"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Run four ranks; return the folder in which they worked and their reports."""
    folder = tmp_path_factory.mktemp("ranks")
    make_source(folder / "source")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    path = str(Path(__file__).resolve().parents[3])
    bodies = {f"/{name}": body for name, body in contents(folder / "source").items()}
    entries = {name[1:]: {"bytes": len(b), "sha256": hashlib.sha256(b).hexdigest()} for name, b in bodies.items()}
    bodies["/manifest.json"] = json.dumps({"benchmark": "cosmoflow", "files": entries}).encode()
    with FileServer(bodies) as server:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "DATASET_URL": server.url}
        subprocess.run([*command, __file__, str(folder)], check=True, timeout=120, env=environment)
    reports = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(4)]
    return SimpleNamespace(folder=folder, of=lambda case: [report[case] for report in reports], asked=server.asked)


@pytest.mark.parametrize("nodes", [2, 4])
def test_replicate_reads_every_byte_once_over_all_nodes(ranks, nodes):
    source = contents(ranks.folder / "source")
    size = sum(map(len, source.values()))
    reports = ranks.of(f"replicate-{nodes}")
    assert {report["staging_bytes_read"] for report in reports} == {size}
    assert {report["staging_bytes_written"] for report in reports} == {size * nodes}
    # Not only by our count, but by Python's own events: a file is opened once per piece, by one rank of each node.
    opened = Counter(name for report in reports for name in report["opened"])
    assert opened == {name: -(-len(data) // CHUNK_BYTES) for name, data in source.items()}
    assert sum(bool(report["opened"]) for report in reports) == nodes
    for node in range(nodes):
        assert contents(node_folder(ranks.folder, "replicate", nodes, node)) == source


@needs_storage
def test_a_server_is_asked_for_every_byte_once_by_all_nodes_together(ranks):
    source = contents(ranks.folder / "source")
    for nodes in (2, 4):
        assert all("error" not in report for report in ranks.of(f"url-{nodes}"))
        for node in range(nodes):
            assert contents(node_folder(ranks.folder, "url", nodes, node)) == source
    requests = Counter(path[1:] for path, _ in ranks.asked)
    pieces = {name: -(-len(body) // CHUNK_BYTES) for name, body in source.items()}
    assert {name: requests[name] for name in source} == {name: 2 * count for name, count in pieces.items()}


@pytest.mark.parametrize("nodes", [2, 4])
def test_shards_share_the_files_among_the_nodes(ranks, nodes):
    source = contents(ranks.folder / "source")
    reports = ranks.of(f"shard-{nodes}")
    assert {report["staging_bytes_read"] for report in reports} == {sum(map(len, source.values()))}
    assert all(report["opened"] for report in reports)
    held = [contents(node_folder(ranks.folder, "shard", nodes, node)) for node in range(nodes)]
    assert all(report["names"] == sorted(held[report["node"]]) for report in reports)
    assert sum(map(len, held)) == len(source)
    assert {name: data for files in held for name, data in files.items()} == source


def test_only_what_some_node_lacks_is_read(ranks):
    source = contents(ranks.folder / "source")
    size = sum(len(data) for name, data in source.items() if name != "train/00.bin")
    assert ranks.of("resumed-2")[0]["staging_bytes_read"] == size
    assert all(contents(node_folder(ranks.folder, "resumed", 2, node)) == source for node in range(2))


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("mode", ["replicate", "shard"])
def test_a_lost_file_alone_is_copied_to_its_node_alone(ranks, mode, place):
    [written] = {report["staging_bytes_written"] for report in ranks.of(f"repaired-{mode}{place}-2")}
    node = contents(node_folder(ranks.folder, f"repaired-{mode}{place}", 2, 1))
    assert written == len(sorted(node.items())[place][1])


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("common-2", r"node [01]: staging.stage_dir .*/common is shared by several nodes"),
        ("full-2", r"node 1: .*/full-2/node1/train/09.bin: no space left"),
    ],
)
def test_a_failure_on_one_node_stops_all_with_the_same_message(ranks, case, expected):
    messages = {report["error"] for report in ranks.of(case)}
    assert len(messages) == 1 and re.match(expected, messages.pop())
    assert not list(ranks.folder.rglob("*.part")) and not contents(ranks.folder / "common")


if __name__ == "__main__":
    Rank(Path(sys.argv[1])).main()
