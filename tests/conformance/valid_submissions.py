"""Results with all their files, to be varied and checked: those of the builder, and published ones."""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from compliance.benchmarks import REFERENCES, benchmarks_of
from compliance.engine import Options, check_paths
from compliance.model.judging import ERROR, WARNING, Finding
from compliance.model.report import Report
from compliance.samples.package import SamplePackage
from tests.conformance.forgeries.logtext import TOKEN, LogText, Unsuitable

LARGEST_BYTES = 1_200_000
ATTEMPTS = 200
ORGANISATION = "Example University"

Counts = Counter[tuple[str, str]]


@dataclass
class Submission:
    """A submission with one result that is looked at.

    name: of what it was made. files: their contents by path, relative to a folder of rounds. folder: that of the
    result. waivers: as in `Options`. package: what it was built with, None of a published one.
    """

    name: str
    round: str
    benchmark: str
    folder: str
    files: dict[str, bytes]
    waivers: dict[str, str] = field(default_factory=dict)
    package: SamplePackage | None = None
    _texts: dict[str, LogText] = field(default_factory=dict)

    @property
    def organisation(self) -> str:
        """The folder of the organisation."""
        return "/".join(self.folder.split("/")[:2])

    @property
    def system(self) -> str:
        """The name of the system."""
        return self.folder.split("/")[3]

    @property
    def is_throughput(self) -> bool:
        """Whether the result is one of throughput."""
        return "/weak/" in self.folder

    @property
    def log_paths(self) -> list[str]:
        """The paths of the logs of the result."""
        return [path for path in self.files if path.rpartition("/")[0] == self.folder and "/result_" in path]

    @property
    def power_paths(self) -> list[str]:
        """The paths of the power files."""
        return [path for path in self.files if path.startswith(f"{self.folder}/power/")]

    def text(self, path: str) -> LogText:
        """Return a log to be changed."""
        if path not in self._texts:
            self._texts[path] = LogText(self.files[path], self.benchmark, self.round)
        return self._texts[path]

    def texts(self) -> list[LogText]:
        """Return the logs of the result, to be changed."""
        return [self.text(path) for path in self.log_paths]

    def describe(self, change: Callable[[dict[str, Any]], Any], indent: int = 1) -> None:
        """Change the description of the system."""
        path = f"{self.organisation}/systems/{self.system}.json"
        fields = json.loads(self.files[path])
        self.files[path] = json.dumps(change(fields) or fields, indent=indent).encode()

    def rename(self, old: str, new: str) -> None:
        """Replace a part of all paths."""
        self.write_texts()
        self.files = {path.replace(old, new): data for path, data in self.files.items()}
        self.folder = self.folder.replace(old, new)

    def add_package(self, package: SamplePackage) -> None:
        """Add the files of a package of the same round; what is there stays."""
        self.files = files_of(package, f"v{self.round}/{ORGANISATION}") | self.files

    def write_texts(self) -> None:
        """Take the changed logs over into the files."""
        self.files |= {path: text.bytes() for path, text in self._texts.items()}
        self._texts.clear()

    def check(self) -> Report:
        """Return what the checker says."""
        self.write_texts()
        with tempfile.TemporaryDirectory() as folder:
            for path, data in self.files.items():
                full = Path(folder, "checked", path)
                full.parent.mkdir(parents=True, exist_ok=True)
                full.write_bytes(data)
            options = Options(jobs=1, waivers=self.waivers)
            return check_paths([os.path.join(folder, "checked")], options)


Variant = Callable[[Submission, random.Random], None]
Source = Callable[[], Submission]


def files_of(package: SamplePackage, folder: str) -> dict[str, bytes]:
    """Return the files of a package as in this folder."""
    pairs = package.files.items()
    return {f"{folder}/{path}": data if isinstance(data, bytes) else data.bytes() for path, data in pairs}


def build(package: SamplePackage, name: str = "") -> Submission:
    """Return a submission of a package of the builder."""
    organisation = f"v{package.round}/{ORGANISATION}"
    files = files_of(package, organisation)
    folder = f"{organisation}/{package.folder}"
    name = name or f"built {package.benchmark} {package.round} {package.scaling}"
    return Submission(name, package.round, package.benchmark, folder, files, dict(package.waivers), package)


def list_built() -> list[Source]:
    """Return results of the builder: each benchmark and round, some of this suite's own and some of throughput."""
    sources: list[Source] = []
    for round_ in ("0.7", "1.0", "2.0", "3.0"):
        for benchmark in filter(REFERENCES.__contains__, benchmarks_of(round_)):
            sources.append(lambda of=(benchmark, round_): build(SamplePackage(*of)))  # type: ignore[misc]
    for benchmark in ("cosmoflow", "deepcam", "oc20"):
        sources.append(lambda of=benchmark: build(SamplePackage(of).by_suite(), f"built {of} 3.0 by this suite"))  # type: ignore[misc]
    for benchmark in ("cosmoflow", "deepcam"):
        sources.append(lambda of=benchmark: build(SamplePackage(of, scaling="weak", runs=10)))  # type: ignore[misc]
    return sources


def list_published(corpus: Path) -> list[Source]:
    """Return the published results of a moderate size."""
    return [
        lambda of=(corpus, Path(folder), names): read_published(*of)  # type: ignore[misc]
        for folder, _, names in sorted(os.walk(corpus))
        if os.path.basename(folder) in REFERENCES
        and sum(os.path.getsize(os.path.join(folder, name)) for name in names) <= LARGEST_BYTES
    ]


def read_published(corpus: Path, folder: Path, names: Iterable[str]) -> Submission:
    """Return a published result."""
    relative = folder.relative_to(corpus).as_posix()
    parts = relative.split("/")
    files = {f"{relative}/{name}": (folder / name).read_bytes() for name in sorted(names)}
    description = f"{parts[0]}/{parts[1]}/systems/{parts[3]}.json"
    if (corpus / description).is_file():
        files[description] = (corpus / description).read_bytes()
    return Submission(relative, parts[0].removeprefix("v"), folder.name, relative, files)


class Stock:
    """The results that are varied, and what is found in each of them."""

    def __init__(self, corpus: Path | None = None) -> None:
        self.sources = list_built()
        self.published = list_published(corpus) if corpus else []

    @lru_cache(maxsize=200)  # noqa: B019  (there are two stocks)
    def found_in(self, source: Source) -> Counts:
        """Return how often each rule has an error or warning about a result as it is."""
        return count(source().check().findings)

    def choose(self, rng: random.Random) -> tuple[Submission, Counts]:
        """Return a result without an error, and what is found in it."""
        source = rng.choice(self.published if self.published and rng.random() < 0.6 else self.sources)
        before = self.found_in(source)
        if any(severity == ERROR for _, severity in before):
            raise Unsuitable("has an error")
        return source(), before


def count(findings: Iterable[Finding]) -> Counts:
    """Return how often each rule has an error, and how often an error or warning."""
    counts: Counts = Counter()
    for finding in findings:
        if finding.severity in (ERROR, WARNING):
            counts[finding.rule, WARNING] += 1
            counts[finding.rule, ERROR] += finding.severity == ERROR
    return +counts


def vary(change: Variant, number: int, stock: Stock) -> tuple[Submission, Report, list[Finding]]:
    """Return the variant of this number, its report, and errors and warnings of rules that have more than before."""
    rng = random.Random(f"{change.__name__} {number}")
    for _ in range(ATTEMPTS):
        try:
            submission, before = stock.choose(rng)
            change(submission, rng)
        except Unsuitable:
            continue
        report = submission.check()
        rules = {rule for (rule, kind), times in count(report.findings).items() if times > before[rule, kind]}
        return submission, report, [f for f in report.findings if f.rule in rules and f.severity in (ERROR, WARNING)]
    raise ValueError(f"{change.__name__} {number}: no suitable result in {ATTEMPTS} attempts")


# -- what a variant is made with ------------------------------------------------------------------------------


def in_each_log(change: Callable[[LogText, random.Random], None]) -> Variant:
    """Make a variant of a change of a log: all logs of the result are changed."""

    def vary_all(submission: Submission, rng: random.Random) -> None:
        for text in submission.texts():
            change(text, rng)

    return named_as(change, vary_all)


def in_some_logs(change: Callable[[LogText, random.Random], None]) -> Variant:
    """Make a variant of a change of a log: one to three logs of the result are changed."""

    def vary_some(submission: Submission, rng: random.Random) -> None:
        texts = submission.texts()
        for text in rng.sample(texts, rng.randint(1, min(3, len(texts)))):
            change(text, rng)

    return named_as(change, vary_some)


def in_each_file(change: Callable[[bytes, random.Random], bytes]) -> Variant:
    """Make a variant of a change of bytes: all logs of the result are changed."""

    def vary_bytes(submission: Submission, rng: random.Random) -> None:
        for path in submission.log_paths:
            submission.files[path] = change(submission.files[path], rng)

    return named_as(change, vary_bytes)


def named_as(change: Callable[..., Any], variant: Variant) -> Variant:
    """Give a variant the name and text of the change that it makes."""
    variant.__name__, variant.__doc__ = change.__name__, change.__doc__
    return variant


def rewrite(data: bytes, spell: Callable[[dict[str, Any]], str]) -> bytes:
    """Spell each record anew."""
    lines = []
    for line in data.splitlines():
        head, token, body = line.rpartition(TOKEN)
        lines.append(head + token + spell(json.loads(body)).encode("utf-8", "surrogatepass") if token else line)
    return b"".join(line + b"\n" for line in lines)


def records_of(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the records of a log or power file."""
    for line in data.splitlines():
        _, token, body = line.rpartition(TOKEN)
        if token:
            yield json.loads(body)
