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
    for ranks in result["ranks"]:
        ranks["descriptors"]["main"] = 2 * ranks["ranks"]
        ranks["descriptor_limit"]["other"] = 1024
    limits = {what: ranks for ranks, what in page.find_limits(result)}
    assert limits["descriptors of rank 0 where 1,024 are allowed (fitted)"] == pytest.approx(512)
    for ranks in result["ranks"]:  # a rank that raises its own limit
        ranks["descriptor_limit"]["other"] = 524_288
    assert not any("1,024" in what for _, what in page.find_limits(result))
    result["meetings"][0]["largest"] = 2**23
    assert page.find_limits(result)[0] == (10_000, page.find_limits(result)[0][1])
    assert page.find_limits(result)[0][1].startswith("the largest value of the store")
    assert "at 10,000 ranks, the largest" in page.write_page(result)


def test_powers_are_fitted_through_all_numbers_of_ranks(page):
    def fit(*values):
        return page.Power([{"ranks": 2**i, "x": value} for i, value in enumerate(values)], lambda ranks: ranks["x"])

    hidden = fit(100, 102, 106)  # 2 for each rank: the power would say 0.04
    assert hidden.at(1004) == 2106 and hidden.reaches(2106) == pytest.approx(1004)

    squares = fit(3, 12, 48, 192)
    assert squares.exponent == pytest.approx(2) and squares.at(100) == pytest.approx(30_000)
    assert squares.reaches(300) == pytest.approx(10)
    assert fit(7, 7, 7).reaches(100) == fit(0, 0).reaches(1) == float("inf") and fit(7, 7).at(10_000) == pytest.approx(
        7
    )


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
