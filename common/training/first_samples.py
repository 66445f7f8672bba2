"""Some samples are looked at before the first step: what breaks their contract ends the run, the unlikely is said."""

from __future__ import annotations

import sys
from itertools import groupby, islice
from typing import Final

import numpy as np

from common.data.values import Identity, Survey
from common.datasets.manifest import NAME, read_manifest
from common.processes import in_threads
from common.training.benchmark import Problem
from common.training.finite import DataFaultError

LOOKED_AT: Final = 4
"""Samples of each split on each rank: the first ones of training, and some of validation."""


def check_first_samples(problem: Problem) -> None:
    """Look at the first samples of each rank, where they are read, and warn on rank 0 of what is unlikely.

    DataFaultError on all ranks if a sample breaks the benchmark's contract. A collective call.
    """
    survey, dist = Survey(), problem.dist
    share = problem.eval_share()
    spread = share[:: max(1, len(share) // LOOKED_AT)]  # samples side by side may be of the same universe
    jobs = [("validation", index) for index in spread[:LOOKED_AT].tolist()]
    for batch in islice(problem.batching.batches(problem.order(0), dist.data_rank, dist.data_size), 1):
        jobs += [("train", index) for index in dict.fromkeys(np.concatenate(batch.parts)[:LOOKED_AT].tolist())]

    def survey_sample(job: tuple[str, int]) -> None:
        name, contents = problem.list_contents(*job)
        split, index = job
        survey.add_sample(" and ".join(map(str, problem.sets[split].paths(index))), split, name, contents)

    for _ in in_threads(survey_sample, jobs, LOOKED_AT):
        pass
    survey.add_summary(fewest=LOOKED_AT)
    if error := dist.find_first(min(survey.errors, default=None)):
        raise DataFaultError(error)
    warning = dist.find_first(min(survey.warnings, default=None))
    if warning and dist.is_main:
        print(f"warning: {warning}", file=sys.stderr, flush=True)


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
        print(f"warning: {lines[0]}{more}", file=sys.stderr, flush=True)
