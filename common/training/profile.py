"""What a network computes: its floating-point operations, counted from its shapes; and traces of a few training steps.

Operations are counted by two conventions: `count_sample` is the usual one, of convolutions and matrix products;
`count_table3` is that of HPC AI500 V3.0, Table 3 (BenchCouncil Transactions on Benchmarks, Standards and Evaluations 2
(2022) 100083).
A trace is a file for a trace viewer, and torch's own table of operations.
"""

from __future__ import annotations

import copy
import gzip
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count, flop_registry

from common.files import name_errors, open_whole_file, write_whole_file
from common.ranks.dist import Dist
from common.settings.machine import ProfileConfig

aten = torch.ops.aten
NORMALISATIONS = ("batch_norm", "group_norm", "layer_norm")
COPIES = (aten.clone, aten.fill, aten.fill_)  # torch calls them element-wise


class SampleFlops(NamedTuple):
    """Operations of a network for one sample.

    training, evaluation: of convolutions and matrix products in a training step and in a forward pass, see
        `count_sample`.
    """

    training: float
    evaluation: float


def count_sample(module: nn.Module, *inputs: Tensor) -> SampleFlops:
    """Return the operations of `module`, whose output is one tensor, on one sample, by the shapes of its inputs.

    These are convolutions and matrix products; a multiplication with its addition counts as two. Training has the
    gradients of inputs only where they require one. Nothing is computed, and the module is not changed.
    """
    module = copy.deepcopy(module).to("meta")
    inputs = tuple(tensor.detach().to("meta").requires_grad_(tensor.requires_grad) for tensor in inputs)
    return count_passes(lambda: module(*inputs), {aten.convolution_backward: _convolution_backward})


def count_passes(forward: Callable[[], Tensor], formulas: Mapping[Any, Any] | None = None) -> SampleFlops:
    """Return the operations of a forward pass, with those of the backward pass in `training`.

    formulas: see `custom_mapping` of torch's counter.
    """
    with FlopCounterMode(display=False, custom_mapping=dict(formulas or {})) as counter:
        outputs = forward()
        evaluation = int(counter.get_total_flops())
        outputs.sum().backward()
    return SampleFlops(int(counter.get_total_flops()), evaluation)


def count_table3(module: nn.Module, *inputs: Tensor) -> int:
    """Return the operations of forward and backward pass of `module` as HPC AI500 V3.0 counts them.

    A convolution, also a transposed one, counts as in `count_sample`; a matrix product one for a multiplication with
    its addition; normalisation one for each element of its input; pooling, activations and other element-wise
    operations one for each element of the output, but the mean over a whole map one for each element of its input. The
    source leaves open which map it means by pooling's. Biases and the rest are ignored. Training is three times the
    forward pass. Nothing is computed, and the module is not changed; it is counted as in evaluation, without dropout.
    """
    module = copy.deepcopy(module).to("meta").eval()
    with torch.no_grad():
        return 3 * table3_forward(lambda: module(*(tensor.detach().to("meta") for tensor in inputs)))


def table3_forward(work: Callable[[], object]) -> int:
    """Return the operations of a forward pass, `work`, as `count_table3` counts them."""
    with _Table3() as counter:
        work()
    return int(counter.total)


class _Table3(TorchDispatchMode):
    """Adds up the operations that are called inside it."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        packet, name = func.overloadpacket, func.overloadpacket.__name__
        first = result[0] if isinstance(result, (tuple, list)) else result
        if packet in flop_registry:
            products = flop_registry[packet](*args, **kwargs, out_val=result)
            self.total += products if "conv" in name else products // 2
        elif packet is aten.mean or any(kind in name for kind in NORMALISATIONS):
            self.total += args[0].numel()
        elif "pool" in name or (torch.Tag.pointwise in func.tags and packet not in COPIES):
            self.total += first.numel()
        return result


def _convolution_backward(grad: Sequence[int], x: Sequence[int], weight: Sequence[int], *rest: Any, **_: Any) -> int:
    """Return the operations for the requested gradients of a convolution; each takes as many as the forward pass.

    torch's own formula counts the gradient of a grouped convolution's weights as that of a dense one, which more than
    doubles the count for DeepCAM.
    """
    transposed, gradients = rest[4], rest[7]  # after bias, stride, padding, dilation; output padding, groups
    return int(conv_flop_count(list(x), list(weight), list(grad), transposed)) * sum(map(bool, gradients[:2]))


FOLDER: Final = "profile"
TRACE: Final = "trace.json.gz"
TABLE: Final = "table.txt"
ROWS: Final = 25
"""Operations in the table, the heaviest ones."""
WAITING: Final = "waiting for data"

B = TypeVar("B")


class Profiler:
    """Traces steps on rank 0 inside its first `with`, and then writes the files; on other ranks it does nothing.

    folder: of the files; made at once, so that one that cannot be is known before the run. say: prints a line.
    """

    def __init__(self, config: ProfileConfig, folder: Path, dist: Dist, say: Callable[[str], None]) -> None:
        self.config, self.folder, self._dist, self._say = config, folder, dist, say
        self._waits = config.steps > 0 and dist.is_main
        self._trace: Any = None
        self._counted = 0
        if self._waits:
            folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        if self._waits:
            self._waits = False
            os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # lower levels print that tracing starts and stops
            activities = [ProfilerActivity.CPU]
            if self._dist.device.type != "cpu":
                activities.append(ProfilerActivity[self._dist.device.type.upper()])
            when = schedule(wait=self.config.skip - 1, warmup=1, active=self.config.steps, repeat=1)
            self._trace = profile(activities=activities, schedule=when, record_shapes=True, with_flops=True)
            self._trace.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._trace is not None:
            self._stop_trace(failed=kind is not None)

    def watched(self, batches: Iterator[B]) -> Iterator[B]:
        """Return the batches; while steps are traced, the trace shows how long the loop waited for them."""
        return batches if self._trace is None else _watch_batches(batches)

    def step_done(self) -> None:
        """Count a step; after the last one, write the files."""
        if self._trace is not None:
            self._counted += 1
            self._trace.step()
            if self._counted == self.config.needed:
                self._stop_trace()

    def _stop_trace(self, failed: bool = False) -> None:
        trace, self._trace = self._trace, None
        trace.stop()
        traced = self._counted - self.config.skip
        if failed:
            return
        if traced <= 0:
            self._say(
                f"profile: no step traced: {self._counted} step(s) were made, and profile.skip={self.config.skip}"
            )
            return
        try:
            self._write_files(trace, traced)
        except OSError as error:  # such as a full disk
            self._say(f"profile: {error}; going on without it")

    def _write_files(self, trace: Any, traced: int) -> None:
        path = self.folder / TRACE
        with open_whole_file(path) as output, tempfile.TemporaryDirectory() as scratch:
            plain = Path(scratch, "trace.json")
            trace.export_chrome_trace(str(plain))
            with name_errors(path), plain.open("rb") as source, gzip.open(output, "wb", compresslevel=6) as packed:
                shutil.copyfileobj(source, packed)
        steps = self.config.steps
        fewer = f", fewer than profile.steps={steps}: there were no more" if traced < steps else ""
        head = f"{traced} step(s) of rank 0 of {self._dist.world_size}, after {self.config.skip} others{fewer}"
        by = "self_cpu_time_total" if self._dist.device.type == "cpu" else "self_device_time_total"
        table = self.folder / TABLE
        write_whole_file(table, f"{head}\n{trace.key_averages().table(sort_by=by, row_limit=ROWS)}\n")
        self._say(f"profile: {traced} step(s) traced{fewer}; read {table}, and open {path} in ui.perfetto.dev")


def _watch_batches(batches: Iterator[B]) -> Iterator[B]:
    while True:
        with record_function(WAITING):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch
