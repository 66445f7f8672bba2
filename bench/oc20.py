"""Measure training steps of OC20, ours against the same network written plainly in PyTorch, in the same run.

    python bench/oc20.py                                everything, about ten minutes on two cores
    python bench/oc20.py --quick                        the mini problem's network only, under two minutes
    python bench/oc20.py --full-size                    also 4 and 8 slabs of the published size, up to 10 GB of memory
    python bench/oc20.py --device auto --local-batch 16 an accelerator, against its own ceilings, with the sums over
                                                        triplets made by torch and by Triton
    python bench/oc20.py --keep                         also keeps the record

A step starts from the joined graph of a batch: basis functions, forward, forces as the gradient of the energy, L1 loss
of the forces, backward through both, AdamW. The peer (bench/oc20_plain.py) has a list of all triplets, which is made
before the steps, and computes in the number format it is compared with, bf16 by torch's autocast; it is left out where
it would take more than half of the machine's memory. The frames are generated surfaces, the published ones have as many
atoms. CPU seconds are user + system time of all threads; the figure that counts is that of one thread, for others may
use the machine. Both sides are warm before they are measured, take turns, and the median of the turns counts.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from comparison import ROOT, Comparison, Peer, parser, run, run_module
from table import Page, Results, mark_missed
from workers import Case

SPEEDUP, MEMORY = 3, 1 / 4
"""Our goals, against the peer."""
SLAB = (4, 5, 4)
PEER_BYTES_PER_ATOM = 30e6
"""Of the peer, with the published network and 50 neighbours."""


class TripletPage(Page):
    """A page that also tells how many triplets of atoms are gone through, in how much memory."""

    def table(self, results: Results, machine: dict[str, Any]) -> str:
        """Return the Markdown page."""
        found = [result for name in ("one core", "accelerator") for result in results.get(name, ())]
        return "\n".join([super().table(results, machine), *triplets(found)]) + "\n"


def triplets(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the triplets per second of both sides, and the memory that a step adds to the process."""
    yield "### Triplets and memory"
    yield ""
    yield (
        "Triplets of atoms k → j → i in the samples of a step, per second of CPU time, or of an accelerator's time. "
        "Memory: what steps add to a process that has its libraries and a batch; the goal is at most "
        f"{MEMORY:.0%} of the peer's."
    )
    yield ""
    yield "| network | batch | format | edges, triplets per sample | triplets/s | peer, memory | ours | of peer's |"
    yield "|---|---:|---|---:|---:|---:|---:|---:|"
    for result in found:
        case, ours, peer = result["case"], result["ours"], result.get("peer")
        memory, share = added(ours), ""
        if peer:
            part = memory / added(peer)
            share = mark_missed(f"{part:.0%}", part > MEMORY)
        cells = [
            result["network"],
            f"{case['batch']}",
            case["dtype"],
            f"{ours['edges_per_sample']:,.0f}, {ours['triplets_per_sample']:,.0f}",
            f"{rate_of(case, ours) / 1e6:.2f} M",
            f"{added(peer):.0f} MB" if peer else "",
            f"{memory:.0f} MB",
            share,
        ]
        yield f"| {' | '.join(cells)} |"


def rate_of(case: dict[str, Any], side: dict[str, Any]) -> float:
    """Return the triplets per second."""
    seconds = side["cpu_s" if case["device"] == "cpu" else "wall_s"]
    return float(side["triplets_per_sample"] * case["batch"] / seconds)


def added(side: dict[str, Any]) -> float:
    """Return the megabytes that steps have added to what the process had before, or taken on an accelerator."""
    return float(side.get("device_memory_mb", side["memory_mb"] - side["memory_before_mb"]))


PAGE = TripletPage(
    title="OC20",
    script="bench/oc20.py",
    step="A step is basis functions, forward, forces, L1 loss of the forces, backward through both and AdamW.",
    peer="The peer is the same network written plainly in PyTorch with a list of all triplets, made before: bf16 by "
    "torch's autocast, with the C library's own handling of freed memory. FLOP are those of the matrix products "
    "that ours does; a list of triplets takes a tenth more.",
    least_ratio=SPEEDUP,
    bytes_per_sample=3 * 0.8e9,  # 0.8 GB are kept for the backward passes: written once and read twice
)


@dataclass(frozen=True, kw_only=True)
class Oc20Case(Case):
    """Frames of slabs, by atoms along two sides and in depth, with an adsorbate of one or two atoms.

    model: options of the network, by default the published one.
    """

    slab: tuple[int, int, int] = SLAB
    model: dict[str, Any] = field(default_factory=dict)

    @property
    def network(self) -> str:
        given = dict(self.model)
        kernels = given.pop("kernels", None)
        return f"{math.prod(self.slab)} + 1 or 2 atoms{', mini' if given else ''}{f', {kernels}' if kernels else ''}"


def mini() -> Oc20Case:
    """Return the case of the mini problem, by its configuration."""
    config = yaml.safe_load((ROOT / "oc20" / "mini.yaml").read_text(encoding="utf-8"))
    return Oc20Case(slab=(2, 2, 3), batch=config["train"]["global_batch_size"], model=config["model"])


def plain(case: Any) -> Any:
    """Return the peer's case; None where it would take more than half of the machine's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    fits = case.batch * math.prod(case.slab) * PEER_BYTES_PER_ATOM < memory / 2
    return case if fits else None


def synthesize(folder: Path, case: Any, kind: str) -> None:
    """Generate frames in a folder, enough for four batches."""
    lmdb = folder.with_name("lmdb")
    if kind != "lmdb":
        run_module("oc20.prepare", "convert", lmdb, folder, "--format", kind)
        return
    frames = ["--train", 4 * case.batch, "--validation", 1, "--frames", 1]
    run_module("oc20.synthesize", lmdb, "--slab", *case.slab, *frames, "--workers", case.threads)


def main() -> int:
    """Measure, print the tables; exit 1 if the peer needs less CPU time than ours somewhere."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--full-size", action="store_true", help="also batches of 4 and 8 slabs of the published size"
    )
    arguments.add_argument(
        "--local-batch", type=int, nargs="+", default=[1, 4, 16], metavar="N", help="batches on an accelerator"
    )
    given = arguments.parse_args()
    some = (mini(),) if given.quick else (mini(), Oc20Case())
    comparison = Comparison(
        name="oc20",
        page=PAGE,
        script="oc20_measures.py",
        peer=Peer("oc20_plain.py", case=plain),
        one_core=(*some, Oc20Case(batch=4), Oc20Case(batch=8, alone=True)) if given.full_size else some,
        all_cores=() if given.quick else some,
        reading=some,
        accelerator=tuple(
            Oc20Case(batch=batch, model={"kernels": kernels})
            for batch in given.local_batch
            for kernels in ("torch", "triton")
        ),
        kinds=("lmdb", "compact"),
        synthesize=synthesize,
    )
    return run(comparison, given)


if __name__ == "__main__":
    sys.exit(main())
