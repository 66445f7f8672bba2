"""Many ranks of one machine for test_control.py: `many_ranks.py RANKS NODES MOST_CONNECTED`.

They are forked from one process, since each would import torch for seconds, and dealt out to the nodes in turn, but
for rank 1, which is beside rank 0. Prints the open files of each rank beyond those of a single process.
"""

import os
import socket
import sys

import psutil
import torch

from common.ranks import connect as connect_room
from common.ranks import dist as dist_room
from common.settings.machine import DistConfig
from common.training.step import FlatGradients
from tests.common.ranks.test_meeting import free_port


def node_of(rank, nodes):
    return max(0, rank - 1) % nodes


def run_rank(rank, size, nodes):
    socket.gethostname = lambda: f"node{node_of(rank, nodes)}"
    before = psutil.Process().num_fds()
    with connect_room.connect(DistConfig(timeout_s=200, start_timeout_s=200)) as dist:
        ranks = range(size)
        expected = [node_of(other, nodes) for other in ranks]
        assert dist.find_nodes() == expected and dist.node_rank == expected[rank]
        own = expected[rank]
        assert (dist.local_rank, dist.local_size) == (expected[:rank].count(own), expected.count(own))
        values = torch.tensor([float(rank), 1.0])
        assert dist.all_reduce(values).tolist() == [sum(ranks), size]
        assert int(dist.all_reduce(torch.tensor(rank), "max")) == size - 1
        for src in {0, 1, size // 2, size - 1}:
            assert dist.broadcast(torch.tensor([rank, rank]), src).tolist() == [src, src]
            assert dist.broadcast_json({"from": rank} if rank == src else None, src) == {"from": src}
        texts = [f"{other}" * (other % 7) for other in ranks]
        assert dist.gather_json(texts[rank]) == (texts if rank == 0 else [])
        assert dist.find_first([rank] if rank > 1 else None) == ([2] if size > 2 else None)
        leaders = dist.find_leaders()
        assert (leaders is None) == (dist.local_rank > 0)
        if leaders:
            firsts = [expected.index(node) for node in range(dist.nodes)]
            assert leaders.broadcast_json(leaders.gather_json(rank)) == firsts
        own, link = dist.split(1)
        assert int(own.all_reduce(torch.tensor(1))) == (1 if rank == size - 1 else size - 1)
        assert link is None or link.broadcast_json(link.rank) == 0
        layer = torch.nn.Linear(4, 1, bias=False)
        gradients = FlatGradients(layer.parameters(), dist)
        layer(torch.full((1, 4), float(rank))).sum().backward()
        gradients.average()
        assert layer.weight.grad.flatten().tolist() == [sum(ranks) / size] * 4
        assert dist.reduces_in_backward == (size <= dist_room.MOST_CONNECTED)
        print(f"{psutil.Process().num_fds() - before}\n", end="", flush=True)


def main():
    size, nodes, most_connected = map(int, sys.argv[1:])
    dist_room.MOST_CONNECTED = connect_room.MOST_CONNECTED = most_connected
    torch.set_num_threads(1)
    os.environ |= {"WORLD_SIZE": str(size), "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            os.environ["RANK"] = str(rank)
            status = 1
            try:
                run_rank(rank, size, nodes)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    return any(statuses)


if __name__ == "__main__":
    sys.exit(main())
