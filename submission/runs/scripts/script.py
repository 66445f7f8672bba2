"""Write the shell script that runs a round with Slurm, with PBS, or on one machine without a scheduler.

The script submits the jobs; for `plain` it is the job. It can be called again: runs with a result are skipped, the
others continue from their newest checkpoint.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final

from common.ending import FINAL
from common.ending import NAME as RECORD
from common.errors import UsageError
from common.files import LOG_NAME
from common.lease import JOB_VARIABLES
from compliance.benchmarks import REFERENCES
from compliance.model.layout import WEAK
from submission.round.make import RoundInputs
from submission.round.plan import Series
from submission.round.runs import LARGEST_SEED
from submission.round.throughput import ThroughputRun
from submission.runs.scripts import text
from submission.runs.scripts.cluster import Cluster, Slurm
from submission.runs.scripts.site import END_OF_JOB, quote_words

STAGE_DIR: Final = "staging.stage_dir="
ONE_LAUNCHER: Final = "otherwise train all instances in a job of your own: see docs/guide/cluster.md"


def divide(cluster: Cluster, count: int, ranks: int | None) -> ThroughputRun:
    """Return a run of `count` instances of `ranks` ranks each (None: equal shares), each on nodes of its own.

    Raises UsageError if they do not fill the nodes.
    """
    if not isinstance(cluster, Slurm) or not cluster.starts_by_srun:
        raise UsageError(f"--throughput with --emit needs slurm and srun; {ONE_LAUNCHER}")
    nodes = (ranks or cluster.ranks // count) // cluster.ranks_per_node
    if nodes * count != cluster.nodes or (ranks or 0) % cluster.ranks_per_node:
        raise UsageError(
            f"--throughput {count}: {cluster.nodes} nodes of {cluster.ranks_per_node} ranks do not divide into {count} "
            f"instances{f' of {ranks} ranks' if ranks else ''} on nodes of their own; expected whole nodes for each "
            f"({ONE_LAUNCHER})"
        )
    return ThroughputRun(count, nodes * cluster.ranks_per_node)


@dataclass(frozen=True, slots=True)
class Script:
    """A shell script that trains all runs of a round, then writes package and report, in the folder `out`.

    wanted: the one throughput run of each benchmark; None: the runs of the plan.
    Raises UsageError if the folder's name has characters that schedulers do not accept.
    """

    plan: Sequence[Series]
    cluster: Cluster
    out: Path
    inputs: RoundInputs
    wanted: ThroughputRun | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w./@+-]+", str(self.out)):
            raise UsageError(
                f"-o {self.out}: expected a name of letters, digits and . _ - / @ + only, for the scheduler"
            )

    @property
    def mini(self) -> bool:
        """Whether a configuration is for a mini problem."""
        return any(map(_is_mini, self.plan))

    def render(self) -> str:
        """Return the text of the script, with seeds drawn for it."""
        cluster = self.cluster
        use = text.THROUGHPUT if self.wanted else text.JOBS if cluster.submit else text.LOOP
        script = _filled(text.HEAD, scheduler=cluster.scheduler, use=use)
        script += f"# Site profile: {cluster.site.note}\n" if cluster.site.note else ""
        script += f"# {cluster.site.lack}\n" if cluster.site.lack else ""
        script += text.FROM_SHARED if any(map(self._lacks_disk, self.plan)) else ""
        if cluster.submit:
            script += text.START + _filled(text.SUBMIT, command=cluster.submit, cancel=cluster.cancel)
            script += self._suite() if self.mini else ""
        else:
            script += self._start() + self._suite() + ENDINGS + OUTCOME
            script += cluster.again + self._describe()
        script += f"mkdir -p {' '.join(f'{self.out}/{series.benchmark}' for series in self.plan)}\n"
        for series in filter(_is_mini, self.plan):
            script += _filled(text.MINI_DATA, benchmark=series.benchmark, settings=self._settings(series))
        return script + "".join(f"\n{part}" for part in (*self._training(), self._package()))

    def _training(self) -> list[str]:
        """Return the parts that train the runs of each benchmark, or submit them."""
        count = self.wanted.count if self.wanted else 0
        runs = [1 if self.wanted else series.runs for series in self.plan]
        drawn = iter(random.SystemRandom().sample(range(1, LARGEST_SEED - count), sum(runs)))
        seeds = [[next(drawn) for _ in range(number)] for number in runs]
        return [self._series(series, numbers) for series, numbers in zip(self.plan, seeds, strict=True)]

    def _series(self, series: Series, seeds: Sequence[int]) -> str:
        values = {"benchmark": series.benchmark, "settings": self._settings(series), "out": str(self.out)}
        name, folder = f"mlperf-{series.benchmark}", f"{self.out}/{series.benchmark}"
        first = series is self.plan[0]
        secret = text.JOB_KEY if isinstance(self.cluster, Slurm) and self.cluster.starts_by_srun else ""
        if self.wanted:
            nodes = str(self.wanted.ranks // self.cluster.ranks_per_node)
            launch = self.cluster.launch(_filled(text.STEP, nodes=nodes, ranks=str(self.wanted.ranks)))
            body = f"seed={seeds[0]}\n" + (self._described() if first else "") + secret
            body += _filled(text.INSTANCES, launch=launch, count=str(self.wanted.count), **values)
            return self._job(self.cluster.directives(name, folder), body)
        numbers = f"seeds=({' '.join(map(str, seeds))})\n"
        body = _filled(text.RUN, **values) + (self._described() if first else "") + secret
        body += _filled(text.TRAIN, launch=self.cluster.launch(), **values)
        if self.cluster.submit:
            directives = self.cluster.directives(name, folder, len(seeds))
            return self._job(directives, numbers + self.cluster.index + body)
        # Ctrl-C ends the training and the script: without the trap it would continue with the next run.
        return f"{numbers}for index in \"${{!seeds[@]}}\"; do (\ntrap 'exit 130' INT TERM\n{body}); done\n"

    def _job(self, directives: str, body: str) -> str:
        """Return the part of the script that submits a job that trains."""
        start = directives + self._start() + text.CACHES + self._suite() + ENDINGS + OUTCOME + self.cluster.again
        return _submitted("", start + body)

    def _package(self) -> str:
        """Return the part of the script that packages the runs with a result, or submits the job that does."""
        folders = "throughput/instance_*" if self.wanted else "run_*"
        runs = " ".join(f"{self.out}/{series.benchmark}/{folders}" for series in self.plan)
        sources, system = self.inputs.sources, self.inputs.system
        options = f" --sources {quote_words('--sources', [str(sources)])}" if sources else ""
        options += f" --scaling {WEAK}" if self.wanted else ""
        body = f"system={quote_words('--system', [str(system)])}\n" if system else "system=$(describe)\n"
        mini = " --allow-mini" if self.mini else ""
        body += _filled(text.PACKAGE, runs=runs, options=options, mini=mini, out=str(self.out))
        if not self.cluster.submit:
            return body
        directives = self.cluster.package_directives(str(self.out))
        start = directives + self._start() + self._suite() + ENDINGS + self._describe()
        return _submitted(f"{self.cluster.after_all}{text.AFTER_ALL}", start + body)

    def _start(self) -> str:
        setup = self.cluster.site.setup
        environment = text.SETUP.replace("@setup@", "\n".join(setup)) if setup else text.ENVIRONMENT
        return text.START + self.cluster.start + environment

    def _suite(self) -> str:
        return _filled(text.SUITE, suite=self.cluster.suite)

    def _describe(self) -> str:
        """Return the function that describes the system; "" if there is a description."""
        if self.inputs.system:
            return ""
        first = self.plan[0]
        settings = quote_words(first.benchmark, [first.config, *first.overrides])
        nodes = str(self.cluster.nodes)
        return _filled(text.DESCRIBE, benchmark=first.benchmark, settings=settings, nodes=nodes, out=str(self.out))

    def _described(self) -> str:
        """Return the part of a job that describes the node it trains on, because the package may be made elsewhere."""
        if self.inputs.system or not self.cluster.submit:
            return ""
        return self._describe() + text.DESCRIBE_FIRST

    def _settings(self, series: Series) -> str:
        # The overrides of a round come last and take precedence.
        return quote_words(series.benchmark, [series.config, *self._staging(series), *series.overrides])

    def _staging(self, series: Series) -> list[str]:
        """Return the overrides with which the data reach the nodes."""
        wanted = () if _is_mini(series) else REFERENCES[series.benchmark].staging
        if self._lacks_disk(series):
            # What works everywhere: diskless nodes have /tmp in memory, and the full datasets do not fit into memory.
            return []
        folder = f"{self.cluster.site.local_disk}/mlperf-hpc-{series.benchmark}"
        return [STAGE_DIR + folder if one.startswith(STAGE_DIR) else one for one in wanted]

    def _lacks_disk(self, series: Series) -> bool:
        """Return whether the full dataset should be staged on the nodes' disks, but none is known."""
        staging = () if _is_mini(series) else REFERENCES[series.benchmark].staging
        return self.cluster.site.local_disk is None and any(one.startswith(STAGE_DIR) for one in staging)


def _submitted(option: str, job: str) -> str:
    return f"submit {option}{' ' if option else ''}<<'{END_OF_JOB}'\n#!/bin/bash\n{job}{END_OF_JOB}\n"


def _is_mini(series: Series) -> bool:
    """Return whether a configuration is for the mini problem, judged by its name; only the benchmark reads it."""
    return Path(series.config).name.startswith("mini")


def _filled(template: str, **values: str) -> str:
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    return template


ENDINGS: Final = _filled(text.ENDINGS, record=RECORD, log=LOG_NAME, final=" | ".join(FINAL))
JOB: Final = reduce(lambda rest, name: f"${{{name}:-{rest}}}", reversed(JOB_VARIABLES), "")
"""The number of the job, by the first variable that is set."""
OUTCOME: Final = _filled(text.OUTCOME, record=RECORD, job=JOB)
