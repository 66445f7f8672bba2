"""One rank of the tests in test_dist.py: `ranks.py FOLDER STEP...` makes the steps in this order, inside connect()."""

import contextlib
import errno
import math
import os
import pickle
import signal
import sys
import time
import weakref
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as td
from torch import nn

from common.data import node_memory
from common.ending import Ending, EndingError, classify_error
from common.errors import LaunchError
from common.ranks import alarm
from common.ranks import dist as dist_room
from common.ranks.connect import connect
from common.ranks.parts import PartError, Parts
from common.settings.machine import DistConfig
from common.stop import STOP
from common.training.batchnorm import average_statistics, share_statistics
from common.training.step import FlatGradients


def methods(dist, folder):
    """Every method gives what all ranks together must give."""
    rank, size = dist.rank, dist.world_size
    ranks = list(range(size))
    assert size > 1 and dist.is_main == (rank == 0) and dist.device.type == "cpu"
    dist.barrier()
    for op, expected in (("sum", sum(ranks)), ("max", size - 1), ("min", 0)):
        tensor = torch.tensor([float(rank), -1.0])
        assert dist.all_reduce(tensor, op) is tensor and tensor[0] == expected, op
    for dtype in (torch.float32, torch.int16, torch.int64, torch.bool, torch.bfloat16):
        tensor = torch.full((2, 3), rank == 1).to(dtype)
        assert dist.broadcast(tensor, src=1) is tensor and bool(tensor.all()), dtype
    assert dist.broadcast(torch.tensor(rank)) == 0
    assert dist.broadcast(torch.empty(0)).numel() == 0
    strided = torch.full((4, 4), float(rank))
    dist.broadcast(strided[:, 1], src=1)
    assert strided[:, 1].eq(1).all() and strided[:, 0].eq(rank).all()
    assert dist.broadcast_json({"from": rank}, src=1) == {"from": 1}
    assert dist.broadcast_json(dist.gather_json(f"rank {rank}")) == [f"rank {other}" for other in ranks]
    assert math.isnan(dist.broadcast_json(math.nan)) and dist.find_first(None) is None
    assert dist.find_first([rank, "late"] if rank else None) == [1, "late"]
    assert dist.broadcast_bytes(bytes([rank] * 3), src=1) == b"\1\1\1" and dist.broadcast_bytes(b"", src=1) == b""
    dist.check_equal({"seed": 7}, "the seed")
    with pytest.raises(LaunchError):
        dist.check_equal(rank == 1, "the order")
    gradients(dist)
    (folder / f"place{rank}").write_text(str((dist.local_rank, dist.local_size, dist.node_rank, dist.nodes)))


def gradients(dist):
    """Check that the wrapped module starts from rank 0's parameters and averages gradients, but not inside no_sync."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, 3.0 + dist.rank)
    wrapped = dist.wrap(module)
    assert module.weight.item() == 3.0
    here = torch.full((1, 1), float(dist.rank))
    with dist.no_sync(wrapped):
        wrapped(here).sum().backward()
    assert module.weight.grad.item() == dist.rank
    wrapped(here).sum().backward()
    assert module.weight.grad.item() == dist.world_size - 1, "twice the mean: both passes are added up"


def averaging(dist, folder):
    """Check that each way of averaging gives what one process gives, in steps of one pass and of two."""
    for way in ({"bucket_mb": 0.01}, {"gradients": "bf16"}):
        dist._config = DistConfig(**way)
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
        wrapped = dist.wrap(module)
        for step, passes in enumerate((2, 1, 2)):
            x = torch.randn(passes, dist.world_size, 8, 64)
            module.zero_grad()
            for number in range(passes):
                with dist.no_sync(wrapped) if number + 1 < passes else contextlib.nullcontext():
                    wrapped(x[number, dist.rank]).square().sum().backward()
            found = [one.grad.clone() for one in module.parameters()]
            expected = torch.autograd.grad(module(x).square().sum() / dist.world_size, list(module.parameters()))
            wrong = max(float((ours - one).norm() / one.norm()) for ours, one in zip(found, expected, strict=True))
            low, high = (1e-5, 1e-2) if "gradients" in way else (0, 1e-6)
            assert low <= wrong < high, f"{way}, step {step}: {wrong}"
            for one in found:
                assert torch.equal(one, dist.broadcast(one.clone())), "the ranks differ"
        module.zero_grad()  # now without the wrapper, in buffers
        gradients, places = FlatGradients(module.parameters(), dist), []
        for number in range(2):
            gradients.clear_gradients()
            module(x[number, dist.rank]).square().sum().backward()
            gradients.average()
            expected = torch.autograd.grad(module(x[number]).square().sum() / dist.world_size, [*module.parameters()])
            for one, right in zip(module.parameters(), expected, strict=True):
                assert low <= float((one.grad - right).norm() / right.norm()) < high, way
            places.append([one.grad.data_ptr() for one in module.parameters()])
        assert places[0] == places[1], "the gradients have moved"
    torch.manual_seed(dist.rank)
    pair, gradients, means, messages = dist.group(2), torch.randn(1000), [], []
    for config in (DistConfig(), DistConfig(bucket_mb=0.001)):
        pair._config = config
        with mock.patch.object(td, "all_reduce", wraps=td.all_reduce) as sent:
            means.append(pair.average(gradients.clone()))
        messages.append(sent.call_count)
    assert messages == [1, 4] and torch.equal(*means), "a sum of two numbers does not depend on the message"


def groups(dist, folder):
    """Check groups of consecutive ranks, and that groups of unequal sizes are refused."""
    for size in (1, 2, dist.world_size):
        group = dist.group(size)
        assert (group.rank, group.world_size) == (dist.rank % size, size)
        first = dist.rank - dist.rank % size
        assert group.broadcast_json(group.gather_json(dist.rank)) == list(range(first, first + size))
    with pytest.raises(ValueError, match="groups"):
        dist.group(dist.world_size - 1)


def sharing(dist, folder):
    """Check the groups of ranks that share samples, which are on one node however ranks are numbered."""
    ranks, nodes = range(dist.world_size), dist.find_nodes()
    for spatial, node_of, mine, same_part in (
        (2, lambda rank: rank // 2, [[0, 1], [2, 3]], [[0, 2], [1, 3]]),
        ((1, 2), lambda rank: rank % 2, [[0, 2], [1, 3]], [[0, 1], [2, 3]]),  # ranks dealt out to the nodes in turn
        ((2, 2), lambda rank: rank % 2, [[0, 1, 2, 3]], [[0], [1], [2], [3]]),
    ):
        dist._config, dist._nodes = DistConfig(spatial=spatial), list(map(node_of, ranks))
        dist.share_samples()
        assert dist.sharing.broadcast_json(dist.sharing.gather_json(dist.rank)) == mine[dist.data_rank]
        assert dist.peers.broadcast_json(dist.peers.gather_json(dist.rank)) in same_part and dist.data_size == len(mine)
        group = dist.sharing
        for dtype in (torch.float64, torch.bfloat16, torch.int16):
            own, empty = torch.full((2, 3), dist.rank).to(dtype), torch.empty(0, 3).to(dtype)
            gathered = group.all_gather(own.mT)
            assert [int(one[0, 0]) for one in gathered] == mine[dist.data_rank] and gathered[0].shape == (3, 2)
            assert [one.shape for one in group.all_gather(empty)] == [empty.shape] * group.world_size
            ahead, behind = (group.rank + 1) % group.world_size, (group.rank - 1) % group.world_size
            found = torch.empty_like(own)
            group.exchange_tensors([(ahead, own)], [(behind, found)])()
            assert found.eq(mine[dist.data_rank][behind]).all() and found.dtype is dtype
    dist._config, dist._nodes = DistConfig(), nodes
    disagreement = "the ranks disagree on dist.device or dist.spatial"
    for spatial, says in ((3, "spatial"), (1 + dist.rank % 2, disagreement)):
        dist._config = DistConfig(spatial=spatial)
        with pytest.raises(LaunchError, match=says):
            dist.share_samples()


def batchnorm(dist, folder):
    """Normalised over groups, each pair of ranks does what one process does with the samples of both."""
    group = dist.group(2)
    double, single, half = {"rtol": 1e-11, "atol": 1e-11}, {"rtol": 1e-4, "atol": 1e-5}, {"rtol": 2e-2, "atol": 2e-2}
    for dtype, first, close in (
        (torch.float64, 2, double),
        (torch.float64, 5, double),  # the second rank has no samples
        (torch.float32, 2, single),
        (torch.bfloat16, 2, half),
    ):
        shared = _normalised_as_by_one_process(dist, group, dtype, first, close)
    ours = shared[0]
    variance = ours.running_var.clone()
    ours.running_mean.fill_(dist.rank)
    average_statistics(shared, dist)
    assert ours.running_mean.tolist() == [(dist.world_size - 1) / 2] * 3
    torch.testing.assert_close(ours.running_var, variance)
    x = torch.randn(5, 3, 4, 6)
    assert torch.equal(shared.eval()(x), ours(x))
    assert type(share_statistics(nn.Sequential(nn.BatchNorm2d(3)), dist.group(1))[0]) is nn.BatchNorm2d


def _normalised_as_by_one_process(dist, group, dtype, first, close):
    """Compare two steps of training; of five samples, the first rank of each pair has `first`. Return the layer."""
    torch.manual_seed(1)
    x = (torch.randn(5, 3, 4, 6) * torch.tensor([1.0, 5.0, 0.1])[:, None, None] + 7).to(dtype)
    ahead = torch.randn(5, 3, 4, 6).to(dtype)
    mine = slice(first, 5) if dist.rank % 2 else slice(0, first)
    whole, part = x.clone().requires_grad_(), x[mine].clone().requires_grad_()
    parameters = torch.float64 if dtype is torch.float64 else torch.float32
    expected, shared = nn.BatchNorm2d(3).to(parameters), nn.Sequential(nn.BatchNorm2d(3).to(parameters))
    names = set(shared.state_dict())
    shared = share_statistics(shared, group)
    assert set(shared.state_dict()) == names
    for _ in range(2):
        (expected(whole) * ahead).sum().backward()
        (shared(part) * ahead[mine]).sum().backward()
    found = shared(part)
    assert found.dtype is dtype
    torch.testing.assert_close(found, expected(whole)[mine], **close)
    torch.testing.assert_close(part.grad, whole.grad[mine], **close)
    ours = shared[0]
    for name, buffer in expected.named_buffers():
        torch.testing.assert_close(getattr(ours, name), buffer, **(close if dtype is torch.float64 else {}))
    everyone = torch.cat((ours.running_mean, ours.running_var))
    assert torch.equal(everyone, group.broadcast(everyone.clone())), "running statistics differ within a group"
    gradients = group.all_reduce(torch.stack((ours.weight.grad, ours.bias.grad)))
    torch.testing.assert_close(gradients, torch.stack((expected.weight.grad, expected.bias.grad)), **close)
    return shared


def leaders(dist, folder):
    """Check that the ranks with local rank 0, and only they, can talk about their nodes."""
    chosen = dist.find_leaders()
    assert (chosen is None) == (dist.local_rank != 0)
    if chosen is not None:
        assert (chosen.rank, chosen.world_size, chosen.local_size) == (dist.node_rank, dist.nodes, 1)
        assert chosen.broadcast_json(chosen.gather_json(dist.rank)) == [
            node * dist.local_size for node in range(dist.nodes)
        ]
        sent = chosen.broadcast(torch.tensor(dist.rank), src=chosen.world_size - 1)
        assert sent == (dist.nodes - 1) * dist.local_size
        assert chosen.broadcast_json(chosen.rank, src=chosen.world_size - 1) == chosen.world_size - 1
        chosen.barrier()


def memory(dist, folder):
    """Check that names are in memory once per node, or in that of each rank where the nodes' memory does not do."""
    names, own, missing = ["train/\u00e9\udc80", "", "x" * 2**20], node_memory.RAM_DISK, folder / "missing"
    full, read_only = (mock.Mock(side_effect=OSError(number, "")) for number in (errno.ENOSPC, errno.EROFS))
    cases = [(own, os.posix_fallocate), (own, full)]
    cases += [(missing if dist.rank in ranks else own, mock.Mock()) for ranks in ((1, 3), (2,))]
    for ram_disk, allocate in cases:
        with (
            mock.patch.object(node_memory, "RAM_DISK", ram_disk),
            mock.patch("os.posix_fallocate", allocate),
            mock.patch.object(Path, "unlink", Path.unlink if ram_disk == own else read_only),
        ):
            shared = node_memory.share_names(names if dist.is_main else ["other"], dist)
        assert [*shared] == pickle.loads(pickle.dumps(shared)) == names
        assert [*shared[1:]] == names[1:] and shared[-1] == names[-1]
        lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "/mlperf-hpc-" in line]
        assert {line[6] for line in lines} <= {"(deleted)"}
        inodes = dist.broadcast_json(dist.gather_json([line[4] for line in lines]))
        if allocate is os.posix_fallocate:
            alike = [inodes[node * dist.local_size] for node in range(dist.nodes) for _ in range(dist.local_size)]
            assert inodes == alike and len({inode for row in inodes for inode in row}) == dist.nodes
        else:
            assert not any(inodes)
        del shared


def parts(dist, folder):
    """Check that parts of two ranks take pieces of work, that an error ends one piece, and that the job goes on."""
    number = dist.rank // 2
    found = Parts(dist, 2, (ValueError,))
    assert (found.number, found.count, found.is_main) == (number, 2, dist.rank % 2 == 0)
    done = []
    while (piece := found.take_piece(4)) is not None:
        done.append(piece)
        with contextlib.suppress(PartError), found.work_together(f"piece {piece}") as part:
            assert (part.rank, part.world_size, part.nodes) == (dist.rank % 2, 2, 1)
            assert part.broadcast_json(part.gather_json(dist.rank)) == [2 * number, 2 * number + 1]
            module = part.wrap(nn.Linear(1, 1))
            if piece == 1 and part.rank == 1:
                raise ValueError("broken on purpose")  # the other waits for the gradients
            module(torch.ones(1, 1)).sum().backward()
            if part.is_main:
                found.leave_text(f"piece/{piece}", str(dist.rank))
    found.meet_ranks("all")
    told = [found.read_text(f"piece/{piece}") for piece in range(4)]
    assert [bool(text) for text in told] == [True, False, True, True], told
    (folder / f"done{dist.rank}").write_text(str(done))


def leave(dist, folder):
    """Check that a network which nobody needs any more is gone when its group has ended, which it would hold."""
    part = dist.group(dist.world_size)
    network = part.wrap(nn.Linear(1, 1))
    vars(network)["itself"] = network  # only the garbage collector frees it
    network(torch.ones(1, 1)).sum().backward()
    freed = weakref.ref(network)
    del network
    part.close()
    assert freed() is None


def fail(dist, folder):
    """Fail on the last rank while the others wait for it in the backward pass."""
    with cleaning_up(dist, folder):
        module = dist.wrap(nn.Linear(1, 1))
        _fail_if_last(dist)
        module(torch.ones(1, 1)).sum().backward()


def fail_early(dist, folder):
    """Fail on the last rank while the others wait for it to wrap its module."""
    with cleaning_up(dist, folder):
        _fail_if_last(dist)
        dist.wrap(nn.Linear(1, 1))


def _fail_if_last(dist):
    if dist.rank == dist.world_size - 1:
        raise ValueError("broken on purpose")


def terminate(dist, folder):
    """Rank 0 gets SIGTERM, while the others sleep."""
    with cleaning_up(dist, folder):
        if dist.rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        STOP.sleep(300)


def wait_for_stranger(dist, folder):
    """Wait for what someone leaves in the store, which rank 0 has."""
    with cleaning_up(dist, folder):
        if dist.is_main:
            (folder / "pid").write_text(str(os.getpid()))
        try:
            STOP.sleep(300)
        except alarm.Stopped as error:
            ending = error.ending
            raise EndingError(Ending(ending.how, f"{ending.how} {ending.cause}")) from None


def die(dist, folder):
    """Kill the last rank while the others wait for it."""
    with cleaning_up(dist, folder):
        if dist.rank == dist.world_size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()


def stick(dist, folder):
    """Fail on the last rank while the others are where nothing can end them."""
    try:
        raise ValueError("broken on purpose")
    except ValueError:
        if dist.rank == dist.world_size - 1:
            raise
        time.sleep(300)


class Folder:
    """Is a folder when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, (f"{sys.argv[1]}/broken_into",)


@contextlib.contextmanager
def cleaning_up(dist, folder):
    try:
        dist.barrier()  # all ranks are inside before one fails
        with dist.first_failure():
            yield
    except BaseException as error:
        # As long as a log or checkpoint may take to be written: no launcher may kill this rank meanwhile.
        time.sleep(0.5)
        (folder / f"unwound{dist.rank}").write_text(classify_error(error).cause)
        raise


def two_nodes():
    """Make the environment of torchrun look as if half of the ranks were on another node."""
    rank, half = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) // 2
    places = {"LOCAL_RANK": rank % half, "LOCAL_WORLD_SIZE": half, "GROUP_RANK": rank // half, "GROUP_WORLD_SIZE": 2}
    os.environ.update({name: str(value) for name, value in places.items()})


if __name__ == "__main__":
    folder, *steps = sys.argv[1:]
    if "two_nodes" in steps:
        two_nodes()
    if "impatient" in steps:
        alarm.GRACE_S = 2
    if "inattentive" in steps and os.environ["RANK"] == "0":  # it loses its connections before it hears why
        read_news = alarm.Alarm._read_news
        alarm.Alarm._read_news = lambda self: (time.sleep(5), read_news(self))[1]
    if os.environ.get("RANK") in steps:  # this rank is a stranger, whose messages run code where they are unpickled
        dist_room.format_json = lambda _: pickle.dumps(Folder())
        dist_room.parse_json = lambda _: time.sleep(1) or object()
    with connect(DistConfig(timeout_s=120, start_timeout_s=30)) as dist:
        for step in [step for step in steps if step not in ("two_nodes", "impatient", "inattentive", "0", "1")]:
            globals()[step](dist, Path(folder))
