"""Explain that something does not fit into memory, with the keys that change it, instead of a library's message."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from common.config import ConfigError
from common.ranks.dist import Dist
from common.settings.run import RunConfig
from common.training.benchmark import Benchmark

SIGNS: Final = re.compile(r"out of memory|can't allocate memory|not enough memory|ALLOC_FAILED", re.IGNORECASE)
"""How libraries say it: CUDA and HIP, torch on a CPU, cuBLAS and cuDNN."""


class OutOfMemoryError(OSError):
    """The memory of a device, or of the node, is too small; the message says what to change."""


@contextmanager
def explain_out_of_memory(config: RunConfig, dist: Dist) -> Iterator[None]:
    """Raise OutOfMemoryError instead of what torch or numpy raise when they get no memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not SIGNS.search(str(error)):
            raise
        problem = "the node has not enough memory for this process"
        if dist.device.type != "cpu" and not isinstance(error, MemoryError):
            total = torch.get_device_module(dist.device).mem_get_info(dist.device)[1]
            problem = f"the memory of {dist.device} ({total / 2**30:.1f} GiB) is too small"
        raise OutOfMemoryError(f"{problem}: {_suggest_fixes(config, dist)}") from error


def _suggest_fixes(config: RunConfig, dist: Dist) -> str:
    train = config.train
    share = -(-train.global_batch_size // dist.data_size)
    part = -(-share // train.accumulation)
    ways = []
    if part > 1:
        ways.append(f"raise train.accumulation (now {train.accumulation}, at most {share}): the same result")
    if (evaluated := train.eval_batch_size or part) > 1:
        ways.append(f"set train.eval_batch_size below {evaluated} if it happens in an evaluation")
    if train.global_batch_size > 1:
        ways.append(f"lower train.global_batch_size (now {train.global_batch_size})")
    if getattr(config.data, "cache", False):
        ways.append("set data.cache=false")
    if share == 1 and getattr(config, "shares_samples", False):
        ways.append("let more ranks share a sample (dist.spatial)")
    ways.append("use more ranks or a smaller network")
    return f"a rank computes {part} sample(s) at a time; {', or '.join(ways)}"


def check_network(benchmark: Benchmark, config: RunConfig) -> None:
    """Raise ConfigError for a network that cannot be made, or whose weights are larger than this machine's memory."""
    smaller = "smaller sizes in section model"
    if hasattr(config.data, "sample_shape"):
        smaller += " or data.sample_shape"
    try:
        with torch.device("meta"):
            parameters = list(benchmark.build_network(config).parameters())
    except (RuntimeError, TypeError, OverflowError, MemoryError) as error:  # beyond what torch can count, or numpy hold
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"this network cannot be made ({reason}); expected {smaller}") from error
    needed = sum(parameter.nbytes for parameter in parameters)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ConfigError(
            f"the weights of this network would need {needed / 1e9:,.0f} GB, and this machine has {memory / 1e9:,.0f} "
            f"GB; expected {smaller}"
        )
