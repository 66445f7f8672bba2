"""Some samples are looked at before the first step: what breaks their contract ends the run, the unlikely is said."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby, islice
from typing import Final

import numpy as np

from common.data.values import Identity, Survey
from common.datasets.manifest import NAME, read_manifest
from common.training.benchmark import Problem
from common.training.finite import DataFaultError

LOOKED_AT: Final = 4
"""Samples of each split on each rank: its first ones."""


def check_first_samples(problem: Problem) -> None:
    """Look at the first samples of each rank, where they are read, and warn on rank 0 of what is unlikely.

    DataFaultError on all ranks if a sample breaks the benchmark's contract. A collective call.
    """
    survey = Survey()
    dist = problem.dist
    shares = {"train": np.array([], int), "validation": problem.eval_share()}
    for batch in islice(problem.batching.batches(problem.order(0), dist.data_rank, dist.data_size), 1):
        shares["train"] = np.concatenate(batch.parts)
    for split, share in shares.items():
        for index in dict.fromkeys(share[:LOOKED_AT].tolist()):
            name, contents = problem.look_at(split, index)
            survey.add_sample(" and ".join(map(str, problem.sets[split].paths(index))), split, name, contents)
    survey.add_summary(fewest=LOOKED_AT)
    if error := dist.find_first(next(iter(survey.errors), None)):
        raise DataFaultError(error)
    warning = dist.find_first(next(iter(survey.warnings), None))
    if warning and dist.is_main:
        print(f"warning: {warning}", file=sys.stderr, flush=True)


def find_repeated_files(problem: Problem) -> Iterator[str]:
    """Yield a line if the manifest, where there is one, has samples with the same content, in two splits or in one.

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
        yield lines[0] + more
