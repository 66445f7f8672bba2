"""What is edited: a submission, or a single log, as files in memory; of the sample builder, or published."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from common.config import load, to_dict
from common.provenance import ROOT, source_hash
from common.version import VERSION
from compliance.benchmarks import REFERENCES, benchmarks_of
from compliance.engine import Options, check_paths
from compliance.engine.log_checker import LogTask, judge_log
from compliance.logs.log import parse_log
from compliance.model.judging import ERROR, NOTE, WARNING, Finding
from compliance.model.judging import Case as JudgedBy
from compliance.samples.log import SampleLog
from compliance.samples.package import SYSTEM, SamplePackage
from submission.assemble.packing import Assembly
from submission.assemble.writing import assemble_package
from tests.conformance.variants.logtext import POINT, TOKEN, LogText, require

ORGANISATION = "Example University"
NUMBER = re.compile(r"result_(\d+)\.txt$")
SEVERITIES = {ERROR: (ERROR, WARNING, NOTE), WARNING: (WARNING, NOTE), NOTE: (NOTE,)}
"""As which a finding counts."""

Counts = Counter[tuple[str, str]]


@dataclass
class Submission:
    """A submission with one result that is looked at, or a single log.

    name: of what it was made. folder: that of the result. files: their contents by path, relative to a folder of
    rounds. against: those of a tree to compare with. waivers: as in `Options`. package: what it was built with, None of
    a published one. turn: the number of the case in its family.
    """

    name: str
    round: str
    benchmark: str
    folder: str
    files: dict[str, bytes]
    against: dict[str, bytes] = field(default_factory=dict)
    waivers: dict[str, str] = field(default_factory=dict)
    package: SamplePackage | None = None
    turn: int = 0
    _texts: dict[str, LogText] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """The folder of the organisation."""
        return "/".join(self.folder.split("/")[:2])

    @property
    def system(self) -> str:
        """The name of the system."""
        return self.folder.split("/")[3]

    @property
    def scaling(self) -> str:
        """The kind of the result: weak is throughput."""
        return "weak" if "/weak/" in self.folder else "strong"

    @property
    def is_log(self) -> bool:
        """Whether it is a single log."""
        return "/" not in self.folder

    @property
    def description(self) -> str:
        """The path of the description of the system."""
        return f"{self.root}/systems/{self.system}.json"

    @property
    def log_paths(self) -> list[str]:
        """The paths of the logs of the result."""
        return [path for path in self.files if path.rpartition("/")[0] == self.folder and "/result_" in path]

    @property
    def power_paths(self) -> list[str]:
        """The paths of the power files."""
        return [path for path in self.files if path.startswith(f"{self.folder}/power/")]

    def locate(self, round_: str = "", organisation: str = "", system: str = "", scaling: str = "") -> tuple[str, str]:
        """Return where the same result would lie elsewhere, and the description of its system."""
        top = f"v{round_ or self.round}/{organisation or self.root.split('/')[1]}"
        system = system or self.system
        folder = f"{top}/results/{system}"
        if (round_ or self.round) != "0.7":
            folder += f"/{scaling or self.scaling}"
        return f"{folder}/{self.benchmark}", f"{top}/systems/{system}.json"

    def read(self, path: str) -> LogText:
        """Return a log, to be changed and written by whoever reads it."""
        self.write_texts()
        return LogText(self.files[path], self.benchmark, self.round)

    def text(self, path: str) -> LogText:
        """Return a log to be changed."""
        if path not in self._texts:
            self._texts[path] = LogText(self.files[path], self.benchmark, self.round)
        return self._texts[path]

    def edit(self, change: Callable[[LogText], Any], *which: int) -> None:
        """Change all logs, or those at some positions."""
        paths = self.log_paths
        for at in which or range(len(paths)):
            change(self.text(paths[at]))

    def edit_meters(self, change: Callable[[str, list[dict[str, Any]]], Any], part: str = "") -> None:
        """Change the records of the power files whose names begin so; what `change` returns replaces them."""
        for path in self.power_paths:
            name = path.rpartition("/")[2]
            if name.startswith(part):
                records = read_records(self.files[path])
                self.files[path] = write_records(change(name, records) or records)

    def texts(self) -> list[LogText]:
        """Return the logs of the result, to be changed."""
        return [self.text(path) for path in self.log_paths]

    def write_texts(self) -> None:
        """Take the changed logs over into the files."""
        self.files |= {path: text.bytes() for path, text in self._texts.items()}
        self._texts.clear()

    def read_description(self) -> dict[str, Any]:
        """Return the fields of the description of the system."""
        return json.loads(self.files[self.description])

    def describe(self, fields: dict[str, Any], indent: int = 1) -> None:
        """Write the description of the system."""
        self.files[self.description] = json.dumps(fields, indent=indent).encode()

    def rename(self, old: str, new: str) -> None:
        """Replace a part of all paths."""
        self.write_texts()
        self.files = {path.replace(old, new): data for path, data in self.files.items()}
        self.folder = self.folder.replace(old, new)

    def add_package(self, package: SamplePackage) -> None:
        """Add the files of a package of the same round; what is there stays."""
        self.files = build(package).files | self.files

    def replace_by(self, package: SamplePackage) -> None:
        """Become the submission of another package."""
        other = build(package)
        self.files, self.folder, self.package = other.files, other.folder, package
        self.benchmark = package.benchmark

    def write(self, folder: Path) -> None:
        """Write the files into checked/, those to compare with into against/."""
        self.write_texts()
        for name, files in (("checked", self.files), ("against", self.against)):
            for path, data in files.items():
                full = folder / name / path
                full.parent.mkdir(parents=True, exist_ok=True)
                full.write_bytes(data)

    def judge(self) -> tuple[str, list[Finding]]:
        """Return the verdict of the checker, and its findings."""
        self.write_texts()
        if self.is_log:
            data = self.files[self.log_paths[0]]
            run = judge_log(parse_log(data, self.name), LogTask(self.name, JudgedBy(self.round)))
            return run.verdict, list(run.findings)
        with tempfile.TemporaryDirectory() as folder:
            self.write(Path(folder))
            against = (str(Path(folder, "against")),) if self.against else ()
            options = Options(jobs=1, waivers=self.waivers, against=against)
            report = check_paths([os.path.join(folder, "checked")], options)
            return report.verdict, list(report.findings)


def read_records(data: bytes) -> list[dict[str, Any]]:
    """Return the records of a power file."""
    return [json.loads(line.partition(b" ")[2]) for line in data.splitlines()]


def write_records(records: list[dict[str, Any]]) -> bytes:
    """Return the contents of a power file."""
    return b"".join(TOKEN + json.dumps(record).encode() + b"\n" for record in records)


def number_of(path: str) -> int:
    """Return the number in the name of a log, -1 of another file."""
    match = NUMBER.search(path)
    return int(match[1]) if match else -1


def count(findings: Iterable[Finding]) -> Counts:
    """Return how often each rule found something, by rule and least severity."""
    return Counter((f.rule, least) for f in findings for least in SEVERITIES.get(f.severity, ()))


# -- built ------------------------------------------------------------------------------------------------------


def build(package: SamplePackage, name: str = "") -> Submission:
    """Return a submission of a package of the builder."""
    root = f"v{package.round}/{ORGANISATION}"
    files = {
        f"{root}/{path}": data if isinstance(data, bytes) else data.bytes() for path, data in package.files.items()
    }
    name = name or f"built {package.benchmark} {package.round} {package.scaling}"
    folder = f"{root}/{package.folder}"
    return Submission(name, package.round, package.benchmark, folder, files, {}, dict(package.waivers), package)


COPY_RULES = {"RUN05", "RUN12"}
RUNS = 3
"""How many runs the results have of which only the runs are compared."""
LARGEST_LOG, LARGEST_RESULT = 300_000, 1_200_000
FULL_DATA_SHA256 = hashlib.sha256(b"the full data").hexdigest()
REVISION = hashlib.sha1(b"a revision", usedforsecurity=False).hexdigest()
HOST = {"cpu": "AMD EPYC 7763", "cores": 128, "usable_cores": 128, "machine": "x86_64", "system": "Linux"}
PAIRS = [
    (name, round_) for round_ in ("0.7", "1.0", "2.0", "3.0") for name in benchmarks_of(round_) if name in REFERENCES
]
"""Each benchmark and round."""
PUBLISHED = {
    "Dell deepcam": "v3.0/Dell/results/32xXE8545x4A100-SXM4-40GB/strong/deepcam",
    "Clemson deepcam": "v3.0/Clemson/results/18xR750-2xA100-PCIe-80GB/strong/deepcam",
    "Clemson openfold": "v3.0/Clemson/results/18xR750-2xA100-PCIe-80GB/strong/openfold",
    "TACC openfold": "v3.0/TACC/results/lonestar6-pytorch/strong/openfold",
    "NVIDIA cosmoflow": "v2.0/NVIDIA/results/dgxa100_n64_pytorch/strong/cosmoflow",
    "NVIDIA oc20": "v2.0/NVIDIA/results/dgxa100_n64_pytorch/strong/oc20",
    "NVIDIA deepcam": "v2.0/NVIDIA/results/dgxa100_n256_pytorch/strong/deepcam",
    "ANL oc20": "v1.0/ANL/results/thetagpu_n128_pt1.7.1/strong/oc20",
    "CSCS oc20": "v1.0/CSCS/results/piz_daint_gpu_n256_pt1.8.0/strong/oc20",
    "LBNL deepcam": "v1.0/LBNL/results/perlmutter_512x4_ngc21.09_pytorch/strong/deepcam",
    "HelmholtzAI cosmoflow": "v1.0/HelmholtzAI/results/juwelsbooster_gpu_n512_mxnet1.9/strong/cosmoflow",
    "Fujitsu cosmoflow": "v1.0/Fujitsu+RIKEN/results/fugaku_512xA64FX_tensorflow_closed/strong/cosmoflow",
    "LBNL cosmoflow instances": "v1.0/LBNL/results/perlmutter_10x128x4_ngc21.09_mxnet/weak/cosmoflow",
    "LBNL deepcam instances": "v1.0/LBNL/results/perlmutter_10x128x4_ngc21.09_pytorch/weak/deepcam",
}

Source = Callable[[], Submission]


# -- built ------------------------------------------------------------------------------------------------------


def build_log(benchmark: str, round_: str, run: int) -> Submission:
    """Return a single log: some are numbered from 0, some have steps or staging."""
    name, folder = f"built {benchmark} {round_} run {run}", f"v{round_}"
    log = SampleLog(benchmark, round_, run=run, epochs=random.Random(name).randint(9, 30))
    if benchmark == "deepcam" and run < 2:
        log.steps()  # as all published ones
    if run % 2 and REFERENCES[benchmark].epoch_unit == "epochs":
        log.renumber(0)
    if run > 1:
        log.stage(after="run_start")
    return Submission(name, round_, benchmark, folder, {f"{folder}/result_0.txt": log.bytes()})


def build_pair(benchmark: str, round_: str, **runs: Any) -> Submission:
    """Return a result of a benchmark in a round."""
    return build(SamplePackage(benchmark, round_, **runs))


def build_runs(benchmark: str, round_: str) -> Submission:
    """Return a few runs of a benchmark in a round, and their description."""
    return build(SamplePackage(benchmark, round_, runs=RUNS).remove("benchmarks"))


def with_steps(benchmark: str) -> Submission:
    """Return a result whose logs count their steps."""
    sample = SamplePackage(benchmark)
    for content in sample.files.values():
        if isinstance(content, SampleLog):
            samples, batch = (content.records_of(key)[0]["value"] for key in ("train_samples", "global_batch_size"))
            content.steps(samples // batch)
    return build(sample)


def instances(benchmark: str, runs: int) -> Submission:
    """Return a throughput result whose description has the nodes of all its instances, and one of time to train."""
    sample, small = SamplePackage(benchmark, scaling="weak", runs=runs).with_time_to_train(), f"{SYSTEM}_small"
    submission = build(sample.start_together())
    for path, data in list(submission.files.items()):
        if "/weak/" not in path:
            submission.files[path.replace(SYSTEM, small)] = data.replace(SYSTEM.encode(), small.encode())
        if "/strong/" in path:
            del submission.files[path]
    submission.describe(submission.read_description() | {"number_of_nodes": str(16 * runs)})
    return submission


def measured(benchmark: str) -> Submission:
    """Return a result whose power was measured on four nodes."""
    return build(SamplePackage(benchmark, runs=REFERENCES[benchmark].runs).power(nodes=4))


def by_suite(benchmark: str) -> Submission:
    """Return a result with logs as this suite writes them, on 64 accelerators."""
    submission = build(SamplePackage(benchmark).by_suite().remove("benchmarks"))  # it is not this suite's code
    defaults = to_dict(load(import_module(f"{benchmark}.settings").Config, ROOT / benchmark / "config.yaml"))
    for log in submission.texts():
        _write_as_suite(log, defaults)
    submission.write_texts()
    return submission


def _write_as_suite(log: LogText, defaults: dict[str, Any]) -> None:
    values = {line.key: line.record["value"] for line in log.timed}
    batch, samples, seed = (values[key] for key in ("global_batch_size", "train_samples", "seed"))
    config = _overlay(deepcopy(defaults), values["provenance"]["config"])
    config["schedule"] = values["provenance"]["config"]["schedule"]  # that of the sample's own settings
    own = {
        "output_dir": f"runs/{seed}",
        "data": {"data_dir": f"data/{log.benchmark}"},
        "train": {"global_batch_size": batch, "seed": seed, "epochs": 50, "accumulation": 1},
        "instances": {"count": 1},
        "submission": {"org": ORGANISATION, "status": "onprem", "platform": SYSTEM},
    }
    log.first("provenance").record["value"] = {
        "versions": {"python": "3.11.7", "mlperf-hpc-suite": VERSION, "torch": "2.13.0+cu128", "numpy": "2.4.6"},
        "git_revision": REVISION,
        "source_sha256": source_hash(("common", log.benchmark)),
        "host": HOST,
        "data_sha256": FULL_DATA_SHA256,
        "config": _overlay(config, own),
    }
    log.state("number_of_ranks", 64)
    for line in log.all("epoch_stop"):
        taken_s = (line.time - log.first("epoch_start", line.number).time) / 1000
        rate = log.add(
            line, line, 0, {"step": -(-samples // batch)}, key="learning_rate", value=0.001, event_type=POINT
        )
        log.add(rate, rate, 0, key="tracked_stats", value={"throughput": samples / taken_s})
    log.last("run_stop").record["metadata"] |= {"ended": "target_met", "epoch_num": log.numbers[-1]}
    for line in log.timed:
        line.record["metadata"]["file"] = "common/mllog.py"


def _overlay(tree: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(tree.get(key), dict):
            _overlay(tree[key], value)
        elif value is not None:
            tree[key] = value
    return tree


def assembled(benchmark: str) -> Submission:
    """Return a package that `python -m submission.assemble` makes of such logs, with the code of this suite."""
    submission = by_suite(benchmark)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for number, path in enumerate(submission.log_paths):
            (folder / "runs" / f"{number}").mkdir(parents=True)
            (folder / "runs" / f"{number}" / "result_0.txt").write_bytes(submission.files[path])
        system = folder / f"{SYSTEM}.json"
        system.write_bytes(submission.files[submission.description])
        root = assemble_package(Assembly(runs=(folder / "runs",), output=folder / "out", system=system)).root
        paths = [path for path in root.rglob("*") if path.is_file()]
        top = f"v3.0/{root.name}"
        files = {f"{top}/{path.relative_to(root).as_posix()}": path.read_bytes() for path in paths}
    result = submission.folder.replace(submission.root, top)
    return Submission(f"assembled {benchmark}", "3.0", benchmark, result, files)


BUILT: dict[str, Source] = {
    "built deepcam": partial(with_steps, "deepcam"),
    "built cosmoflow": partial(build_pair, "cosmoflow", "3.0"),
    "built oc20": partial(build_pair, "oc20", "3.0"),
    "built openfold": partial(build_pair, "openfold", "3.0"),
    "built instances": partial(instances, "cosmoflow", 20),
    "measured deepcam": partial(measured, "deepcam"),
    "measured cosmoflow": partial(measured, "cosmoflow"),
    "suite cosmoflow": partial(by_suite, "cosmoflow"),
    "suite deepcam": partial(by_suite, "deepcam"),
    "assembled cosmoflow": partial(assembled, "cosmoflow"),
}
SUBMISSIONS: list[Source] = [
    *(partial(build_pair, *pair) for pair in PAIRS),
    *(
        lambda name=name: build(SamplePackage(name).by_suite(), f"built {name} 3.0 by this suite")  # type: ignore[misc]
        for name in ("cosmoflow", "deepcam", "oc20")
    ),
    *(partial(build_pair, name, "3.0", scaling="weak", runs=10) for name in ("cosmoflow", "deepcam")),
]
"""Results of the builder: each benchmark and round, some of this suite's own, and some of throughput."""


# -- published --------------------------------------------------------------------------------------------------


def list_folders(corpus: Path) -> list[tuple[Path, list[str]]]:
    """Return the folders of published results, and the names of their files."""
    folders = [(Path(folder), sorted(names)) for folder, _, names in sorted(os.walk(corpus))]
    return [(folder, names) for folder, names in folders if folder.name in REFERENCES]


def read_result(corpus: Path, folder: Path, names: Iterable[str]) -> Submission:
    """Return some files of a published result."""
    relative = folder.relative_to(corpus).as_posix()
    files = {f"{relative}/{name}": (folder / name).read_bytes() for name in names}
    result = Submission(relative, relative.split("/")[0].removeprefix("v"), folder.name, relative, files)
    if (corpus / result.description).is_file():
        result.files[result.description] = (corpus / result.description).read_bytes()
    return result


def read_log(corpus: Path, path: Path) -> Submission:
    """Return a published log."""
    name = path.relative_to(corpus).as_posix()
    folder = name.split("/")[0]
    files = {f"{folder}/result_0.txt": path.read_bytes()}
    return Submission(name, folder.removeprefix("v"), path.parent.name, folder, files)


def read_named(corpus: Path, folder: str) -> Submission:
    """Return the logs of a published result and their description; of instances, their time to train as well."""
    scaled, benchmark = folder.split("/")[-2:]
    beside = (corpus / folder).parents[2].glob(f"*/strong/{benchmark}") if scaled == "weak" else ()
    found = [read_result(corpus, each, _sort_logs(each)) for each in (corpus / folder, *beside)]
    for other in found[1:]:
        found[0].files |= other.files
    return found[0]


def _sort_logs(folder: Path) -> list[str]:
    return sorted((path.name for path in folder.iterdir() if number_of(path.name) >= 0), key=number_of)


# -- shelves ----------------------------------------------------------------------------------------------------


def map_cached(sources: Iterable[Source]) -> list[Source]:
    """Return the sources, each of which makes its base once."""
    return [lru_cache(source) for source in sources]


def has_errors(counts: Counts) -> bool:
    """Tell whether there is an error."""
    return any(severity == ERROR for _, severity in counts)


def has_copies(counts: Counts) -> bool:
    """Tell whether two runs are alike."""
    return any(counts[rule, WARNING] for rule in COPY_RULES)


@dataclass(eq=False)
class Shelf:
    """Bases of one kind, of which one is drawn.

    share: for which numbers from 0 to 1 it is a published one, if there are any. refuses: what is found in a base
    as it is that makes it none.
    """

    built: Sequence[Source]
    published: Sequence[Source] = ()
    share: Callable[[float], bool] = lambda chance: chance > 0.3
    refuses: Callable[[Counts], bool] = lambda counts: False

    def choose(self, rng: random.Random) -> Source:
        """Return a base."""
        return rng.choice(self.published if self.published and self.share(rng.random()) else self.built)


class Stock:
    """All bases: those of the builder and, where the corpus is, published ones; and what is found in each as it is.

    Kinds: single logs of moderate size ("log"), of every published result at most five, as some have hundreds; a few
    runs of a result ("result"), of which no two are alike ("distinct runs"); whole results ("submission"); and those
    that have names.
    """

    def __init__(self, corpus: Path | None = None) -> None:
        folders = list_folders(corpus) if corpus else []
        whole = [each for each in folders if sum((each[0] / name).stat().st_size for name in each[1]) <= LARGEST_RESULT]
        logs = [self._list_logs(corpus, *each) for each in folders]
        built_logs = [partial(build_log, *pair, run) for pair in PAIRS for run in range(4)]
        published = [partial(read_result, corpus, *each) for each in whole]
        results = map_cached(partial(build_runs, *pair) for pair in PAIRS)
        taken = [self._take_runs(corpus, *each) for each in zip(folders, logs, strict=True)]
        accepted = [*filter(None, taken)]
        self.shelves = {
            "log": Shelf(
                map_cached(built_logs), [source for sources in logs for source in sources], refuses=has_errors
            ),
            "result": Shelf(results, accepted),
            "distinct runs": Shelf(results, accepted, refuses=has_copies),
            "submission": Shelf(map_cached(SUBMISSIONS), published, lambda chance: chance < 0.6, has_errors),
        }
        named = BUILT | {name: partial(read_named, corpus, folder) for name, folder in PUBLISHED.items() if corpus}
        self.shelves |= {name: Shelf([lru_cache(source)]) for name, source in named.items()}

    def _list_logs(self, corpus: Path, folder: Path, names: list[str]) -> list[Source]:
        logs = [folder / name for name in names if name.startswith("result_")][:5]
        return [partial(read_log, corpus, path) for path in logs if path.stat().st_size <= LARGEST_LOG]

    def _take_runs(self, corpus: Path, folder: tuple[Path, list[str]], logs: list[Source]) -> Source | None:
        """Return the result of the first accepted runs, None if they are too few."""
        names = [os.path.basename(log().name) for log in logs if not has_errors(self.find_in(log))][:RUNS]
        read = partial(read_result, corpus, folder[0], names)
        return read if len(names) == RUNS and len(read().files) > RUNS else None

    @lru_cache(maxsize=2000)  # noqa: B019  (there are two stocks)
    def find_in(self, source: Source) -> Counts:
        """Return what is found in a base as it is."""
        return count(source().judge()[1])

    def draw(self, kind: str, rng: random.Random) -> tuple[Submission, Counts]:
        """Return a base to be changed, and what is found in it as it is."""
        shelf = self.shelves[kind]
        source = shelf.choose(rng)
        require(not shelf.refuses(self.find_in(source)), "is refused without an edit")
        base = source()
        return replace(base, files=dict(base.files), against={}, _texts={}), self.find_in(source)
