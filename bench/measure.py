"""Measure what `measure` and `roofline` cost and find: each benchmark twice, ceilings beside other tools, the fidelity.

    python bench/measure.py                                 shows it; about 15 minutes
    python bench/measure.py --keep                          also keeps the record
    python bench/measure.py --fidelity --keep               measures only how far bf16 is from float32, keeps the rest

The other tools are hpcc (STREAM, DGEMM; with an mpirun), fio and iperf3, of Debian's packages of these names; one that
is missing is left out, and the page says so. hpcc also needs libopenblas0-pthread: with the BLAS that its package
brings, DGEMM is ten times slower, so that it is left out, too. CPU seconds are user + system time of a command and its
children.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from machine import about, cores, describe_machine
from records import add_keep_option, keep_record, read_record

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ("cosmoflow", "deepcam", "oc20")
FILES, FILE_BYTES = 8, 128 << 20
MATRIX = 6000
"""Side of HPL's matrix: decides the size of STREAM's vectors and of DGEMM's matrices, and how long hpcc takes."""
ARITHMETIC = {
    "AVX2, bf16 emulated": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "AVX-512, bf16 emulated": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "all instructions": {},
}
ERRORS = ("output_errors", "fp32_output_errors", "gradient_errors", "fp32_gradient_errors", "loss_errors")
LIMIT_S = 300
"""What a measurement may take."""
LIMIT_APART = 0.1
"""How far the CPU times of a step in two measurements may be apart, relative to their mean."""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def ran(words: list[str], folder: Path, **variables: str) -> tuple[str, float, float]:
    """Run a command; return its output, wall and CPU seconds."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(words, cwd=folder, env=environment() | variables, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - begin
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


# -- the measurement, twice ----------------------------------------------------------------------------------


def twice(benchmark: str, folder: Path) -> dict[str, Any]:
    """Measure the full-size network twice."""
    words = [sys.executable, "-m", benchmark, "measure"]
    ran([*words, "--steps", "3"], folder)  # generates the samples
    runs = []
    for _ in range(2):
        _, wall, cpu = ran(words, folder)
        found = json.loads((folder / f"runs/{benchmark}-measure/fom.json").read_text())
        kept = (
            "median_step_ms",
            "cpu_ms_per_step",
            "spread",
            "samples_per_s",
            "flop_per_s",
            "meter_cpu_share",
            "dtype",
        )
        runs.append(
            {"wall_s": wall, "cpu_s": cpu, "steps": len(found["step_ms"]), **{name: found[name] for name in kept}}
        )
    return {"benchmark": benchmark, "runs": runs}


def apart(runs: list[dict[str, Any]], key: str) -> float:
    """Return how far two runs are apart, relative to their mean."""
    first, second = (run[key] for run in runs)
    return abs(first - second) / (first + second) * 2


def faults(measurements: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what a measurement should not do: take long, or find something else when it is repeated."""
    for one in measurements:
        name, runs = one["benchmark"], one["runs"]
        longest_s, difference = max(run["wall_s"] for run in runs), apart(runs, "cpu_ms_per_step")
        if longest_s > LIMIT_S:
            yield f"{name}: a measurement took {longest_s:.0f} s; expected at most {LIMIT_S} s"
        if difference > LIMIT_APART:
            yield f"{name}: CPU times of a step are {difference:.1%} apart; expected at most {LIMIT_APART:.0%}"


# -- how far bf16 is from float32 ----------------------------------------------------------------------------


def fidelity(folder: Path) -> dict[str, Any]:
    """Measure the minis with the instructions of other processors, as far as this one has them."""
    words = ["mini", "precision.dtype=bf16", "train.global_batch_size=4", "--steps", "3", "--fidelity"]
    rows = []
    for arithmetic, variables in ARITHMETIC.items():
        for benchmark in BENCHMARKS:
            ran([sys.executable, "-m", benchmark, "measure", *words, "-o", "fidelity.json"], folder, **variables)
            found = json.loads((folder / "fidelity.json").read_text())
            rows.append({"benchmark": benchmark, "arithmetic": arithmetic} | {name: found[name] for name in ERRORS})
    return {"machine": about(), "rows": rows}


# -- ceilings, and the tools that others use for them --------------------------------------------------------


def missing() -> dict[str, str]:
    """Return the tools that are left out, with the reason."""
    needed = {"hpcc": ("hpcc", "mpirun"), "fio": ("fio",), "iperf3": ("iperf3",)}
    absent = {name: [one for one in words if not shutil.which(one)] for name, words in needed.items()}
    reasons = {name: f"{' and '.join(words)} not installed" for name, words in absent.items() if words}
    if "hpcc" not in reasons and "openblas" not in ran(["ldd", str(shutil.which("hpcc"))], ROOT)[0]:
        reasons["hpcc"] = "uses the slow reference BLAS: apt-get install libopenblas0-pthread"
    return reasons


def ceilings(folder: Path, left_out: dict[str, str]) -> dict[str, Any]:
    """Return our ceilings in fp32 on one rank for each core, and those that the tools find that are not left out."""
    data = folder / "files"
    data.mkdir()
    for number in range(FILES):
        (data / f"{number}").write_bytes(os.urandom(1 << 20) * (FILE_BYTES >> 20))
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(cores()), "-m"]
    fom = str(folder / "fom.json")
    ran(
        [*start, "cosmoflow", "measure", "precision.dtype=fp32", "--steps", "3", "-o", fom], folder, OMP_NUM_THREADS="1"
    )
    roofline = [*start, "common.measure", "roofline", fom, "--data", str(data), "-o", str(folder / "roofline")]
    ran(roofline, folder, OMP_NUM_THREADS="1")
    ours = json.loads((folder / "roofline/roofline.json").read_text())["ceilings"]
    peers: dict[str, Callable[[Path], dict[str, float]]] = {"hpcc": hpcc, "fio": fio, "iperf3": iperf}
    found = {name: peer(folder) for name, peer in peers.items() if name not in left_out}
    return {"ours": ours, "peers": found, "left_out": left_out}


def hpcc(folder: Path) -> dict[str, float]:
    """Return the rates of DGEMM and STREAM's triad, all processes at once."""
    name = next(Path("/usr/share/doc/hpcc/examples").glob("_hpccinf.txt*"))
    text = ran(["zcat", "-f", str(name)], folder)[0]
    lines = text.splitlines()
    lines[5], lines[10], lines[11] = f"{MATRIX} Ns", "1 Ps", f"{cores()} Qs"
    (folder / "hpccinf.txt").write_text("\n".join(lines) + "\n")
    ran(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(cores()), "hpcc"], folder, OMP_NUM_THREADS="1")
    found = dict(re.findall(r"^(\w+)=(\S+)$", (folder / "hpccoutf.txt").read_text(), re.M))
    return {
        "products": 1e9 * float(found["StarDGEMM_Gflops"]) * cores(),
        "memory": 1e9 * float(found["StarSTREAM_Triad"]) * cores(),
    }


def fio(folder: Path) -> dict[str, float]:
    """Return the rates of reading the same files, outside and inside of the kernel's cache."""
    words = ["fio", "--name=read", "--rw=read", "--bs=1M", "--ioengine=psync", "--readonly", "--thread"]
    words += [f"--directory={folder / 'files'}", "--filename_format=$jobnum", f"--numjobs={FILES}"]
    words += [f"--size={FILE_BYTES}", "--group_reporting", "--output-format=json"]
    found = {}
    for kind, kept in (("cold_files", "1"), ("cached_files", "0")):
        shown = ran([*words, f"--invalidate={kept}"], folder)[0]
        found[kind] = float(json.loads(shown[shown.index("{") :])["jobs"][0]["read"]["bw_bytes"])
    return found


def iperf(folder: Path) -> dict[str, float]:
    """Return the bytes per second that one process sends to another on this machine, while that one sends, too."""
    port = "5277"
    with subprocess.Popen(["iperf3", "-s", "-1", "-p", port], stdout=subprocess.DEVNULL) as server:
        time.sleep(1)
        shown = json.loads(ran(["iperf3", "-c", "127.0.0.1", "-p", port, "--bidir", "-t", "5", "-J"], folder)[0])
        server.wait(20)
    return {"unit_network": float(shown["end"]["sum_sent"]["bits_per_second"]) / 8}


# -- the page ------------------------------------------------------------------------------------------------

NO_PEER = ""
CEILINGS = {
    "products": ("matrix products", "GFLOP/s", "hpcc", "StarDGEMM with OpenBLAS, which is in fp64: no ratio"),
    "convolutions": ("convolutions, 3 × 3", "GFLOP/s", NO_PEER, "none: these tools have no convolutions"),
    "memory": ("memory", "GB/s", "hpcc", "StarSTREAM triad"),
    "cold_files": ("files, first time", "GB/s", "fio", "--invalidate=1, 1 MiB blocks"),
    "cached_files": ("files, cached", "GB/s", "fio", "--invalidate=0"),
    "unit_network": ("messages of a rank", "GB/s", "iperf3", "--bidir, sent"),
}


def page(found: dict[str, Any]) -> str:
    machine = found["machine"]
    lines = [
        "# Measuring a machine",
        "",
        f"`bench/measure.py`, {describe_machine(machine)}, torch {found['torch']}. Load average "
        f"{machine['load']:.1f} before, from other work.",
        "",
        "## `python -m <benchmark> measure`, run twice",
        "",
        f"The network at full size in {found['measurements'][0]['runs'][0]['dtype']}, one sample, one process on all "
        "cores. Spread is that of the steps within a run, by the clock; the last columns tell how far the two runs are "
        "apart.",
        "",
        "| benchmark | command | steps | median step | spread | GFLOP/s | meter's CPU time | CPU time of a step "
        "| median |",
        "|---|---|---|---|---|---|---|---|---|",
        *map(_measured, found["measurements"]),
        "",
        "## `python -m common.measure roofline`, beside other tools",
        "",
        f"Ceilings of {found['ceilings']['ours']['units']} ranks with a thread each, in fp32. The all-reduce is of "
        "CosmoFlow's gradients and adds numbers, which iperf3 does not.",
        "",
        "| ceiling | ours | peer | peer's | ratio |",
        "|---|---|---|---|---|",
        *_ceilings(found["ceilings"]),
        "",
        "## How far from float32",
        "",
        "`python -m <benchmark> measure mini precision.dtype=bf16 train.global_batch_size=4 --fidelity` on "
        f"{describe_machine(found['fidelity']['machine'])}: the median over 5 seeds, and the lowest and highest. "
        "Reversed is float32 itself with sums in another order.",
        "",
        "| benchmark | instructions | outputs | reversed | ratio | gradients | reversed | ratio | losses |",
        "|---|---|---|---|---|---|---|---|---|",
        *map(_fidelity, sorted(found["fidelity"]["rows"], key=lambda row: row["benchmark"])),
    ]
    return "\n".join(lines) + "\n"


def _measured(one: dict[str, Any]) -> str:
    runs = one["runs"]

    def both(text: Callable[[dict[str, Any]], str]) -> str:
        return ", ".join(map(text, runs))

    cells = (
        one["benchmark"],
        both(lambda run: f"{run['wall_s']:.0f} s"),
        both(lambda run: f"{run['steps']}"),
        both(lambda run: f"{run['median_step_ms']:,.0f} ms"),
        both(lambda run: f"{run['spread']:.1%}"),
        both(lambda run: f"{run['flop_per_s'] / 1e9:,.0f}"),
        both(lambda run: f"{run['meter_cpu_share']:.3%}"),
        f"{apart(runs, 'cpu_ms_per_step'):.1%}",
        f"{apart(runs, 'median_step_ms'):.1%}",
    )
    return f"| {' | '.join(cells)} |"


def _fidelity(row: dict[str, Any]) -> str:
    def shown(name: str, digits: str) -> str:
        return f"{median(row[name]):{digits}} ({min(row[name]):{digits}} to {max(row[name]):{digits}})"

    cells = [row["benchmark"], row["arithmetic"]]
    for name in ("output_errors", "gradient_errors"):
        ratio = median(row[name]) / median(row[f"fp32_{name}"])
        cells += [shown(name, ".2%"), shown(f"fp32_{name}", ".1e"), f"{ratio:,.0f}"]
    return f"| {' | '.join([*cells, shown('loss_errors', '.2%')])} |"


def _ceilings(found: dict[str, Any]) -> Iterator[str]:
    for key, (name, unit, tool, what) in CEILINGS.items():
        if (ours := found["ours"][key]) is None:  # messages of a single rank
            continue
        shown, ratio = found.get("left_out", {}).get(tool, ""), ""
        if theirs := found["peers"].get(tool, {}).get(key):
            shown, ratio = f"{theirs / 1e9:,.3g} {unit}", "" if key == "products" else f"{ours / theirs:.2f}"
        yield f"| {name} | {ours / 1e9:,.3g} {unit} | {f'{tool} {what}'.strip()} | {shown} | {ratio} |"


def main() -> int:
    """Measure, print the page; exit 1 if a measurement takes too long or finds something else when it is repeated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_keep_option(parser)
    parser.add_argument("--fidelity", action="store_true", help="measure only that, and keep the rest of the record")
    given = parser.parse_args()
    import torch

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.fidelity:
            found = read_record("measure")
        else:
            found = {"machine": about(), "torch": torch.__version__}
            found["measurements"] = [twice(benchmark, folder) for benchmark in BENCHMARKS]
            found["ceilings"] = ceilings(folder, missing())
        found["fidelity"] = fidelity(folder)
    print(page(found))
    if given.keep:
        keep_record("measure", found)
    told = list(faults(found["measurements"]))
    print(*told, sep="\n", end="\n" if told else "", file=sys.stderr)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
