"""common.ranks.control: what ranks of several nodes tell each other, without connections of all with all."""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

pytest.importorskip("torch")

from common.ranks.meeting import FAN_OUT, seat_ranks
from tests.problems import ROOT

WORKER = Path(__file__).with_name("many_ranks.py")


@pytest.mark.parametrize(
    ("ranks", "nodes", "most_connected"),
    [
        (2, 1, 1),
        (2, 2, 256),
        (13, 3, 1),
        pytest.param(24, 2, 256, marks=pytest.mark.exhaustive),
        pytest.param(64, 4, 1, marks=pytest.mark.exhaustive),  # ranks take turns on few cores
    ],
)
def test_all_ranks_hear_what_each_says(ranks, nodes, most_connected):
    command = [sys.executable, str(WORKER), *map(str, (ranks, nodes, most_connected))]
    # torch looks up the name of each rank that connects, which may take long where no name server answers.
    brief = {"RES_OPTIONS": "timeout:1 attempts:1"}
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | brief
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    files = [int(line) for line in done.stdout.splitlines()]
    assert len(files) == ranks
    if most_connected == 1:
        assert min(files) < 60, "a rank that leads no others has few connections, however many ranks there are"


@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (8, 1), (9, 1), (96, 3), (1000, 1000), (10_000, 2500)])
def test_seats_of_the_control_plane(ranks, nodes):
    """Groups are small, join ranks of a node before nodes, and lead from each rank to rank 0."""
    node_of = [rank % nodes for rank in range(ranks)]
    seats = seat_ranks(node_of)
    groups = defaultdict(list)
    for rank, own in enumerate(seats):
        for level, leader, number, size in own:
            groups[level, leader, size].append((number, rank))
        assert all(seat.number == 0 and seat.leader == rank for seat in own[:-1])
    for (_, leader, size), members in groups.items():
        numbers, found = zip(*members, strict=True)
        assert numbers == tuple(range(size)) and size <= FAN_OUT and found[0] == leader
    for rank in range(ranks):
        way = [rank]
        while way[-1]:
            way.append(seats[way[-1]][-1].leader)
        passed = [node_of[other] for other in way]
        assert len(way) <= 6 and passed == sorted(passed, key=passed.index), "a node is left once"
