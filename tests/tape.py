"""Two modes that tell on a CPU what an accelerator would make of a step: record it, or find what would wait."""

import contextlib
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from common.training import benchmark, optim

WAITING = ("nonzero", "_local_scalar_dense", "masked_select", "unique", "is_nonzero", "equal.default", "bincount")


class Tape(TorchDispatchMode):
    """Records operations with their tensors, and does them again on the same ones, as a CUDA graph does.

    Numbers and shapes are those of the recording. Memory that operations write is put back after it. recording: the
    tape that records now.
    """

    recording = None

    def __init__(self):
        super().__init__()
        self.operations, self.former = [], {}

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        refuse_waiting(operation, args)
        for place, argument in enumerate(operation._schema.arguments):
            # Batch normalisation does not declare that it writes its running statistics.
            if (argument.alias_info and argument.alias_info.is_write) or argument.name.startswith("running_"):
                self._keep(args[place] if place < len(args) else kwargs.get(argument.name))
        found = operation(*args, **kwargs)
        self.operations.append((operation, args, kwargs, found))
        return found

    def _keep(self, written):
        for tensor in tree_leaves(written):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in self.former:
                    self.former[storage.data_ptr()] = storage, storage.clone()

    def put_back(self):
        """Undo what recording has written."""
        for storage, before in self.former.values():
            storage.copy_(before)
        self.former.clear()

    def play(self):
        """Do the operations; results of each go where they went before."""
        with torch.no_grad():
            for operation, args, kwargs, found in self.operations:
                again = operation(*args, **kwargs)
                for old, new in zip(tree_leaves(found), tree_leaves(again), strict=True):
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


class Tapes:
    """Stands in for CUDA graphs. played: how often a recording was replayed. alive: recordings that something holds."""

    def __init__(self):
        self.played, self.recorded, self.alive = 0, 0, weakref.WeakSet()

    def prepare(self, work):
        work()

    def record(self, work):
        Tape.recording = tape = Tape()
        with torch.random.fork_rng([]), tape:
            work()
        Tape.recording = None
        tape.put_back()
        self.recorded += 1
        self.alive.add(tape)

        def replay():
            self.played += 1
            tape.play()

        return replay

    def close(self):
        """Tapes need no device to be destroyed on."""


def record_on(tapes, setattr=setattr):
    """Have training recorded on these tapes, on a CPU; setattr: that of monkeypatch puts all back."""
    build = optim.build

    def built(config, parameters, lr):
        optimizer = build(config, parameters, lr)
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(lr, dtype=torch.float64)  # as exact as a number
        return optimizer

    setattr(benchmark, "make_recorder", lambda mode, format, dist: tapes)
    setattr(optim, "build", built)


def leave_out_autocast(monkeypatch):
    """Let the meta device run what is computed under autocast, which does not know it."""
    monkeypatch.setattr(torch, "autocast", lambda *_args, **_options: contextlib.nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _device: False)


class NeverWaits(TorchDispatchMode):
    """Raises AssertionError for an operation that would wait for an accelerator; the meta device stands in for it."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        refuse_waiting(operation, args)
        found = operation(*args, **(kwargs or {}))
        devices = {leaf.device.type for leaf in tree_leaves((args, kwargs, found)) if isinstance(leaf, torch.Tensor)}
        assert devices <= {"meta"} or devices == {"cpu"}, f"{operation} copies from or to the host: {devices}"
        return found


def refuse_waiting(operation, args):
    """Raise AssertionError for an operation whose result depends on data that are on the device."""
    name = str(operation)
    waits = any(part in name for part in WAITING)
    if operation in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default, torch.ops.aten.index_put.default):
        waits |= any(index is not None and index.dtype == torch.bool for index in args[1])
    assert not waits, f"{name} would wait for the device"
