"""Ranks meet where a node's host name means its loopback address."""

import pytest

from tests.problems import curve


@pytest.mark.exhaustive
def test_ranks_meet_where_debian_gives_a_host_name_a_loopback_address(cluster, problem, tmp_path):
    for node in cluster.nodes:
        cluster.hosts(node, f"127.0.1.1 {node}")
    try:
        done = cluster.run("srun", "-N", "2", "-n", "2", "python", *problem.words(tmp_path, "dist.timeout_s=30"))
    finally:
        for node in cluster.nodes:
            cluster.hosts(node)
    assert "2 ranks on 2 node(s)" in done.text, str(done)
    assert len(curve(tmp_path)) == 2
