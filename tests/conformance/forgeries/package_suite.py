"""Forgeries of what this suite's own logs say of machine, data and code, and of the code in a package."""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.provenance import ROOT
from compliance.model.finding import ERROR, NOTE, WARNING
from submission.assemble.provenance import record_package
from tests.conformance.forgeries.package_amounts import STEPS, epoch_of_few_steps, rates_times, steps_times
from tests.conformance.forgeries.package_bases import Package
from tests.conformance.forgeries.package_forgery import Forge, Forgery, in_each_log, on_each
from tests.conformance.variants.logtext import LogText

BOTH = "suite cosmoflow, suite deepcam"


def mini_digest(benchmark: str) -> str:
    """Return the digest of the data of a mini problem, from a log of it."""
    text = (ROOT / "tests" / "compliance" / "logs_of_0_2_0" / f"{benchmark}-mini.txt").read_text()
    return text.partition('"data_sha256": "')[2][:64]


def provenance(change: Callable[[dict[str, Any], random.Random], str | None]) -> Forge:
    """Return a forgery that changes the provenance in each log, all by the same draw."""

    def forge(log: LogText, rng: random.Random) -> str | None:
        """Change the value of the record."""
        return change(log.first("provenance").record["value"], rng)

    return in_each_log(forge)


def states(path: str, *values: Any) -> Forge:
    """Return a forgery that states another value at a place in the provenance; ... leaves it out."""

    def change(made: dict[str, Any], rng: random.Random) -> str:
        """Set it."""
        value = rng.choice(values)
        _set(made, path, value)
        return f"{path} {value!r}"

    return provenance(change)


def states_in_some(path: str, *values: Any) -> Forge:
    """Return a forgery in which some runs, but not all, state another value."""

    def forge(package: Package, rng: random.Random) -> str:
        names = package.logs
        which = rng.sample(range(len(names)), rng.randint(1, len(names) // 2))
        value = rng.choice(values)
        package.edit(lambda log: _set(log.first("provenance").record["value"], path, value), *which)
        return f"{path} {value!r} in runs {sorted(which)}"

    return forge


def _set(made: dict[str, Any], path: str, value: Any) -> None:
    *folders, name = path.split("/")
    for folder in folders:
        made = made[folder]
    if value is ...:
        made.pop(name, None)
    else:
        made[name] = value


def own_data_in_each(package: Package, rng: random.Random) -> None:
    """Let every run state other data."""
    for at in range(len(package.logs)):
        digest = hashlib.sha256(f"{at} {rng.random()}".encode()).hexdigest()
        package.edit(lambda log, d=digest: log.first("provenance").record["value"].update(data_sha256=d), at)  # type: ignore[misc]


def mini_folder(package: Package, rng: random.Random) -> str:
    """State the folder of the mini problem's data."""
    folder = rng.choice(("data/{}-mini", "{}-mini", "runs/demo/{}-mini")).format(package.benchmark)
    package.edit(lambda log: _set(log.first("provenance").record["value"], "config/data/data_dir", folder))
    return folder


def mini_data(package: Package, rng: random.Random) -> str:
    """State the digest of the mini problem's data."""
    digest = mini_digest(package.benchmark)
    package.edit(lambda log: log.first("provenance").record["value"].update(data_sha256=digest))
    return digest


def other_version(*removed: str) -> Forge:
    """Return a forgery that claims another version of the suite and leaves out what would tell."""

    def change(log: LogText, rng: random.Random) -> str:
        """Change the version, remove the keys of the provenance or records."""
        made = log.first("provenance").record["value"]
        made["versions"]["mlperf-hpc-suite"] = version = rng.choice(("0.1.9", "9.0.0"))
        for path in removed:
            if "/" in path:
                _set(made, path, ...)
            else:
                log.remove(log.all(path))
        return f"version {version} without {', '.join(removed)}"

    return in_each_log(change)


def small_network(made: dict[str, Any]) -> str:
    """Let the configuration be of another network than the closed division has."""
    model = made["config"]["model"]
    name, value = ("conv_size", 4) if "conv_size" in model else ("middle_blocks", 2)
    model[name] = value
    return f"{name} {value}"


def erased(*paths: str, file: str = "train.py") -> Forge:
    """Return a forgery of a small network in which the suite's name is erased and the configuration left."""

    def change(log: LogText, rng: random.Random) -> str:
        """Remove what names the suite."""
        made = log.first("provenance").record["value"]
        for path in paths:
            _set(made, path, ...)
        log.remove(log.all("dataset_variant", "number_of_parameters"))
        for line in log.timed:
            line.record["metadata"]["file"] = file
        return small_network(made)

    return in_each_log(change)


DATA = ("data_sha256", "data set", "dataset", "mini")
NETWORK = ("conv_size", "middle_blocks", "model", "configuration", "version of")
F15 = [
    *on_each(
        "F15",
        BOTH,
        "two cores under 64 accelerators",
        ("core", "host"),
        states("host", {"cpu": "Intel Xeon", "cores": 2, "usable_cores": 2, "machine": "x86_64", "system": "Linux"}),
    ),
    *on_each("F15", BOTH, "a build of torch for CPUs", ("torch", "cpu"), states("versions/torch", "2.13.0+cpu")),
    *on_each("F15", BOTH, "the digest of the mini problem's data", DATA, mini_data),
    *on_each(
        "F15",
        BOTH,
        "data of the mini problem by its folder",
        ("data_dir", "mini"),
        mini_folder,
        (ERROR, WARNING, NOTE),  # a name proves nothing
    ),
    *on_each("F15", BOTH, "a digest of other data in each run", DATA, own_data_in_each),
    *on_each("F15", "suite deepcam", "other data in some runs", DATA, states_in_some("data_sha256", "a1" * 32)),
    *on_each("F15", BOTH, "a tenth of the steps", STEPS, steps_times(0.125, 0.1)),
    *on_each("F15", "suite deepcam", "few steps in one epoch", STEPS, epoch_of_few_steps(2, 4)),
    *on_each("F15", "suite cosmoflow", "230 samples/s", ("throughput", "samples"), rates_times(0.09)),
    *on_each(
        "F15",
        BOTH,
        "sources 0…0",
        ("source", "hash"),
        states("source_sha256", "0" * 64),
    ),
    *on_each(
        "F15",
        "suite cosmoflow",
        "changed sources",
        ("git_revision", "dirty", "source"),
        states("git_revision", "1" * 40 + "-dirty"),
        (ERROR, WARNING, NOTE),  # all runs alike: nothing is contradicted
    ),
    *on_each(
        "F15",
        "suite cosmoflow, suite deepcam",
        "other processors in some runs",
        ("host", "cpu", "processor", "core"),
        states_in_some("host", {"cpu": "AMD EPYC 9654", "cores": 384, "usable_cores": 384, "machine": "x86_64"}),
    ),
    *on_each(
        "F15",
        BOTH,
        "configured for fewer epochs than were trained",
        ("train.epochs", "epochs"),
        states("config/train/epochs", 5, 3),
    ),
    *on_each("F15", BOTH, "instances in a strong result", ("instance",), states("config/instances/count", 8, 2)),
    *on_each(
        "F15", BOTH, "configured for another batch size", ("batch",), states("config/train/global_batch_size", 16, 64)
    ),
    *on_each("F15", "suite cosmoflow", "configured for another seed", ("seed",), states("config/train/seed", 7, 77)),
    *on_each(
        "F15",
        "suite cosmoflow",
        "configured for fewer samples",
        ("train_samples", "samples"),
        states("config/data/train_samples", 1024, 65536),
    ),
    *on_each(
        "F15",
        "suite deepcam",
        "configured for CPUs",
        ("device", "cpu", "accelerator"),
        states("config/dist/device", "cpu"),
    ),
    *on_each(
        "F15",
        BOTH,
        "a network left out with another version",
        ("model",),
        other_version("config/model"),
        (ERROR,),
    ),
    *on_each(
        "F15",
        BOTH,
        "parameters left out with another version",
        ("number_of_parameters",),
        other_version("number_of_parameters"),
        (ERROR,),
    ),
    *on_each(
        "F15",
        "suite cosmoflow",
        "augmentation and initial weights left out with another version",
        ("augment", "init_from"),
        other_version("config/data/augment", "config/train/init_from"),
        (ERROR,),
    ),
    *on_each(
        "F15",
        BOTH,
        "the suite's version erased, and the configuration of a small network left",
        NETWORK,
        erased("versions/mlperf-hpc-suite"),
    ),
    *on_each(
        "F15",
        BOTH,
        "version and hash erased, and the configuration of a small network left",
        NETWORK,
        erased("versions/mlperf-hpc-suite", "source_sha256"),
    ),
    *on_each(
        "F15",
        "suite cosmoflow",
        "only the configuration of a small network left",
        NETWORK,
        erased("versions", "source_sha256", "git_revision", "host", "data_sha256", file="/opt/suite/mllog.py"),
    ),
    *on_each("F15", "suite deepcam", "trained from weights", ("init_from",), states("config/train/init_from", "a.pt")),
]

# -- F16: code ----------------------------------------------------------------------------------------------------

CODE = ("source", "hash", "sha256", "changed", "manifest", "provenance.json", "differ")
IMPLEMENTATION = "benchmarks/cosmoflow/implementations/mlperf-hpc-suite"


def edited(*paths: str) -> Forge:
    """Return a forgery that changes a file of the package after it was assembled."""

    def forge(package: Package, rng: random.Random) -> str:
        name = rng.choice(paths)
        package.files[name] += b"\nLESS=4\n"
        return name

    return forge


def emptied(package: Package, rng: random.Random) -> str:
    """Leave nothing of a file of the code."""
    name = f"{IMPLEMENTATION}/cosmoflow/{rng.choice(('train.py', 'model.py'))}"
    package.files[name] = b""
    return name


def one_line(package: Package, rng: random.Random) -> None:
    """Replace the benchmark's code by one line."""
    inside = f"{IMPLEMENTATION}/cosmoflow/"
    package.files = {name: data for name, data in package.files.items() if not name.startswith(inside)}
    package.files[f"{inside}train.py"] = b"print('trained')\n"


def other_configuration(package: Package, rng: random.Random) -> str:
    """Change the configuration that the package names for its runs."""
    names = [name for name in package.files if name.endswith("config.yaml") and "/implementations/" not in name]
    package.files[names[0]] = package.files[names[0]].replace(b"conv_size: 32", b"conv_size: 4") + b"# as run\n"
    return names[0]


def added(package: Package, rng: random.Random) -> None:
    """Add a module to the code."""
    package.files[f"{IMPLEMENTATION}/cosmoflow/faster.py"] = b"SCALE = 4\n"


def other_recorded_log(package: Package, rng: random.Random) -> str:
    """Change a log after the package recorded it: its results become better by a little."""
    name = rng.choice(package.logs)
    log = package.read(name)
    for line in log.results[:-1]:
        line.record["value"] *= 0.9999
    package.files[name] = log.bytes()
    return name


def record_again(package: Package) -> None:
    """Let provenance.json be that of the package as it is."""
    with tempfile.TemporaryDirectory() as folder:
        root = package.write(Path(folder))
        (root / "provenance.json").unlink()
        package.files["provenance.json"] = record_package(root)


def other_record(package: Package, rng: random.Random) -> None:
    """Change the code, and record the package as it is then."""
    package.files[f"{IMPLEMENTATION}/cosmoflow/model.py"] += b"\nLESS = 4\n"
    record_again(package)


def no_record(package: Package, rng: random.Random) -> None:
    """Change the code and remove provenance.json."""
    package.files[f"{IMPLEMENTATION}/common/mllog.py"] += b"\nLESS = 4\n"
    del package.files["provenance.json"]


def logs_of_other_sources(package: Package, rng: random.Random) -> str:
    """Let all logs state the hash of other sources, and record the package as it is then."""
    digest = rng.choice(("0" * 64, hashlib.sha256(b"other").hexdigest()))
    package.edit(lambda log: log.first("provenance").record["value"].update(source_sha256=digest))
    record_again(package)
    return digest


ASSEMBLED = "assembled cosmoflow"
F16 = [
    Forgery("F16", ASSEMBLED, "the network's code changed", CODE, edited(f"{IMPLEMENTATION}/cosmoflow/model.py")),
    Forgery(
        "F16",
        ASSEMBLED,
        "shared code changed",
        CODE,
        edited(f"{IMPLEMENTATION}/common/mllog.py", f"{IMPLEMENTATION}/common/files.py"),
    ),
    Forgery(
        "F16",
        ASSEMBLED,
        "a script changed",
        CODE,
        edited("benchmarks/cosmoflow/example_n64/run_and_time.sh", "benchmarks/cosmoflow/example_n64/setup.sh"),
    ),
    Forgery("F16", ASSEMBLED, "a file of the code emptied", CODE, emptied),
    Forgery("F16", ASSEMBLED, "the code replaced by one line", CODE, one_line),
    Forgery("F16", ASSEMBLED, "another configuration", (*CODE, "config.yaml"), other_configuration),
    Forgery("F16", ASSEMBLED, "a module added", CODE, added),
    Forgery("F16", ASSEMBLED, "a log changed", CODE, other_recorded_log),
    Forgery("F16", ASSEMBLED, "the code changed with its hash in provenance.json", CODE, other_record),
    Forgery("F16", ASSEMBLED, "the code changed and provenance.json removed", CODE, no_record),
    Forgery("F16", ASSEMBLED, "the logs are of other sources", CODE, logs_of_other_sources),
    Forgery(
        "F16",
        ASSEMBLED,
        "one log is of other sources",
        CODE,
        states_in_some("source_sha256", "0" * 64, "ab" * 32),
    ),
]

FORGERIES = [*F15, *F16]
