"""Trace a number that is not finite to its file.

Each batch is proved to have none (`prefetch.sum_flaws`). Where a loss or a quality is not finite the samples are looked
at again, one by one: a fault of the data has a file and is no result; without one the training has diverged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

import numpy as np
from torch import Tensor

from common.training.benchmark import Problem

WORDS: Final = {"x": "input", "y": "truth"}
"""For the fields of a `TensorBatch`."""


class DataFaultError(ValueError):
    """A number in a sample is not finite, or breaks the contract; the message names file, sample, place and number."""


def check_samples(problem: Problem, split: str, parts: Iterable[np.ndarray]) -> None:
    """Raise DataFaultError on all ranks if a sample of one of them has a number that is not finite. A collective call.

    parts: the numbers of this rank's samples.
    """
    fault = problem.dist.find_first(next(_find_faults(problem, split, parts), None))
    if fault is not None:
        raise DataFaultError(fault)


def _find_faults(problem: Problem, split: str, parts: Iterable[np.ndarray]) -> Iterator[str]:
    samples = problem.sets[split]
    for index in (int(index) for part in parts for index in part):
        with contextlib.closing(problem.read(samples, iter([np.array([index])]))) as batches:
            batch = next(batches)
        fault = _describe_flaw(batch, "")
        if not fault:
            fault = _describe_flaw(problem.prepared(batch), " after `prepared`")
        if fault:
            files = " and ".join(map(str, samples.paths(index)))
            (name,) = problem.sample_names(split, batch)
            yield (
                f"{files}: {fault} in sample {name} of {split}, where all numbers must be finite: fetch or make the "
                "file again, or leave the sample out"
            )


def _describe_flaw(batch: Any, when: str) -> str:
    """Return the first number that is not finite in a batch of one sample, and its place; "" if all are."""
    for name, tensor in _name_tensors(batch):
        if tensor.is_floating_point() and (places := (~tensor.isfinite()).nonzero()).numel():
            place = places[0].tolist()
            more = f" ({len(places):,} such numbers)" if len(places) > 1 else ""
            return f"{name}{place} is {tensor[tuple(place)].item()}{when}{more}"
    return ""


def _name_tensors(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield WORDS.get(name, name), value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _name_tensors(getattr(value, field.name), field.name)
    elif isinstance(value, tuple):
        for part in value:
            yield from _name_tensors(part, name)
