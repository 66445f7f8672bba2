"""Memory that is used in turn: a device whose streams lag behind at random shows what is overwritten too early."""

import random
from collections import deque

import numpy as np
import pytest
import torch

from common.data.prefetch import in_order
from common.data.ring import Fresh, Ring

AHEAD = 2
SIZES = [3, 4, 0, 2, *[4] * 30, 5, *[4] * 30, 1]


class LaggingDevice:
    """Stands in for `ring.Copies`: work waits in two queues and is done late, at random, in order per stream.

    ignored: "host" or "device": treat slots there as free at all times, which must show.
    """

    def __init__(self, seed, ignored=""):
        self.random, self.ignored = random.Random(seed), ignored
        self.copying, self.computing = deque(), deque()
        self.allocations = 0
        self.ended = False

    # what a ring asks for

    def allocate_like(self, count, like):
        self.allocations += 1
        return tuple(torch.full((count, *one.shape[1:]), -1, dtype=one.dtype) for one in like)

    def start_copy(self, sources, targets, free):
        if self.ignored != "device":
            self.copying.append(free)
        for source, target in zip(sources, targets, strict=True):
            self.copying.append(lambda source=source, target=target: target.copy_(source))
        return self.event(self.copying)

    def await_copy(self, copied):
        self.computing.append(copied)

    def record_use(self):
        return self.event(self.computing)

    def await_copies(self):
        self.ended = True

    # the work

    def event(self, queue):
        event = LaggingEvent(self)
        queue.append(event.happen)
        return event

    def lag(self):
        for _ in range(self.random.randrange(12)):
            self.work()

    def work(self):
        """Do the next piece of work of a stream, unless it waits for an event; return whether there was one."""
        for queue in self.random.sample((self.copying, self.computing), 2):
            if queue and not (isinstance(queue[0], LaggingEvent) and not queue[0].happened):
                first = queue.popleft()
                if not isinstance(first, LaggingEvent):
                    first()
                return True
        return False


class LaggingEvent:
    def __init__(self, device):
        self.device, self.happened = device, False

    def happen(self):
        self.happened = True

    def synchronize(self):
        while not self.happened and self.device.ignored != "host":
            assert self.device.work(), "the host waits for what cannot happen"


def pass_over(device, sizes=SIZES):
    """Read, move and use batches; return whether each was used as it was read, and the addresses of host memory."""
    allocated = []

    def allocate(count):
        allocated.append(torch.empty(count, 8, dtype=torch.int64))
        return allocated[-1], torch.empty(count)

    ring, correct = Ring(allocate, AHEAD, device), []

    def jobs():
        for number, size in enumerate(sizes):
            slot = ring.take_slot(size)

            def fill(x=slot.tensors[0], y=slot.tensors[1], number=number):
                x.fill_(number)
                y.fill_(-number)

            yield (slot, np.full(size, number)), [fill]

    for (x, y), indices, wait_s in ring.carry_batches(in_order(jobs(), workers=2, ahead=AHEAD)):
        number = len(correct)

        def use(x=x, y=y, number=number, indices=indices):
            assert len(x) == len(y) == len(indices) == sizes[number]
            correct[number] = bool((x == number).all() and (y == -number).all() and (indices == number).all())

        assert wait_s >= 0
        correct.append(None)
        device.lag()
        device.computing.append(use)
        device.lag()
    while device.work():
        pass
    assert device.ended
    return correct, allocated


@pytest.mark.parametrize("seed", range(20))
def test_no_batch_is_overwritten_while_it_is_in_use(seed):
    correct, _ = pass_over(LaggingDevice(seed))
    assert correct == [True] * len(SIZES)


@pytest.mark.parametrize("ignored", ["host", "device"])
def test_the_lagging_device_shows_a_slot_that_is_used_too_early(ignored):
    assert any(False in pass_over(LaggingDevice(seed, ignored))[0] for seed in range(20))


def test_memory_is_allocated_once():
    device = LaggingDevice(0)
    _, host = pass_over(device, [4] * 50 + [3])
    assert (len(host), device.allocations) == (AHEAD + 2, 3)


def test_closing_early_keeps_memory_from_other_uses():
    device = LaggingDevice(0)
    ring = Ring(lambda count: (torch.zeros(count),), AHEAD, device)
    batches = ring.carry_batches((ring.take_slot(1), np.zeros(1)) for _ in range(9))
    next(batches)
    batches.close()
    assert device.ended


def test_on_a_cpu_each_batch_has_memory_of_its_own():
    memory = Fresh(lambda count: (torch.zeros(count),))
    batches = list(memory.carry_batches((memory.take_slot(2), np.arange(2)) for _ in range(20)))
    assert len({tensors[0].data_ptr() for tensors, _, _ in batches}) == 20
