"""What goes wrong in a training, and why: faults of the data, too little memory, a network that does not learn.

A few samples are looked at before the first step. Each batch is proved to have no number that is not finite
(`prefetch.sum_flaws`); where a loss or a quality is not finite its samples are looked at again, one by one. Such a
fault has a file and a place, and is no result of the training. Without one the training has diverged. What does not fit
into memory is explained with the keys that change it. Signs that a network does not learn are printed once, and the run
goes on.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from typing import Any, Final

import numpy as np
import torch

from common.config import ConfigError
from common.console import print_warning
from common.data.manifest import NAME, describe_file, read_manifest
from common.data.prefetch import name_tensors
from common.data.values import Identity, Survey
from common.processes import in_threads
from common.ranks.dist import Dist
from common.reference import Reference
from common.settings.run import RunConfig
from common.training.benchmark import Benchmark, Problem

LOOKED_AT: Final = 4
"""Samples of each split on each rank: the first ones of training, and some of validation."""


class DataFaultError(ValueError):
    """A number in a sample is not finite, or breaks the contract; the message names file, sample, place and number."""


def check_some_samples(problem: Problem) -> None:
    """Look at the first samples of each rank, where they are read, and warn on rank 0 of what is unlikely.

    DataFaultError on all ranks if a sample breaks the benchmark's contract. A collective call.
    """
    survey, dist = Survey(), problem.dist
    share = problem.eval_share()
    spread = share[:: max(1, len(share) // LOOKED_AT)]  # samples side by side may be of the same universe
    samples = [("validation", index) for index in spread[:LOOKED_AT].tolist()]
    for batch in islice(problem.batching.batches(problem.order(0), dist.data_rank, dist.data_size), 1):
        samples += [("train", index) for index in dict.fromkeys(np.concatenate(batch.parts)[:LOOKED_AT].tolist())]
    for _ in in_threads(lambda sample: _survey_sample(survey, problem, *sample), samples, LOOKED_AT):
        pass
    survey.add_summary(fewest=LOOKED_AT)
    if error := dist.find_first(min(survey.errors, default=None)):
        raise DataFaultError(error)
    warning = dist.find_first(min(survey.warnings, default=None))
    if warning and dist.is_main:
        print_warning(warning)


def _survey_sample(survey: Survey, problem: Problem, split: str, index: int) -> None:
    name, contents = problem.list_contents(split, index)
    survey.add_sample(_name_files(problem, split, index), split, name, contents)


def _name_files(problem: Problem, split: str, index: int) -> str:
    return " and ".join(map(str, problem.sets[split].paths(index)))


def warn_of_repeated_files(problem: Problem) -> None:
    """Warn if the manifest has samples with the same content, in two splits or in one.

    Of each sample the first file is compared, its input. Without a manifest the first name is looked at that is in two
    splits.
    """
    folder, survey = problem.config.data.data_dir, Survey()
    if not (folder / NAME).exists():
        listings = (samples.files() for samples in problem.sets.values())
        shared = set.intersection(
            *({file.partition("/")[2] for file, index in listing if index is not None} for listing in listings)
        )
        for split in problem.sets if shared else ():
            path = folder / split / min(shared)
            survey.add_sample(str(path), split, "", [Identity(describe_file(path).sha256)])
        survey.add_summary()
        for line in survey.errors:
            print_warning(f"{line} ({len(shared):,} files have names that are in both)")
        return
    files = read_manifest(folder / NAME).files
    for split, samples in problem.sets.items():
        for _, names in groupby(samples.files(), lambda file: file[0] if file[1] is None else file[1]):
            name, _ = next(names)
            if name in files:
                survey.add_sample(str(folder / name), split, "", [Identity(files[name].sha256)])
    survey.add_summary()
    if lines := survey.errors + survey.warnings:
        more = f" ({len(lines):,} such files; `prepare verify --values` lists them)" if len(lines) > 1 else ""
        print_warning(f"{lines[0]}{more}")


# -- where a loss or a quality is not finite -----------------------------------------------------------------


def check_samples(problem: Problem, split: str, indices: Iterable[int]) -> None:
    """Raise DataFaultError on all ranks if a sample of one of them is at fault. A collective call.

    indices: of this rank's samples.
    """
    fault = problem.dist.find_first(next(find_faults(problem, split, indices), None))
    if fault is not None:
        raise DataFaultError(fault)


def find_faults(problem: Problem, split: str, indices: Iterable[int]) -> Iterator[str]:
    """Yield what breaks the contract of a sample; if nothing does, what is not finite after it was read."""
    for index in indices:
        survey = Survey()
        _survey_sample(survey, problem, split, index)
        yield from survey.errors
        with contextlib.closing(problem.read(problem.sets[split], iter([np.array([index])]))) as batches:
            batch = next(batches)
        for when, read in (("as it is read", batch), ("after normalisation", problem.prepared(batch))):
            if flaw := next(_find_flaws(read), ""):
                (name,) = problem.sample_names(split, batch)
                yield (
                    f"{_name_files(problem, split, index)}: {flaw} in sample {name} {when}, where all numbers must be "
                    "finite, as they are in the file: see the statistics and settings that samples are changed by"
                )


def _find_flaws(batch: Any) -> Iterator[str]:
    """Yield the first number that is not finite in each tensor of a batch, and its place."""
    for name, tensor in name_tensors(batch):
        if tensor.is_floating_point() and (places := (~tensor.isfinite()).nonzero()).numel():
            index = places[0].tolist()
            yield f"{name}{index} is {tensor[tuple(index)].item()}"


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


EVALUATIONS: Final = 3
"""So many in a row show a sign."""
MARGIN: Final = 0.02
"""By so much, of its own size, a quality must be better than that of a constant."""
FAR: Final = 100
"""An error of so many times that of a constant is implausible."""
JUMP: Final = 10_000
"""A loss of so many times another is a jump."""


class Sanity:
    """Looks at what a run finds anyhow, and says what is odd. say: prints a line. steps: of an epoch."""

    def __init__(self, reference: Reference, say: Callable[[str], None], steps: int = 0) -> None:
        self._target, self._constant, self._say, self._steps = reference.target, reference.constant, say, steps
        self._said: set[str] = set()
        self._loss = 0.0

    def has_jumped(self, loss: float) -> bool:
        """Tell, once, whether a loss is far above or far below the one before."""
        least, most = sorted((loss, self._loss or loss))
        jumped = most > JUMP * least and "jump" not in self._said
        self._loss = loss
        if jumped:
            self._said.add("jump")
        return jumped

    def is_implausible(self, quality: float) -> bool:
        """Tell whether a quality is not finite, or an error far above that of a constant."""
        far = FAR * (self._constant or math.inf) if self._target.lower_is_better else math.inf
        return not quality < far

    def look_at_norms(self, norms: Sequence[float]) -> None:
        """Look at the norms of the gradients of steps."""
        if 0.0 in norms:
            self._warn_once(
                "gradient",
                "the gradient of a step is exactly 0, so that no weight learns from it: see whether the inputs are all "
                "alike, the learning rate was too high at the start (units that are never active again), or the loss "
                "does not depend on the network",
            )

    def look_at_qualities(self, qualities: Sequence[float]) -> None:
        """Look at the qualities of all evaluations so far."""
        latest, key = qualities[-EVALUATIONS:], self._target.key
        if len(latest) < EVALUATIONS:
            return
        if self._constant is not None:
            bound = self._constant * (1 - MARGIN if self._target.lower_is_better else 1 + MARGIN)
            if not any(self._target.better(quality, bound) for quality in latest):
                large = "train.global_batch_size is too large (1 step an epoch), " if self._steps == 1 else ""
                self._warn_once(
                    "constant",
                    f"{key} is {latest[-1]:.4g} and was no better in the {EVALUATIONS - 1} evaluations before; a "
                    f"constant prediction has {self._constant:g}: see whether {large}inputs and truth belong "
                    "together and are in the format that the network expects, and the learning rate",
                )
        if len(set(latest)) == 1:
            self._warn_once(
                "unchanged",
                f"{key} is {latest[-1]:.4g} in {EVALUATIONS} evaluations, to the last digit: the network does not "
                "change, or predicts the same for each sample",
            )

    def _warn_once(self, sign: str, text: str) -> None:
        if sign not in self._said:
            self._said.add(sign)
            self._say(f"warning: {text}")
