"""Results as folders: a few runs of one published or built result, and where copies of them are put."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from compliance.benchmarks import benchmarks_of
from compliance.samples.package import SamplePackage
from tests.conformance.forgeries.bases import BUILDER_ROUNDS, Source, accepted, published
from tests.conformance.forgeries.copies import Disguise
from tests.conformance.forgeries.logtext import LogText, Unsuitable

RUNS = 3
LATER = {"0.7": "1.0", "1.0": "2.0", "2.0": "3.0"}


@dataclass(frozen=True)
class Result:
    """Runs of one result and where they lie in a tree: v<round>/<organisation>/results/<system>."""

    name: str
    round: str
    organisation: str
    system: str
    benchmark: str
    logs: tuple[bytes, ...]
    description: bytes
    scaling: str = "strong"

    @property
    def package(self) -> str:
        """The folder of the organisation, relative to the tree."""
        return f"v{self.round}/{self.organisation}"

    @property
    def files(self) -> dict[str, bytes]:
        """The files, relative to the tree."""
        middle = "" if self.round == "0.7" else f"{self.scaling}/"
        folder = f"{self.package}/results/{self.system}/{middle}{self.benchmark}"
        files = {f"{folder}/result_{at}.txt": log for at, log in enumerate(self.logs)}
        return files | {f"{self.package}/systems/{self.system}.json": self.description}

    def texts(self) -> list[LogText]:
        """Return the logs, each to be changed."""
        return [LogText(log, self.benchmark, self.round) for log in self.logs]


@dataclass
class Tree:
    """The files of one case; against: those of the tree to compare with."""

    files: dict[str, bytes] = field(default_factory=dict)
    against: dict[str, bytes] = field(default_factory=dict)

    def write(self, folder: Path) -> tuple[Path, Path | None]:
        """Write everything and return the folder to check, and that to compare with."""
        for name, files in (("checked", self.files), ("against", self.against)):
            for path, data in files.items():
                full = folder / name / path
                full.parent.mkdir(parents=True, exist_ok=True)
                full.write_bytes(data)
        return folder / "checked", folder / "against" if self.against else None


def built_results() -> list[Result]:
    """Return results of the builder."""
    found = []
    for round_ in BUILDER_ROUNDS:
        for benchmark in benchmarks_of(round_):
            files = SamplePackage(benchmark, round_, runs=RUNS).files
            logs = tuple(log if isinstance(log, bytes) else log.bytes() for log in files.values())
            name = f"built {benchmark} {round_}"
            found.append(Result(name, round_, "Example", "example_n64", benchmark, logs[:RUNS], logs[RUNS]))
    return found


def published_results(corpus: Path) -> Iterator[Result]:
    """Yield the results of the corpus that have enough accepted logs of a moderate size."""
    by_folder: dict[str, list[Source]] = {}
    for source in published(corpus):
        by_folder.setdefault(os.path.dirname(source.path), []).append(source)
    for sources in by_folder.values():
        logs = [found[0].data for found in map(accepted, sources) if found][:RUNS]
        parts = sources[0].name.split("/")
        description = corpus / parts[0] / parts[1] / "systems" / f"{parts[3]}.json"
        if len(logs) == RUNS and description.is_file():
            scaling = parts[4] if parts[4] in ("strong", "weak") else "strong"
            name, round_ = "/".join(parts[:-1]), parts[0].removeprefix("v")
            benchmark = sources[0].benchmark
            yield Result(name, round_, parts[1], parts[3], benchmark, tuple(logs), description.read_bytes(), scaling)


# -- where the copies are put -----------------------------------------------------------------------------------


def within_the_result(result: Result, disguise: Disguise, rng: random.Random) -> Tree:
    """Replace one run by a copy of another."""
    source, target = rng.sample(range(RUNS), 2)
    logs = list(result.logs)
    logs[target] = _copy(result, source, disguise, rng)
    return Tree(replace(result, logs=tuple(logs)).files)


def under_another_system(result: Result, disguise: Disguise, rng: random.Random) -> Tree:
    """Submit copies of all runs for a second system of the same organisation."""
    return Tree(result.files | replace(_copies(result, disguise, rng), system="another_system").files)


def by_another_organisation(result: Result, disguise: Disguise, rng: random.Random) -> Tree:
    """Submit copies of all runs by another organisation."""
    return Tree(result.files | replace(_copies(result, disguise, rng), organisation="Another").files)


def in_the_next_round(result: Result, disguise: Disguise, rng: random.Random) -> Tree:
    """Submit copies of all runs again in the round after."""
    if result.round not in LATER or result.benchmark not in benchmarks_of(LATER[result.round]):
        raise Unsuitable("the last round")
    return Tree(result.files | replace(_copies(result, disguise, rng), round=LATER[result.round]).files)


def as_throughput(result: Result, disguise: Disguise, rng: random.Random) -> Tree:
    """Submit copies of all runs as instances of a throughput result, or of its instances as time to train."""
    if result.round == "0.7":
        raise Unsuitable("no throughput in this round")
    other = "weak" if result.scaling == "strong" else "strong"
    return Tree(result.files | replace(_copies(result, disguise, rng), scaling=other).files)


def one_run_under_another_system(result: Result, disguise: Disguise, rng: random.Random) -> Tree:
    """Submit a copy of one run for a second system."""
    copies = replace(result, system="another_system", logs=(_copy(result, 0, disguise, rng),))
    return Tree(result.files | copies.files)


def in_the_other_division(result: Result, disguise: Disguise, rng: random.Random) -> Tree:
    """Submit copies of all runs for a second system, in the open division if the originals are closed."""
    if b'"closed"' not in result.description:
        raise Unsuitable("not closed")
    copies = _copies(result, disguise, rng)
    *logs, description = (text.replace(b'"closed"', b'"open"') for text in (*copies.logs, copies.description))
    opened = replace(copies, system="another_system", logs=tuple(logs), description=description)
    return Tree(result.files | opened.files)


def of_another_tree(result: Result, disguise: Disguise, rng: random.Random) -> Tree:
    """Submit copies alone; the originals are in the tree to compare with."""
    return Tree(replace(_copies(result, disguise, rng), organisation="Another").files, result.files)


def _copies(result: Result, disguise: Disguise, rng: random.Random) -> Result:
    return replace(result, logs=tuple(_copy(result, number, disguise, rng) for number in range(RUNS)))


def _copy(result: Result, number: int, disguise: Disguise, rng: random.Random) -> bytes:
    """Return a disguised copy of a run, with a seed of its own."""
    logs = result.texts()
    log = logs[number]
    disguise(log, logs[(number + 1) % RUNS], rng)
    for line in log.all("seed"):
        line.record["value"] = rng.randint(10**6, 10**9)
    return log.bytes()


Place = Callable[[Result, Disguise, random.Random], Tree]
PLACES: tuple[Place, ...] = (
    within_the_result,
    under_another_system,
    by_another_organisation,
    in_the_next_round,
    as_throughput,
    one_run_under_another_system,
    of_another_tree,
    in_the_other_division,
)
