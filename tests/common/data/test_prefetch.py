"""Work ahead of its use: order, errors, the end."""

import contextlib
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from common.data import prefetch
from common.data.prefetch import TensorBatch, carry_batches, in_order, read_batches
from common.data.split import Split


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_results_come_filled_and_in_order():
    def jobs():
        for i in range(20):
            result = []
            yield result, [lambda result=result, part=part: slow(result, part) for part in range(i % 4)]

    def slow(result, part):
        time.sleep(0.002 * (part % 2))
        result.append(part)

    found = [sorted(result) for result in in_order(jobs(), workers=3, ahead=4)]
    assert found == [list(range(i % 4)) for i in range(20)]
    assert not threads()


def test_no_more_jobs_are_taken_than_asked_for():
    taken = []

    def jobs():
        for i in range(100):
            taken.append(i)
            yield i, [lambda: None]

    with closing(in_order(jobs(), workers=2, ahead=3)) as results:
        assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
        assert len(taken) == 5 + 3
    assert not threads()


def test_an_error_comes_in_its_turn_and_ends_the_work():
    def fail():
        raise ValueError("univ_7 is damaged")

    jobs = [(0, [lambda: None]), (1, [lambda: None, fail]), (2, [lambda: time.sleep(0.01)] * 50)]
    results = in_order(jobs, workers=2, ahead=3)
    assert next(results) == 0
    with pytest.raises(ValueError, match="univ_7"):
        next(results)
    assert not threads()


@dataclass(frozen=True)
class Box:
    batch: TensorBatch
    wait_s: float = 0.0


def boxes(count):
    return [Box(TensorBatch(torch.full((2,), i), torch.zeros(1), np.arange(2))) for i in range(count)]


def test_on_a_cpu_tensors_are_passed_on():
    given = boxes(2)
    for ours, box in zip(carry_batches(iter(given), torch.device("cpu")), given, strict=True):
        assert ours.batch is box.batch and ours.wait_s > 0


class Stream(contextlib.nullcontext):
    """Stands in for a stream of an accelerator: notes what waits for which event."""

    def __init__(self, name, done):
        super().__init__()
        self.name, self.done, self.events = name, done, 0

    def record_event(self):
        self.events += 1
        event = f"{self.name} {self.events}"
        return SimpleNamespace(name=event, synchronize=lambda: self.done.append(f"host waits for {event}"))

    def wait_event(self, event):
        self.done.append(f"{self.name} waits for {event.name}")


def test_the_next_batch_travels_meanwhile_and_the_host_stays_near_the_device(monkeypatch):
    done, kept = [], []
    side, current = Stream("copy", done), Stream("use", done)
    monkeypatch.setattr(prefetch, "side_stream", lambda device: side)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: current)
    monkeypatch.setattr(prefetch, "_keep_memory", lambda tensor, stream: kept.append(stream) or tensor)
    for number, box in enumerate(carry_batches(iter(boxes(5)), torch.device("meta"))):
        done.append(f"batch {number}")
        assert box.batch.x.is_meta and side.events == min(number + 2, 5)
    assert [line for line in done if "host" not in line] == [
        line for number in range(5) for line in (f"use waits for copy {number + 1}", f"batch {number}")
    ]
    assert [line for line in done if "host" in line] == [f"host waits for use {number}" for number in (1, 2, 3)]
    assert kept == [current] * 10


class Numbers(Split):
    """Sample i is i, many times over, and -i."""

    def files_of(self, index):
        return ()

    def buffer(self, count, pinned):
        x = torch.empty((count, 1 << 16), dtype=torch.int16, pin_memory=pinned)
        return x, torch.empty((count, 1), pin_memory=pinned)

    def read_into(self, index, into):
        into[0][:], into[1][:] = index, -index


@pytest.mark.parametrize("workers", [None, 1])
def test_batches_have_their_samples(workers):
    """On an accelerator also: what is computed on a batch late, while its memory waits to be used again, is right."""
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    samples = Numbers(Path("train"), list(map(str, range(500))), None, SimpleNamespace(cache=True, workers=workers))
    steps = [np.arange(i, i + i % 5) for i in range(60)]
    found = []
    for batch, chosen in zip(read_batches(samples, steps, device), steps, strict=True):
        assert batch.indices is chosen and batch.x.device.type == batch.y.device.type == device.type
        found.append((batch.x.long().sum(1), batch.y.flatten() * 1))
    for (x, y), chosen in zip(found, steps, strict=True):
        assert x.tolist() == (chosen << 16).tolist() and y.tolist() == (-chosen).tolist()
    assert not threads()


@pytest.mark.parametrize(
    ("device", "cores", "threads"),
    [("cpu", 1, 2), ("cpu", 3, 3), ("cpu", 64, 4), ("cuda", 3, 2), ("cuda", 16, 14), ("cuda", 99, 16)],
)
def test_reading_threads_follow_cores_and_device(monkeypatch, device, cores, threads):
    monkeypatch.setattr(prefetch, "usable_cores", lambda: cores)
    assert prefetch.reading_threads(None, torch.device(device)) == threads
    assert prefetch.reading_threads(7, torch.device(device)) == 7
