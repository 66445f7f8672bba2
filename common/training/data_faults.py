"""Faults of the data have a file and a place, and are no result of the training.

A few samples are looked at before the first step. Each batch is proved to have no number that is not finite
(`prefetch.sum_flaws`); where a loss or a quality is not finite its samples are looked at again, one by one. Without a
fault among them the training has diverged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any, Final

import numpy as np

from common.data.prefetch import name_tensors
from common.data.values import Identity, Survey
from common.datasets.manifest import NAME, read_manifest
from common.processes import in_threads
from common.styles import print_warning
from common.training.benchmark import Problem

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
    """Warn if the manifest, where there is one, has samples with the same content, in two splits or in one.

    Of each sample the first file is compared, its input.
    """
    folder = problem.config.data.data_dir
    if not (folder / NAME).exists():
        return
    files, survey = read_manifest(folder / NAME).files, Survey()
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
            place = places[0].tolist()
            yield f"{name}{place} is {tensor[tuple(place)].item()}"
