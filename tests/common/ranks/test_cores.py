"""Cores of a node with two NUMA nodes of four cores with two hardware threads each, and four accelerators."""

import os
from types import SimpleNamespace

import pytest
import torch

from common.ranks import connect, cores
from common.ranks.cores import find_near_cores, format_cores, parse_cores, share_cores
from common.ranks.dist import Dist, DistConfig
from common.ranks.launch import RankPosition

ALL = frozenset(range(16))
NODES = {0: "0-3,8-11", 1: "4-7,12-15"}


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Return a tree like /sys; accelerators 0 and 1 are in NUMA node 0, 2 and 3 in node 1, and 4 is nowhere."""

    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")

    for core in ALL:
        write(f"devices/system/cpu/cpu{core}/topology/thread_siblings_list", f"{core % 8},{core % 8 + 8}")
    for node, its in NODES.items():
        write(f"devices/system/node/node{node}/cpulist", its)
    for device in range(4):
        write(f"bus/pci/devices/0001:{0xA0 + device:02x}:00.0/numa_node", device // 2)
    write("bus/pci/devices/0001:a4:00.0/numa_node", -1)

    def properties(device):
        return SimpleNamespace(pci_domain_id=1, pci_bus_id=0xA0 + device.index, pci_device_id=0)

    monkeypatch.setattr(torch, "get_device_module", lambda _: SimpleNamespace(get_device_properties=properties))
    monkeypatch.setattr(cores, "SYS", tmp_path)
    return tmp_path


def near(number, bound=ALL):
    return find_near_cores(torch.device("cuda", number), frozenset(bound))


def test_cores_near_a_device(system):
    assert [format_cores(near(number)) for number in range(4)] == [NODES[0], NODES[0], NODES[1], NODES[1]]
    assert near(0, range(2, 6)) == {2, 3}
    assert near(0, {5, 6}) == {5, 6}, "a launcher's binding is kept even if it is far away"
    assert near(4) == near(9) == ALL


def test_ranks_divide_the_cores_near_their_devices(system):
    ranks = [near(number) for number in range(4)]
    assert [format_cores(share_cores(ranks, rank)) for rank in range(4)] == [
        "0-1,8-9",
        "2-3,10-11",
        "4-5,12-13",
        "6-7,14-15",
    ]
    bound_by_launcher = [near(0, {0, 8}), near(1, {1, 9})]
    assert [share_cores(bound_by_launcher, rank) for rank in (0, 1)] == [{0, 8}, {1, 9}]
    assert share_cores([frozenset({3})] * 2, 1) == {3}, "too few to divide"


def test_lists_of_cores():
    assert parse_cores("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11} and parse_cores("\n") == frozenset()
    assert format_cores(frozenset({0, 1, 2, 3, 8, 10, 11})) == "0-3,8,10-11"


@pytest.mark.parametrize(
    ("bind", "device", "expected"), [("auto", "cuda", True), ("off", "cuda", False), ("auto", "cpu", False)]
)
def test_a_rank_is_bound_once_it_has_an_accelerator(system, monkeypatch, capsys, bind, device, expected):
    bound = [ALL]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: bound[-1])
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, chosen: bound.append(chosen))
    alone = Dist(RankPosition("single", 0, 1, 0, 1, 0, 1), torch.device(device, 2))
    assert connect.binds_cores(alone, DistConfig(bind=bind)) == expected
    for _ in range(2 * expected):
        connect._bind_cores(alone, [near(2, bound[-1])])
    assert bound == ([ALL, parse_cores(NODES[1])] if expected else [ALL])
    assert capsys.readouterr().out.count("rank 0 on 4-7,12-15 (dist.bind)") == expected
