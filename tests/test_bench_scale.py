"""bench/scale.py: what a rank sends is counted, and the first thing that breaks is found."""

import os
import socket

import pytest

from tests.bench_script import bench_script


@pytest.fixture(scope="module")
def page():
    return bench_script("scale_page")


@pytest.fixture
def result():
    return bench_script("records").read_record("scale")


def test_the_first_thing_that_breaks_is_named(page, result):
    for ranks, descriptors in ((result["ranks"][-2], 100), (result["ranks"][-1], 110)):
        ranks["descriptors"]["main"] = descriptors
        ranks["descriptor_limit"]["other"] = 1024
    between = result["ranks"][-1]["ranks"] - result["ranks"][-2]["ranks"]
    expected = result["ranks"][-1]["ranks"] + 914 * between / 10
    assert (expected, "descriptors of rank 0 where 1,024 are allowed") in page.find_limits(result)
    for ranks in result["ranks"]:  # a rank that raises its own limit
        ranks["descriptor_limit"]["other"] = 524_288
    assert not any("1,024" in what for _, what in page.find_limits(result))
    result["ranks"][-1]["actions"]["meeting"]["other"]["received"] = 2**23 - 1
    assert page.find_limits(result)[0][1].startswith("the largest value of the store")
    assert "First, before 10,000: at " in page.write_page(result)


def test_lines_go_on_as_they_are_measured_and_break_nothing_if_they_do_not_grow(page):
    line = page.Line([{"ranks": 2, "x": 9}, {"ranks": 4, "x": 7}], lambda ranks: ranks["x"])
    assert line.reaches(100) == float("inf") and line.at(10_000) == 7
    assert page.Line([{"ranks": 2, "x": 1}, {"ranks": 4, "x": 5}], lambda ranks: ranks["x"]).at(14) == 25
    squares = page.Line([{"ranks": 10, "x": 30}, {"ranks": 20, "x": 50}], lambda ranks: ranks["x"])
    assert squares.reaches_for_all(100 * 210) == pytest.approx(100)  # of 10 + 2 × 100 each


def test_counters_see_what_goes_through_connections_and_which_files_are_opened(tmp_path):
    pytest.importorskip("torch")
    counters = bench_script("scale_ranks").Counters()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as here:
        there, _ = listener.accept()
        with there:
            for _ in range(2):
                with counters.counting("talk"):
                    here.sendall(b"x" * 500)
                    assert there.recv(500, socket.MSG_WAITALL)
                    (tmp_path / "file").write_bytes(b"")
                    os.listdir(tmp_path)
    talk = counters.actions["talk"]
    names = ("times", "received", "messages_out", "messages_in", "files", "folders", "processes")
    assert [talk[name] for name in names] == [2, 1000, 2, 2, 2, 2, 0]
    assert 1000 <= talk["sent"] <= 1001  # the acknowledged start of the connection
    assert talk["wall_us"] > 0 and talk["read"] >= 0


def test_all_actions_are_on_the_page(page):
    pytest.importorskip("torch")
    watched = {*bench_script("scale_ranks").ACTIONS, "meeting", "sign of life", "end", "second staging"}
    assert watched == set(page.ACTIONS)
