"""Measure how well emulated accelerators are fed with CosmoFlow's samples.

    python bench/feed.py
    python bench/feed.py --keep     also keeps the record

An emulated accelerator sleeps as long as one would compute, by default as MLPerf Storage v2.0 says of an H100: 3.5 ms
for a sample. Its utilisation is the time of computing by all time, without the first step of an epoch. CPU seconds are
user + system time of all threads. Files are read from the page cache (warm), or after they were removed from there
(cold); what storage really gave is counted. Measurements take turns, and the median counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from feed_reader import Plan
from machine import about, cores, cores_of, describe_machine
from records import add_keep_option, keep_record

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from common.command import positive  # noqa: E402  (from this tree)
from cosmoflow.data import tfrecord  # noqa: E402  (from this tree)
from cosmoflow.simulation import ORIGINAL, Box, draw_labels, simulate  # noqa: E402

READER = Path(__file__).with_name("feed_reader.py")
UNIVERSES = 4
"""Universes that are generated; files are copies of them."""
SIDE = 128
STEP_S = 0.0035
GOAL = 0.7
"""Of the utilisation, in MLPerf Storage v2.0."""
THREADS = 4
"""Threads that read for each accelerator."""
BUSY = 0.85
"""The part of the machine's cores below which a row that needs more than all of them did not get them."""
COLD_SHARE = 0.9
"""The least share from storage for which files are called cold."""
KINDS = {
    "gzip": "gzip",
    "raw": "not compressed",
}


@dataclass(frozen=True)
class Case:
    """What is measured: a number of accelerators that read a kind of file."""

    kind: str
    cold: bool
    accelerators: int

    @property
    def name(self) -> str:
        return f"{self.kind} {'cold' if self.cold else 'warm'} {self.accelerators}"


# -- files ---------------------------------------------------------------------------------------------------


def write_universe(number: int, folder: Path, files: int) -> None:
    """Write each kind of file of a universe, as often as its share of the files."""
    rng = np.random.default_rng([20_190_521, number])
    y = draw_labels(rng, 1)[0]
    x = simulate(y, ORIGINAL, Box(grid=SIDE, particles=SIDE, length_mpc_h=None), rng)
    for kind in KINDS:
        first = folder / kind / "train" / f"univ_{number:03d}.tfrecord"
        tfrecord.write_sample(first, x, y, compress=kind == "gzip", level=6)  # as the published files
        for copy in range(number + UNIVERSES, files, UNIVERSES):
            shutil.copy(first, first.with_name(f"univ_{copy:03d}.tfrecord"))


def write_files(folder: Path, files: int) -> None:
    for kind in KINDS:
        (folder / kind / "train").mkdir(parents=True)
    print(f"generating {UNIVERSES} universes, {files} files of each kind", file=sys.stderr)
    with ProcessPoolExecutor() as pool:
        list(pool.map(write_universe, range(UNIVERSES), [folder] * UNIVERSES, [files] * UNIVERSES))


def sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in (folder / "train").iterdir()]


# -- running -------------------------------------------------------------------------------------------------


class Bench:
    """The folder with the files."""

    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self.folder, self.given = folder, given
        write_files(folder, given.files)

    def plan(self, case: Case) -> Plan:
        given, folder = self.given, str(self.folder / case.kind)
        epochs = given.cold_epochs if case.cold else given.epochs
        plan = Plan(folder, given.files, case.cold, given.step_ms / 1e3, given.threads, epochs)
        return replace(plan, ranks=case.accelerators)

    def start(self, plan: Plan) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        # -P: bench/ has a cosmoflow.py too, and must not come before the package of this name.
        command = [sys.executable, "-P", str(READER), json.dumps(asdict(plan))]
        with self.errors(plan.rank).open("w") as errors:
            pipe = subprocess.PIPE
            return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=environment)

    def errors(self, rank: int) -> Path:
        return self.folder / f"errors_{rank}"

    def reports(self, processes: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
        """Let the processes, one for each rank, begin together; return what each one printed last."""
        for process in processes:
            while (line := process.stdout.readline()) not in ("ready\n", ""):
                pass
            if not line:
                process.wait()  # it has ended, or failed
        for process in processes:
            if process.returncode is None:
                process.stdin.write("\n")
                process.stdin.flush()
        texts = [process.communicate()[0] for process in processes]
        for rank, process in enumerate(processes):
            if process.returncode:
                sys.exit(f"rank {rank} failed:\n{self.errors(rank).read_text()[-2000:]}")
        return [json.loads(text.splitlines()[-1]) for text in texts if text]

    def measured(self, case: Case) -> dict[str, Any]:
        """Return what all accelerators of a case used together."""
        plan = self.plan(case)
        found = self.reports([self.start(replace(plan, rank=rank)) for rank in range(plan.ranks)])
        summed = {key: sum(one[key] for one in found) for key in ("cpu_s", "samples", "read_bytes", "stored_bytes")}
        expected = mean(sizes(self.folder / case.kind)) * summed["samples"]
        if summed["read_bytes"] < 0.98 * expected:
            sys.exit(f"{case.name}: {summed['read_bytes']:.0f} bytes were read; expected {expected:.0f}")
        wall_s = max(one["wall_s"] for one in found)
        result = {
            "utilisation": mean(value for one in found for value in one["utilisation"]),
            "samples_per_s": summed["samples"] / wall_s,
            "bytes_per_s": expected / wall_s,
            "cpu_s_per_sample": summed["cpu_s"] / summed["samples"],
            "cores_used": summed["cpu_s"] / wall_s,
            "cores_per_accelerator": summed["cpu_s"] / summed["samples"] / plan.step_s,
            "from_storage": min(1.0, summed["stored_bytes"] / summed["read_bytes"]),
        }
        print(
            f"{case.name:14} {result['cpu_s_per_sample'] * 1e3:7.2f} ms CPU {result['samples_per_s']:6.0f} samples/s "
            f"AU {result['utilisation']:.0%} from storage {result['from_storage']:.0%}",
            file=sys.stderr,
        )
        return result


def measure_all(bench: Bench, accelerators: list[int], runs: int) -> list[dict[str, Any]]:
    """Return for each case its medians, and the CPU time and utilisation of each run."""
    cases = [Case(kind, cold, count) for count in accelerators for kind in KINDS for cold in (False, True)]
    found: dict[Case, list[dict[str, Any]]] = {case: [] for case in cases}
    for _ in range(runs):
        for case, results in found.items():
            results.append(bench.measured(case))
    return [
        asdict(case)
        | {key: median(one[key] for one in results) for key in results[0]}
        | {f"{key}_of_runs": [one[key] for one in results] for key in ("cpu_s_per_sample", "utilisation")}
        for case, results in found.items()
    ]


# -- the page ------------------------------------------------------------------------------------------------


def disturbed(row: dict[str, Any], cores: int) -> bool:
    """Tell whether too few cores were free: a row misses the goal and needs more than there are, but used fewer."""
    needed = row["cores_per_accelerator"] * row["accelerators"]
    return row["utilisation"] < GOAL and needed > cores and row["cores_used"] < BUSY * cores


def cells(row: dict[str, Any], all_cores: int) -> str:
    least, most = (bound(row["cpu_s_per_sample_of_runs"]) * 1e3 for bound in (min, max))
    lowest, highest = (bound(row["utilisation_of_runs"]) * 100 for bound in (min, max))
    used, storage = f"{row['cores_used']:.1f}", f"{row['from_storage']:.0%}"
    if disturbed(row, all_cores):
        used = f"**{used}: disturbed**"
    if row["cold"] and row["from_storage"] < COLD_SHARE:
        storage = f"**{storage}: not cold**"
    size = row["bytes_per_s"] / row["samples_per_s"] / 1e6
    files = f"{'cold' if row['cold'] else 'warm'}, {KINDS[row['kind']]}: {size:.1f} MB"
    return (
        f"| {files} | {row['accelerators']} | {row['utilisation']:.0%} "
        f"({lowest:.0f}–{highest:.0f}) | {row['samples_per_s']:.0f} | {row['bytes_per_s'] / 1e6:.0f} | "
        f"{row['cpu_s_per_sample'] * 1e3:.1f} ({least:.1f}–{most:.1f}) ms | {used} | "
        f"{row['cores_per_accelerator']:.1f} | {storage} |"
    )


def lines(result: dict[str, Any]) -> Iterator[str]:
    rows, step_ms, all_cores = result["rows"], result["step_ms"], cores_of(result)
    yield "# Feeding accelerators"
    yield ""
    yield (f"`bench/feed.py`, {describe_machine(result)}. Load average {result['load']:.1f} before, from other work.")
    yield ""
    yield (
        f"An emulated accelerator sleeps {step_ms:g} ms for each sample, by default as an H100 of MLPerf Storage v2.0 "
        f"(CosmoFlow: {1 / STEP_S:.0f} samples/s, 808 MB/s, utilisation at least {GOAL:.0%}). Each has a process with "
        f"{result['threads']} threads that read samples of 128³ × 4 voxels. AU: utilisation, the time of computing by "
        "all time, without the first step of an epoch. Cores used: CPU seconds per second. Cores needed, per "
        "accelerator: CPU seconds per sample times the samples per second of one that never waits. Medians of runs "
        "that take turns; of AU and CPU time also least to most."
    )
    yield ""
    yield "| files | × | AU | samples/s | MB/s | CPU per sample | cores used | cores needed | from storage |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    yield from (cells(one, all_cores) for one in rows)
    yield ""
    yield (
        "×: accelerators at once, of which this machine's cores feed few. Disturbed: AU is below the goal and the row "
        f"needs more cores than there are, but it had less than {BUSY:.0%} of them; other work took the rest, or when "
        "cold, storage was slower. Such a row says little of AU and samples/s. Cold: the system was asked to forget "
        "the files before each epoch. From storage: the part of what was read that came from there (`read_bytes` by "
        "`rchar` of /proc/self/io); what lies below may have a cache of its own."
    )


def page(result: dict[str, Any]) -> str:
    """Return the Markdown page."""
    return "\n".join(lines(result)) + "\n"


def main() -> int:
    """Measure, and print the page; return the exit status."""
    given = _arguments()
    facts = about()
    with tempfile.TemporaryDirectory(prefix="bench-feed-", dir=given.scratch) as name:
        rows = measure_all(Bench(Path(name), given), given.accelerators, given.runs)
    for row in rows:
        if disturbed(row, cores_of(facts)):
            name = Case(row["kind"], row["cold"], row["accelerators"]).name
            used = f"{row['cores_used']:.1f} of {cores_of(facts)} cores"
            print(f"{name}: disturbed: AU {row['utilisation']:.0%}, but it had only {used}", file=sys.stderr)
    result = {**facts, "step_ms": given.step_ms, "threads": given.threads, "files": given.files, "rows": rows}
    print(page(result))
    if given.keep:
        keep_record("feed", result)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", metavar="FOLDER", help="a folder on the storage to measure (default: /tmp)")
    parser.add_argument("--step-ms", type=float, default=STEP_S * 1e3, help="of an emulated accelerator (default: 3.5)")
    parser.add_argument("--threads", type=positive, default=THREADS, help=f"that read (default: {THREADS})")
    counts = sorted({1, cores()})
    parser.add_argument("--accelerators", type=positive, nargs="+", default=counts, help=f"at once (default: {counts})")
    parser.add_argument("--files", type=positive, default=48, help="of each kind (48)")
    parser.add_argument("--epochs", type=positive, default=3, help="in each process, warm (default: 3)")
    parser.add_argument("--cold-epochs", type=positive, default=2, help="in each process, cold (default: 2)")
    parser.add_argument("--runs", type=positive, default=3, help="processes of each case (default: 3)")
    add_keep_option(parser)
    given = parser.parse_args()
    if given.files < 2 * max(given.accelerators):
        parser.error(f"--files {given.files}: expected at least 2 for each of {max(given.accelerators)} accelerators")
    return given


if __name__ == "__main__":
    sys.exit(main())
