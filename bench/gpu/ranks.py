"""What several ranks need, with one: NCCL, its reduction in a graph, and batch normalisation over ranks."""

from __future__ import annotations

import copy
import os
import socket
import subprocess
import sys
from datetime import timedelta
from functools import partial
from typing import Final

import torch
import torch.distributed as td
from torch import Tensor, nn

from common.training.batchnorm import SharedBatchNorm
from gpu.background import ROOT
from gpu.cases import Bench, WrongError
from gpu.layers import most, narrow, normal
from gpu.trainer import TINY_KEYS, data_of, ended, python_path, run_folder

GRADIENTS: Final = 56_454_720
"""Of DeepCAM."""


def measure(bench: Bench) -> None:
    """Measure reductions with one rank, then train under torchrun with one process."""
    with bench.case("rank", name="connect") as row:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        cuda = bench.device.type == "cuda"
        td.init_process_group(
            "nccl" if cuda else "gloo",
            init_method=f"tcp://127.0.0.1:{port}",
            rank=0,
            world_size=1,
            timeout=timedelta(seconds=30),
            device_id=bench.device if cuda else None,
        )
        if cuda:
            row["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    with bench.case("rank", name="all-reduce"):
        gradients = torch.randn(bench.size(GRADIENTS, 64), device=bench.device)
        kept = gradients.clone()
        bench.clock.graph([partial(td.all_reduce, gradients)])()
        bench.clock.finish()
        if not torch.equal(gradients, kept):
            raise WrongError("a sum over one rank differs from its number")
    shared_statistics(bench)
    torchrun(bench)
    td.destroy_process_group()


class Group:
    """One rank, whose sums are made by the library."""

    world_size, rank = 1, 0

    def all_reduce(self, tensor: Tensor) -> Tensor:
        td.all_reduce(tensor)
        return tensor


def shared_statistics(bench: Bench) -> None:
    """Compare batch normalisation over ranks with torch's, and time it recorded and launched."""
    with bench.case("rank", name="shared batch normalisation") as row:
        channels, sides = bench.size((728, (48, 72)), (16, (4, 6)))
        layer = nn.BatchNorm2d(channels).to(bench.device)
        with torch.no_grad():
            layer.weight.normal_(1, 0.1)
        shared = SharedBatchNorm(copy.deepcopy(layer), Group())  # type: ignore[arg-type]  # all that it needs
        x, by = (normal(bench, 8, channels, *sides) for _ in range(2))

        def both(module: nn.Module, dtype: torch.dtype) -> list[Tensor]:
            given = x.to(dtype).requires_grad_()
            y = module(given)
            gradients = torch.autograd.grad(y, [given, *module.parameters()], by.to(y.dtype))
            return [y.detach(), *gradients]  # what keeps y keeps nodes of another stream, which ends a recording

        right = both(copy.deepcopy(layer).double(), torch.float64)
        found = both(shared, narrow(bench))
        row["relative_error"] = most(zip(found, right, strict=True), 2e-2)
        with bench.clock.waits() as waits:
            both(shared, narrow(bench))
        row["waits"] = len(waits)
        row.update(bench.clock.per_call_ms([partial(both, shared, narrow(bench))]))
        row["torch_ms"] = bench.clock.per_call_ms([partial(both, layer, narrow(bench))])["ms"]


def torchrun(bench: Bench) -> None:
    """Train an epoch of CosmoFlow's mini problem as torchrun's only process."""
    if bench.lacks_time(15, "rank", name="torchrun"):
        return
    with bench.case("rank", name="torchrun") as row:
        folder = run_folder(bench, "cosmoflow", "torchrun")
        data = data_of(bench, "cosmoflow")
        # The address is named, since torchrun would ask a name service, which may be missing, for that of this machine.
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        command += ["--nproc-per-node", "1", "-m", "cosmoflow.train", "mini", f"data.data_dir={data}"]
        command += [f"output_dir={folder}", f"dist.device={bench.device.type}"]
        command += ["train.epochs=1", "train.seed=7", "train.target=0.9", "dist.record_reduction=true"]
        command += TINY_KEYS["cosmoflow"] if bench.dry else ()
        environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
        limit_s = None if bench.dry else max(1.0, bench.left_s - 5)
        done = subprocess.run(
            command, cwd=ROOT, env=environment | {"PYTHONPATH": python_path()}, check=False, timeout=limit_s
        )
        row["status"] = done.returncode
        row.update(ended(bench, folder))
