"""Measure CosmoFlow on several ranks for each sample against one process: CPU time, memory, halos, and the results.

    python bench/spatial.py                                 shows it; about 10 minutes on two cores, and 8 GB
    python bench/spatial.py --keep                          also keeps the record
    python bench/spatial.py --epoch data/cosmoflow-mini     also trains the mini problem's first epoch, 50 minutes

One process on one thread is what all is compared with: no other public code shares samples of CosmoFlow. Ranks have a
thread each, and more of them than there are cores take turns, so that CPU seconds count and not the clock: user +
system of a rank, in a step of one sample, medians of steps. Samples are drawn, not read.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any, Final

from machine import about, describe_machine
from records import add_keep_option, keep_record, read_record

from common.measure.devices import read_ceilings
from submission.results.cost_model import CostModel, read_workloads

ROOT: Final = Path(__file__).resolve().parents[1]
SIDE: Final = 128
STRONG: Final = ((1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (4, 2))
WEAK: Final = ((1, 32), (2, 64), (4, 128))
"""Ranks, and voxels along D: 32 for each."""
LARGE: Final = 256
PROJECTED: Final = ("H100", "A64FX")
BATCH: Final = 512
EPOCHS: Final = (
    ("fp64", 1, "1", 1, 3),
    ("fp64", 2, "2", 1, 0),
    ("fp64", 4, "[2,2]", 1, 0),
    ("fp32", 1, "1", 1, 24),
    ("fp32", 1, "1", 2, 0),
    ("fp32", 2, "1", 1, 0),
    ("fp32", 2, "2", 1, 24),
    ("fp32", 4, "4", 1, 0),
    ("fp32", 4, "[2,2]", 1, 0),
)
"""Format, ranks, how they share samples, threads of each, and how often the initial weights are nudged, too."""
LIMIT_S: Final = 1800


def ran(script: str, ranks: int, *words: str, threads: int = 1) -> Any:
    """Run a worker on some ranks; return what it prints last."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    variables = {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, str(ROOT / "bench" / script), *words],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{script} {' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def steps(extents: tuple[int, int], sides: tuple[int, int, int], dtype: str, count: int = 5) -> dict[str, Any]:
    """Return what steps on a sample take."""
    print(f"{extents[0]} × {extents[1]} ranks, {'×'.join(map(str, sides))}, {dtype}", file=sys.stderr)
    ranks = extents[0] * extents[1]
    rows = ran("spatial_worker.py", ranks, json.dumps(extents), json.dumps(sides), dtype, str(count))
    return {
        "extents": extents,
        "ranks": ranks,
        "sides": sides,
        "dtype": dtype,
        "cpu_s": [row["cpu_s"] for row in rows],
        "saved_bytes": max(row["saved_bytes"] for row in rows),
        "resident_bytes": max(row["peak_bytes"] - row["idle_bytes"] for row in rows),
        "sent_bytes": max((row["sent_bytes"] for row in rows), key=lambda sent: sum(sent.values())),
    }


def projections() -> list[dict[str, Any]]:
    """Return the least time of a step by the cost model, of a batch on more and more units."""
    model = CostModel(read_workloads(), read_ceilings())
    found = []
    for name in PROJECTED:
        for sharing in (1, 2, 4, 8):
            one = model.cost_step("cosmoflow", name, BATCH * sharing, BATCH, sharing)
            found.append({"ceilings": name, "sharing": sharing, "step_s": one.step, "binds": one.binds})
    return found


def epochs(folder: str) -> list[dict[str, Any]]:
    """Return loss and quality of the mini problem's first epoch, in each of the ways."""
    found = []
    for dtype, ranks, spatial, threads, nudges in EPOCHS:
        for seed in range(nudges + 1):
            one = {"dtype": dtype, "ranks": ranks, "spatial": spatial, "threads": threads, "nudge": seed}
            print(f"first epoch: {one}", file=sys.stderr)
            found.append(one | ran("spatial_epoch.py", ranks, spatial, dtype, folder, str(seed), threads=threads))
    return found


# -- the page ------------------------------------------------------------------------------------------------


def page(found: dict[str, Any]) -> str:
    """Return the Markdown page."""
    machine = found["machine"]
    lines = [
        "# CosmoFlow on several ranks for each sample",
        "",
        f"`bench/spatial.py`, {describe_machine(machine)}, torch {found['torch']}. Load average {machine['load']:.1f} "
        "before, from other work. The peer is one process on one thread, in the same format: no other public code "
        "shares samples of CosmoFlow. Ranks have a thread each; there are more of them than cores, so that CPU "
        "seconds (user + system) count, not the clock. A step is forward, backward and SGD on one sample in memory. "
        "[The guide](../../guide/spatial.md) says how it works. On GPUs nothing of this has been run.",
        "",
        f"## Strong scaling: one sample of {SIDE}³",
        "",
        "The slowest rank decides how long a step takes, and the sum what sharing costs. The projection is the cost "
        f"model's (`submission/results/cost_model`), for a batch of {BATCH} on {BATCH} units times the ranks of a "
        "sample: the least time by the ceilings, in which all overlaps. Where the network binds, that is the sum of "
        "the gradients, which sharing does not shorten in the model.",
        "",
        "| ranks, D × H | format | CPU s, slowest rank | speed-up | CPU of all ranks, times one process "
        f"| projected speed-up, {_binding(found['projected'])} | activations of a rank, times its share |",
        "|---|---|---:|---:|---:|---:|---:|",
        *_strong(found),
        "",
        f"A rank sends at most {max_sent(found, 'forward') / 1e6:.1f} MB of halos forward and "
        f"{max_sent(found, 'backward') / 1e6:.1f} MB backward in a step: to each neighbour one plane of the input "
        "before a convolution, and of the gradient of its output. The reader brings the first block's. Where blocks "
        f"are too small to be divided, it sends its part to each of the others, {max_sent(found, 'gather') / 1e3:.0f} "
        "kB at most.",
        "",
        "## Weak scaling: 32 planes of 128² for each rank",
        "",
        "In fp32, one process computes so few planes by torch's slow algorithm for small inputs, which blocks avoid "
        "(`common/spatial/halo.py`).",
        "",
        "| ranks | sample | format | CPU s, slowest rank | times one rank | mean of the ranks, times one rank |",
        "|---:|---|---|---:|---:|---:|",
        *_weak(found["weak"]),
        "",
        f"## Memory: a sample of {LARGE}³",
        "",
        "Peak resident memory of the rank that has most, less that of an idle one, which has imported and connected.",
        "",
        "| ranks | format | GB | of one process |",
        "|---:|---|---:|---:|",
        *(
            f"| {row['ranks']} | {row['dtype']} | {row['resident_bytes'] / 1e9:.2f} "
            f"| {row['resident_bytes'] / found['large'][0]['resident_bytes']:.2f} |"
            for row in found["large"]
        ),
    ]
    if "epoch" in found:
        lines += ["", *_epochs(found["epoch"], found["epoch_date"])]
    return "\n".join(lines) + "\n"


def max_sent(found: dict[str, Any], kind: str) -> int:
    """Return the most bytes that a rank sends in a step, of all divisions. kind: forward, backward or gather."""
    return max(
        sum(count for name, count in row["sent_bytes"].items() if kind in name.split()) for row in found["strong"]
    )


def _binding(projected: list[dict[str, Any]]) -> str:
    """Return the names of the ceilings, with what binds the step of the most ranks."""
    binds = {row["ceilings"]: row["binds"] for row in projected}
    return ", ".join(f"{name} ({what})" for name, what in binds.items())


def _strong(found: dict[str, Any]) -> list[str]:
    projected = {(row["ceilings"], row["sharing"]): row["step_s"] for row in found["projected"]}
    rows = []
    for row in found["strong"]:
        alone = next(one for one in found["strong"] if one["ranks"] == 1 and one["dtype"] == row["dtype"])
        (one,), slowest, total = alone["cpu_s"], max(row["cpu_s"]), sum(row["cpu_s"])
        expected = ", ".join(f"{projected[name, 1] / projected[name, row['ranks']]:.1f}" for name in PROJECTED)
        activations = row["saved_bytes"] * row["ranks"] / alone["saved_bytes"]
        rows.append(
            f"| {row['extents'][0]} × {row['extents'][1]} | {row['dtype']} | {slowest:.2f} | {one / slowest:.1f} "
            f"| {total / one:.2f} | {expected} | {activations:.2f} |"
        )
    return rows


def _weak(found: list[dict[str, Any]]) -> list[str]:
    rows = []
    for row in found:
        (one,) = next(other["cpu_s"] for other in found if other["ranks"] == 1 and other["dtype"] == row["dtype"])
        slowest, total = max(row["cpu_s"]), sum(row["cpu_s"])
        rows.append(
            f"| {row['ranks']} | {' × '.join(map(str, row['sides']))} | {row['dtype']} | {slowest:.2f} "
            f"| {slowest / one:.2f} | {total / one / row['ranks']:.2f} |"
        )
    return rows


def _epochs(found: list[dict[str, Any]], date: str) -> list[str]:
    rows: list[str] = []
    ways: dict[str, list[tuple[float, float]]] = {}
    for row in found:
        way = f"| {row['dtype']} | {row['ranks']} | {row['spatial']} "
        if row["nudge"]:
            ways.setdefault(way, []).append((row["loss"], row["quality"]))
            continue
        one = next(other for other in found if other["dtype"] == row["dtype"])
        apart = (abs(row[key] - one[key]) / one[key] for key in ("loss", "quality"))
        rows.append(
            f"{way}| {row['threads']} | {row['loss']:.6f} | {row['quality']:.6f} "
            f"| {' | '.join(f'{value:.0e}' for value in apart)} |"
        )
    nudged = []
    for way, pairs in ways.items():
        spans = (f"{min(one):.3f}, {median(one):.3f}, {max(one):.3f}" for one in zip(*pairs, strict=True))
        nudged.append(f"{way}| {len(pairs)} | {' | '.join(spans)} |")
    return [
        "## The first epoch of the mini problem",
        "",
        f"Trained on {date}. Loss of the epoch and quality after it, 128 steps of Muon, apart from one process on one "
        "thread. In double precision, ranks that share samples train as one process does. In single precision no two "
        "orders of summation do, with or without sharing: of a million pools in a step, the greatest voxels of some "
        "tie but for rounding, and pass their gradient to another one.",
        "",
        "| format | ranks | dist.spatial | threads | loss | quality | loss apart | quality apart |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        "How far rounding alone takes an epoch: the same, on one thread, with each initial weight moved by a unit in "
        "its last place of fp32, up or down, as drawn from a seed. Of these, least, median and greatest:",
        "",
        "| format | ranks | dist.spatial | seeds | loss | quality |",
        "|---|---|---|---|---|---|",
        *nudged,
    ]


def main() -> int:
    """Measure, print the page; exit 1 if a rank needs more memory than it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_keep_option(parser)
    parser.add_argument("--epoch", metavar="DATA", help="the mini problem's data, to train its first epoch; else kept")
    given = parser.parse_args()
    import torch

    found: dict[str, Any] = {"machine": about(), "torch": torch.__version__}
    formats = ("bf16", "fp32")
    found["strong"] = [steps(extents, (SIDE, SIDE, SIDE), dtype) for dtype in formats for extents in STRONG]
    found["weak"] = [steps((ranks, 1), (depth, SIDE, SIDE), dtype) for dtype in formats for ranks, depth in WEAK]
    found["large"] = [steps(extents, (LARGE, LARGE, LARGE), "bf16", 3) for extents in ((1, 1), (4, 1))]
    found["projected"] = projections()
    if given.epoch:
        found["epoch"], found["epoch_date"] = epochs(str(Path(given.epoch).resolve())), found["machine"]["date"]
    elif given.keep:
        kept = read_record("spatial")
        found |= {key: kept[key] for key in ("epoch", "epoch_date") if key in kept}
    print(page(found))
    if given.keep:
        keep_record("spatial", found)
    told = list(faults(found))
    print(*told, sep="\n", end="\n" if told else "", file=sys.stderr)
    return 1 if told else 0


def faults(found: dict[str, Any]) -> list[str]:
    """Return what takes more memory than sharing allows: activations 1.1 of a share, a process 0.3 on four ranks."""
    told = []
    for row in found["strong"]:
        alone = next(one for one in found["strong"] if one["ranks"] == 1 and one["dtype"] == row["dtype"])
        if (share := row["saved_bytes"] * row["ranks"] / alone["saved_bytes"]) > 1.1:
            told.append(f"{row['ranks']} ranks, {row['dtype']}: activations of a rank are {share:.2f} of its share")
    one, four = (row["resident_bytes"] for row in found["large"])
    if four > 0.3 * one:
        told.append(f"a rank of four has {four / one:.2f} of the memory of one process; expected at most 0.3")
    return told


if __name__ == "__main__":
    sys.exit(main())
