"""The meter of steps: how those of several ranks add up, what it counts, and what it costs."""

import os

import pytest
import torch

from common.measure.meter import Meter, RankUse, StepUse, Traffic, combine_ranks, count_bytes
from common.ranks.connect import connect


def test_steps_of_two_ranks():
    waits = [StepUse(1.0, 0.7, 0.1, 80), StepUse(2.0, 0.1, 0.0, 80)]  # the other rank waits for it, as communication
    computes = [StepUse(1.1, 0.0, 0.5, 80), StepUse(2.0, 0.2, 0.4, 80)]
    times, use = combine_ranks([RankUse(waits, (300, 20), 2.0, 0.002), RankUse(computes, (100, 0), 3.0, 0.009)])
    assert times == [1.1, 2.0] and (use["waiting_ms"], use["communicating_ms"]) == pytest.approx((450, 50))
    assert use["computing_ms"] == pytest.approx((300 + 1800) / 2)
    assert (use["bytes_read_per_step"], use["stored_bytes_per_step"], use["bytes_reduced_per_step"]) == (200, 10, 80)
    assert (use["cpu_ms_per_step"], use["meter_cpu_share"]) == (2500, pytest.approx(0.003))
    assert use["wait_share"] == pytest.approx(0.8 / 3.0)
    _, unknown = combine_ranks([RankUse(waits, None, 1.0, 0.0)])
    assert unknown["bytes_read_per_step"] is unknown["stored_bytes_per_step"] is None


def test_reads_are_those_of_files_alone(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(12_345))
    with connect() as dist:
        meter = Meter(dist)

        def step():
            handle = os.open(path, os.O_RDONLY)
            os.pread(handle, 20_000, 0)
            os.close(handle)
            return 0.25

        for _ in range(4):
            meter.run_step(step)
            assert meter.last_s() > 0
        meter.clear_steps()
        meter.run_step(step)
        times, use = meter.gather_use()
    assert use["bytes_read_per_step"] == 12_345 and use["waiting_ms"] == 250 and len(times) == 1
    assert use["bytes_reduced_per_step"] == use["communicating_ms"] == 0


def test_only_what_follows_the_last_message_is_exposed(monkeypatch):
    now = iter([1.0, 2.0, 5.0, 9.0])  # two messages begin, both end
    monkeypatch.setattr("common.measure.meter.time.perf_counter", lambda: next(now))
    traffic = Traffic(torch.device("cpu"))
    traffic.begin_message(torch.zeros(10))
    traffic.begin_message(torch.zeros(5, dtype=torch.bfloat16))
    traffic.end_message()
    traffic.end_message()
    exposed, sent = traffic.take_counts()
    assert (exposed.seconds, sent) == (7.0, 50)
    exposed, sent = traffic.take_counts()
    assert (exposed.seconds, sent) == (0.0, 0)


def test_bytes_touched():
    a, b = torch.ones(1000), torch.ones(1000)
    assert count_bytes(lambda: torch.add(a, b)) == 12_000
    assert count_bytes(lambda: a.view(10, 100).t()) == 0
    assert count_bytes(lambda: torch.zeros(1000).fill_(2.0)) == 8000  # written twice
    assert count_bytes(lambda: torch.matmul(a.view(10, 10, 10), b.view(100, 10)[:10])) == 4000 + 400 + 4000
    x = torch.ones(100, requires_grad=True)
    assert count_bytes(lambda: (x * x).sum().backward()) > 5 * 400  # the backward pass, too
