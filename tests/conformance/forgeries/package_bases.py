"""The packages that are forged: published results, those of the sample builder, and those of this suite's own logs."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from common.config import load, to_dict
from common.provenance import ROOT, source_hash
from common.version import VERSION
from compliance.benchmarks import REFERENCES
from compliance.samples.log import SampleLog
from compliance.samples.package import SYSTEM, SamplePackage
from submission.assemble.packing import Assembly
from submission.assemble.writing import assemble_package
from tests.conformance.variants.logtext import Line, LogText, Unsuitable

NUMBER = re.compile(r"result_(\d+)\.txt$")
FULL_DATA_SHA256 = hashlib.sha256(b"the full data").hexdigest()
REVISION = hashlib.sha1(b"a revision", usedforsecurity=False).hexdigest()
HOST = {"cpu": "AMD EPYC 7763", "cores": 128, "usable_cores": 128, "machine": "x86_64", "system": "Linux"}


@dataclass
class Package:
    """The files of one organisation's folder, one result of which is forged; folder: that result's."""

    round: str
    organisation: str
    benchmark: str
    folder: str
    files: dict[str, bytes]

    def copy(self) -> Package:
        """Return a package that can be changed."""
        return Package(self.round, self.organisation, self.benchmark, self.folder, dict(self.files))

    @property
    def system(self) -> str:
        """The name of the system that made the result."""
        return self.folder.split("/")[1]

    @property
    def logs(self) -> list[str]:
        """The names of the result's logs, by number."""
        inside = self.folder + "/result_"
        return sorted((name for name in self.files if name.startswith(inside)), key=number_of)

    def read(self, name: str) -> LogText:
        """Return a log, to be changed."""
        return LogText(self.files[name], self.benchmark, self.round)

    def edit(self, change: Callable[[LogText], Any], *which: int) -> None:
        """Change all logs, or those at some positions."""
        names = self.logs
        for name in [names[at] for at in which] or names:
            log = self.read(name)
            change(log)
            self.files[name] = log.bytes()

    def describe(self, **fields: Any) -> None:
        """Change fields of the system description."""
        name = f"systems/{self.system}.json"
        self.files[name] = json.dumps(json.loads(self.files[name]) | fields, indent=1).encode()

    def write(self, folder: Path) -> Path:
        """Write the files into hpc_results_v<round>/<organisation> below a folder; return the organisation's."""
        root = folder / f"hpc_results_v{self.round}" / self.organisation
        for name, data in self.files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return root


def number_of(name: str) -> int:
    """Return the number in the name of a log."""
    match = NUMBER.search(name)
    return int(match[1]) if match else -1


# -- published --------------------------------------------------------------------------------------------------

PUBLISHED = {
    "Dell deepcam": "3.0/Dell/32xXE8545x4A100-SXM4-40GB/strong/deepcam",
    "Clemson deepcam": "3.0/Clemson/18xR750-2xA100-PCIe-80GB/strong/deepcam",
    "Clemson openfold": "3.0/Clemson/18xR750-2xA100-PCIe-80GB/strong/openfold",
    "TACC openfold": "3.0/TACC/lonestar6-pytorch/strong/openfold",
    "NVIDIA cosmoflow": "2.0/NVIDIA/dgxa100_n64_pytorch/strong/cosmoflow",
    "NVIDIA oc20": "2.0/NVIDIA/dgxa100_n64_pytorch/strong/oc20",
    "NVIDIA deepcam": "2.0/NVIDIA/dgxa100_n256_pytorch/strong/deepcam",
    "CSCS oc20": "1.0/CSCS/piz_daint_gpu_n256_pt1.8.0/strong/oc20",
    "LBNL deepcam": "1.0/LBNL/perlmutter_512x4_ngc21.09_pytorch/strong/deepcam",
    "HelmholtzAI cosmoflow": "1.0/HelmholtzAI/juwelsbooster_gpu_n512_mxnet1.9/strong/cosmoflow",
    "LBNL cosmoflow instances": "1.0/LBNL/perlmutter_10x128x4_ngc21.09_mxnet/weak/cosmoflow",
    "LBNL deepcam instances": "1.0/LBNL/perlmutter_10x128x4_ngc21.09_pytorch/weak/deepcam",
}


def published_package(corpus: Path, result: str) -> Package:
    """Return one published result with the description of its system; of instances, their time to train as well."""
    round_, organisation, system, scaling, benchmark = result.split("/")
    root, folder = corpus / f"v{round_}" / organisation, f"results/{system}/{scaling}/{benchmark}"
    folders = [folder]
    if scaling == "weak":
        folders += [path.relative_to(root).as_posix() for path in root.glob(f"results/*/strong/{benchmark}")]
    files = {}
    for name in folders:
        logs = [path for path in (root / name).iterdir() if NUMBER.search(path.name)]
        for path in sorted((*logs, root / "systems" / f"{name.split('/')[1]}.json")):
            files[path.relative_to(root).as_posix()] = path.read_bytes()
    return Package(round_, organisation, benchmark, folder, files)


# -- built ------------------------------------------------------------------------------------------------------


def built_package(sample: SamplePackage) -> Package:
    """Return the package of a sample."""
    files = {name: data if isinstance(data, bytes) else data.bytes() for name, data in sample.files.items()}
    return Package(sample.round, "Example", sample.benchmark, sample.folder, files)


def with_steps(benchmark: str) -> Package:
    """Return a sample whose logs count their steps."""
    sample = SamplePackage(benchmark)
    for content in sample.files.values():
        if isinstance(content, SampleLog):
            samples, batch = (content.records_of(key)[0]["value"] for key in ("train_samples", "global_batch_size"))
            content.steps(samples // batch)
    return built_package(sample)


def instances(benchmark: str, runs: int) -> Package:
    """Return a throughput result whose description has the nodes of all its instances, and one of time to train."""
    sample, small = SamplePackage(benchmark, scaling="weak", runs=runs).with_time_to_train(), f"{SYSTEM}_small"
    package = built_package(sample.start_together())
    for name, data in list(package.files.items()):
        if "/weak/" not in name:
            package.files[name.replace(SYSTEM, small)] = data.replace(SYSTEM.encode(), small.encode())
        if "/strong/" in name:
            del package.files[name]
    package.describe(number_of_nodes=str(16 * runs))
    return package


def measured(benchmark: str) -> Package:
    """Return a result whose power was measured on four nodes."""
    return built_package(SamplePackage(benchmark, runs=REFERENCES[benchmark].runs).power(nodes=4))


# -- of this suite ----------------------------------------------------------------------------------------------


def suite_package(benchmark: str) -> Package:
    """Return a package with logs as this suite writes them, on 64 accelerators."""
    package = built_package(SamplePackage(benchmark).by_suite().remove("benchmarks"))  # it is not this suite's code
    defaults = to_dict(load(import_module(f"{benchmark}.settings").Config, ROOT / benchmark / "config.yaml"))
    for at in range(len(package.logs)):
        package.edit(lambda log: _by_suite(log, benchmark, defaults), at)
    return package


def _by_suite(log: LogText, benchmark: str, defaults: dict[str, Any]) -> None:
    values = {line.key: line.record["value"] for line in log.timed}
    batch, samples = values["global_batch_size"], values["train_samples"]
    provenance = log.first("provenance").record["value"]
    config = _overlay(deepcopy(defaults), provenance["config"])
    config["schedule"] = provenance["config"]["schedule"]  # that of the sample's own settings
    config["output_dir"] = f"runs/{values['seed']}"
    config["data"]["data_dir"] = f"data/{benchmark}"
    config["train"] |= {"global_batch_size": batch, "seed": values["seed"], "epochs": 50, "accumulation": 1}
    config["instances"]["count"] = 1
    config["submission"] |= {"org": "Example University", "status": "onprem", "platform": SYSTEM}
    log.first("provenance").record["value"] = {
        "versions": {"python": "3.11.7", "mlperf-hpc-suite": VERSION, "torch": "2.13.0+cu128", "numpy": "2.4.6"},
        "git_revision": REVISION,
        "source_sha256": source_hash(("common", benchmark)),
        "host": HOST,
        "data_sha256": FULL_DATA_SHA256,
        "config": config,
    }
    add_value(log, "number_of_ranks", 64)
    for line in log.all("epoch_stop"):
        taken_s = (line.time - log.first("epoch_start", line.number).time) / 1000
        rate = log.add(line, line, 0, key="learning_rate", value=0.001, event_type="POINT_IN_TIME")
        stats = log.add(rate, rate, 0, key="tracked_stats", value={"throughput": samples / taken_s})
        for added in (rate, stats):
            added.record["metadata"]["step"] = -(-samples // batch)
    log.last("run_stop").record["metadata"] |= {"ended": "target_met", "epoch_num": log.numbers[-1]}
    for line in log.timed:
        line.record["metadata"]["file"] = "common/mllog.py"


def add_value(log: LogText, key: str, value: Any) -> Line:
    """Set the value of a key's first record, or add one to the header."""
    lines = log.all(key)
    if not lines:
        before = log.first("train_samples")
        lines = [log.add(before, before, 0, key=key)]
    lines[0].record["value"] = value
    return lines[0]


def _overlay(tree: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(tree.get(key), dict):
            _overlay(tree[key], value)
        elif value is not None:
            tree[key] = value
    return tree


def assembled(benchmark: str) -> Package:
    """Return a package that `python -m submission.assemble` makes of such logs, with the code of this suite."""
    package = suite_package(benchmark)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for number, name in enumerate(package.logs):
            (folder / "runs" / f"{number}").mkdir(parents=True)
            (folder / "runs" / f"{number}" / "result_0.txt").write_bytes(package.files[name])
        system = folder / f"{SYSTEM}.json"
        system.write_bytes(package.files[f"systems/{SYSTEM}.json"])
        root = assemble_package(Assembly(runs=(folder / "runs",), output=folder / "out", system=system)).root
        return Package("3.0", root.name, benchmark, package.folder, dict(_read_files(root)))


def _read_files(root: Path) -> Iterator[tuple[str, bytes]]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            yield path.relative_to(root).as_posix(), path.read_bytes()


BUILT: dict[str, Callable[[], Package]] = {
    "built deepcam": lambda: with_steps("deepcam"),
    "built cosmoflow": lambda: built_package(SamplePackage("cosmoflow")),
    "built oc20": lambda: built_package(SamplePackage("oc20")),
    "built openfold": lambda: built_package(SamplePackage("openfold")),
    "built instances": lambda: instances("cosmoflow", 20),
    "measured deepcam": lambda: measured("deepcam"),
    "measured cosmoflow": lambda: measured("cosmoflow"),
    "suite cosmoflow": lambda: suite_package("cosmoflow"),
    "suite deepcam": lambda: suite_package("deepcam"),
    "assembled cosmoflow": lambda: assembled("cosmoflow"),
}


@lru_cache
def base_package(name: str, corpus: Path | None) -> Package:
    """Return a package to forge. Raises Unsuitable for a published one without the corpus."""
    if name in BUILT:
        return BUILT[name]()
    if corpus is None:
        raise Unsuitable("no published logs")
    return published_package(corpus, PUBLISHED[name])
