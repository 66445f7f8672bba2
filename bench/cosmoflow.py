"""Measures training steps of CosmoFlow, ours against the same network in Keras on TensorFlow, in the same run.

    python bench/cosmoflow.py                              everything, about ten minutes on two cores
    python bench/cosmoflow.py --quick                      small networks only, under a minute
    python bench/cosmoflow.py --peer-python PYTHON         a Python that has tensorflow-cpu; --no-peer does without
    python bench/cosmoflow.py -o docs/performance-cosmoflow
                                                           also writes docs/performance-cosmoflow.md and .json

Without --peer-python tensorflow-cpu is installed, once, in an environment of its own below --cache (1.5 GB).

A step starts from int16 counts in memory: log(1 + x), forward, backward, SGD with momentum, batches of the reference's
size. CPU seconds are user + system time of all threads; the figure that counts is that of one thread, for others may
use the machine. Both sides are warm before they are measured, take turns, and the median of the turns counts. The
share of the peak is that of a large matrix product in the same number format, measured between the turns.

Where there is an accelerator, `--device auto` measures it instead, against the published speed of an H100. This part
is **untested**, for want of one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from cosmoflow_table import ratio_of, table
from cosmoflow_workers import Case, Worker

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
TENSORFLOW = "tensorflow-cpu==2.21.0"
MINI = Case(32, 8, 4, 16)
FULL = (MINI, Case(32, batch=8), Case(64, batch=2), Case(64, batch=8), Case(128, batch=1), Case(128, batch=2))
QUICK = (MINI, Case(32, batch=8))
ALL_CORES = (MINI, Case(128))
ACCELERATOR = tuple(Case(batch=batch, dtype="bf16") for batch in (1, 8, 16, 32))
Results = dict[str, list[dict[str, Any]]]


# -- running -------------------------------------------------------------------------------------------------


def summary(facts: dict[str, Any], turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the facts with the medians of the turns, and each turn's CPU seconds per step."""
    medians = {key: median(turn[key] for turn in turns) for key in turns[0]}
    return facts | medians | {"cpu_s_of_turns": [turn["cpu_s"] for turn in turns]}


def alternate(workers: dict[str, Worker], turns: int) -> dict[str, dict[str, Any]]:
    """Return what each worker says, made by turns; all have warmed up before the first."""
    try:
        facts = {side: worker.read() for side, worker in workers.items()}
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in workers}
        for _ in range(turns):
            for side, worker in workers.items():
                found[side].append(worker.turn())
    finally:
        for worker in workers.values():
            worker.close()
    return {side: summary(facts[side], found[side]) for side in workers}


def measured(case: Case, peer: str | None, turns: int, folder: Path | None = None) -> dict[str, Any]:
    """Return what a step of the case took on both sides; with a folder, of ours with the loader on its files."""
    workers = {"ours": Worker("cosmoflow_measures.py", sys.executable, case, *([str(folder)] if folder else []))}
    if peer and not folder:
        workers["peer"] = Worker("cosmoflow_keras.py", peer, case)
    sides = alternate(workers, turns)
    if len({side["parameters"] for side in sides.values()}) != 1:
        sys.exit(f"the networks differ: {sides}")
    result = {"case": case._asdict(), "network": case.network, **sides}
    ours, ratio = sides["ours"]["cpu_s"] / case.batch * 1e3, ratio_of(result)
    against = f", {ratio:.2f} of the peer's" if ratio else ""
    files = f" from {folder.name} files" if folder else ""
    where = f"threads {case.threads}" if case.device == "cpu" else case.device
    print(
        f"{case.network} batch {case.batch} {case.dtype} {where}{files}: {ours:.1f} ms CPU per sample{against}",
        file=sys.stderr,
    )
    return result


def measure_all(given: argparse.Namespace, machine: dict[str, Any], peer: str | None) -> Results:
    """Return the results by sections: one core, all cores, with reading; or those of the accelerator."""
    cores, dtypes, device = machine["cores"], machine["dtypes"], machine["device"]
    if device != "cpu":
        cases = [case._replace(device=device, threads=cores) for case in ACCELERATOR]
        results = {"accelerator": [measured(case, None, given.turns) for case in cases]}
        reading = [cases[1]]
    else:
        cases = [case._replace(dtype=dtype) for case in (QUICK if given.quick else FULL) for dtype in dtypes]
        results = {"one core": [measured(case, peer, given.turns) for case in cases]}
        reading = [case._replace(threads=cores, dtype=dtypes[-1]) for case in ALL_CORES[: 1 if given.quick else None]]
        if not given.quick:
            results["all cores"] = [measured(case, peer, given.turns) for case in reading]
    with tempfile.TemporaryDirectory(prefix="bench-cosmoflow-") as name:
        results["reading"] = []
        for case in reading:
            for files in ("gzip", "raw"):
                folder = Path(name, str(case.side), files)
                synthesize(folder, case.side, files)
                results["reading"].append(measured(case, None, given.turns, folder) | {"files": files})
    return results


def synthesize(folder: Path, side: int, files: str) -> None:
    """A folder holds generated samples: 8 of the published size, 64 of the mini problem's."""
    preset = ["--preset", "full-size"] if side == 128 else ["--particles", "32", "--train", "64"]
    compress = ["--compress", "none" if files == "raw" else "gzip"]
    command = [sys.executable, "-m", "cosmoflow.synthesize", str(folder), *preset, "--validation", "1", *compress]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


# -- the machine and the peer --------------------------------------------------------------------------------


def peer_python(given: argparse.Namespace) -> str | None:
    """Return the Python that has the peer, installed now if it is in no environment yet; None without a peer."""
    if given.no_peer or given.peer_python:
        return None if given.no_peer else str(given.peer_python)
    folder = given.cache / TENSORFLOW
    python, installed = folder / "bin" / "python", folder / "installed"
    if not installed.exists():
        print(f"{TENSORFLOW} is installed in {folder}", file=sys.stderr)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", TENSORFLOW]
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            subprocess.run(install, check=True)
        except subprocess.CalledProcessError:
            sys.exit(f"{TENSORFLOW} cannot be installed: name a Python that has it (--peer-python), or use --no-peer")
        installed.touch()
    return str(python)


def machine(device: str) -> dict[str, Any]:
    """Return what is measured on; nothing that names a place."""
    from data import about, cores  # the neighbour; it takes a second to import

    code = (
        "import torch; from common.device import device_type; from common.precision import Precision, PrecisionConfig;"
        f"kind = device_type({device!r}); print(kind, Precision(PrecisionConfig(), torch.device(kind)).name)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    kind, best = done.stdout.split()
    return about() | {"cores": cores(), "device": kind, "dtypes": ["fp32"] if best == "fp32" else ["fp32", best]}


def main() -> int:
    """Measure, print the tables; exit 1 if the peer needs less CPU time than ours somewhere."""
    given = _arguments()
    facts = machine(given.device)
    results = measure_all(given, facts, peer_python(given) if facts["device"] == "cpu" else None)
    text = table(results, facts)
    print(text)
    if given.output:
        Path(f"{given.output}.md").write_text(text, encoding="utf-8")
        Path(f"{given.output}.json").write_text(json.dumps({**facts, "results": results}, indent=1) + "\n")
    ratios = [ratio_of(result) for result in results.get("one core", [])]
    return 0 if all(ratio is None or ratio < 1 for ratio in ratios) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small networks only")
    peer = parser.add_mutually_exclusive_group()
    peer.add_argument("--peer-python", type=Path, metavar="PYTHON", help=f"a Python that has {TENSORFLOW}")
    peer.add_argument("--no-peer", action="store_true", help="measure this suite alone")
    cache = Path.home() / ".cache" / "mlperf-hpc-suite"
    parser.add_argument("--cache", type=Path, default=cache, help="where the peer is installed (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu (default), or auto for the accelerator")
    parser.add_argument("--turns", type=int, help="turns of each side (default: 5, or 3 with --quick)")
    parser.add_argument("-o", "--output", metavar="NAME", help="write NAME.md and NAME.json")
    given = parser.parse_args()
    given.turns = given.turns or (3 if given.quick else 5)
    return given


if __name__ == "__main__":
    sys.exit(main())
