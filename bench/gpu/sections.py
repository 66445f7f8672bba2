"""The sections of the three runs: what each measures, its seconds, what is expected, and what is decided by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Section:
    """A part of a run, in a process of its own.

    place: module and function in this package. seconds: expected; limit_s: when it is killed. data: the mini problems
    whose data it reads, which are generated from the start of the run on.
    """

    name: str
    place: str
    seconds: int
    limit_s: int
    expected: str
    decision: str
    data: tuple[str, ...] = ()


NAMES: Final = ("cosmoflow", "deepcam", "oc20")
SECTIONS: Final = (
    Section(
        "ceilings",
        "ceilings:measure",
        20,
        45,
        "copy 4.3 TB/s, bf16 product 790 TFLOP/s, narrow product 250–400, 27648 × 728 × 728 600, pinned copy 50 GB/s, "
        "launch 4–6 µs, graph node 1.5 µs",
        "replaces the ceilings assumed in the floors",
    ),
    Section(
        "right",
        "right:networks",
        50,
        90,
        "fp32 < 1e-5 in outputs, bf16 < 3e-2; kernels as torch",
        "what is wrong is repaired before it is timed",
    ),
    Section(
        "cosmoflow-layers",
        "layers:cosmoflow",
        80,
        110,
        "convolutions 2–3 at 50–65 % of the product's rate, convolution 1 under 20 %; torch's pooling backward takes "
        "3–6 times as long as the kernel",
        "convolution 1 over 60 µs per sample forward, or 80 µs for its weight gradient → fused first block; block 2 "
        "under 55 % → its convolution and pooling in one kernel",
    ),
    Section(
        "cosmoflow-steps",
        "steps:cosmoflow",
        50,
        80,
        "at batch 16: 450–750 samples/s, with the pooling kernel 950–1,200",
        "gain of the pooling kernel under 25 % → look at the profile first",
    ),
    Section(
        "deepcam-layers",
        "layers:deepcam",
        40,
        70,
        "depthwise backward has the worst ratio to its floor; batch normalisation with ReLU half of the bytes",
        "depthwise over 25 % of the time → its kernels first; dilated over twice its floor → split by phase",
    ),
    Section(
        "deepcam-steps",
        "steps:deepcam",
        70,
        110,
        "at batch 8: 70–90 samples/s",
        "what the profile names first",
    ),
    Section(
        "oc20-steps",
        "steps:oc20",
        70,
        100,
        "150, 550, 650, 700 frames/s at batches of 4, 16, 32, 64; kernels −15 %",
        "triplet sums under 10 % of the step → pointwise kernels first",
    ),
    Section(
        "mini",
        "trainer:mini",
        60,
        110,
        "all three reach their targets",
        "else a defect of the precision: stop, and bisect fp32, tf32, bf16",
        NAMES,
    ),
    Section(
        "mini-again",
        "trainer:mini_again",
        60,
        110,
        "all three reach their targets with everything on; two equal runs give the same bits",
        "other bits: which kernel adds in any order",
        NAMES,
    ),
    Section(
        "feed",
        "feed:readers",
        30,
        60,
        "4, 8, 14 threads: 525, 1,000, 1,600 raw records/s; joining 800–1,500 frames/s",
        "joining under 1,500 frames/s → graphs are built on the device",
    ),
    Section(
        "cosmoflow-variants",
        "steps:cosmoflow_variants",
        120,
        160,
        "block 1 fused: forward 36 µs, weight gradient 60 µs per sample; steps 1,300–1,600 samples/s at batch 16, "
        "800–1,000 at batch 1 with graphs",
        "gain of the fused block under 10 % → drop it",
    ),
    Section(
        "deepcam-variants",
        "steps:deepcam_variants",
        190,
        240,
        "compiled 105–120 samples/s at batch 8; graphs decisive at batch 1",
        "compiled under 110 → kernels of the separable unit",
    ),
    Section(
        "oc20-variants",
        "steps:oc20_variants",
        130,
        170,
        "900–1,150 frames/s at batch 32, over 600 at batch 4; forces within 1 % of float64",
        "gain of the pointwise kernels as counted (0.35 ms per frame) → fuse them with the products",
    ),
    Section(
        "optimizers",
        "optimizers:measure",
        30,
        60,
        "LAMB on flat memory 0.5 ms, with torch 0.74 ms and 600 launches",
        "flat becomes the default if it is right and faster",
    ),
    Section(
        "one-rank",
        "ranks:one",
        30,
        60,
        "NCCL with one rank, its all-reduce in a graph, shared batch normalisation: no error, no wait",
        "no capture with NCCL → forward and backward recorded, the rest launched",
        ("cosmoflow",),
    ),
    Section(
        "product",
        "trainer:product",
        140,
        190,
        "with files: at least 95 % of the rate of steps alone, 30 s each",
        "waiting over 3 % → more threads, then samples in device memory",
    ),
    Section(
        "evaluation",
        "trainer:evaluation",
        70,
        110,
        "CosmoFlow over 5,000 samples/s, DeepCAM 300, OC20 3,000",
        "the batch of evaluations",
    ),
    Section(
        "sweeps",
        "steps:sweeps",
        110,
        150,
        "OC20 over 1,400 frames/s, DeepCAM over 140",
        "the defaults",
    ),
    Section(
        "counters",
        "counters:measure",
        80,
        120,
        "four kernels at 75 % of the copy rate or more",
        "the next list of work",
    ),
)
RUNS: Final = {
    1: (
        *("ceilings", "right", "cosmoflow-steps", "oc20-steps", "deepcam-steps"),
        *("cosmoflow-layers", "deepcam-layers", "feed", "mini"),
    ),
    2: ("ceilings", "oc20-variants", "cosmoflow-variants", "optimizers", "one-rank", "deepcam-variants"),
    3: ("ceilings", "product", "evaluation", "counters", "sweeps", "mini-again"),
}
"""The sections of each run in order: what matters most comes early, what needs the mini problems' data late."""
BUDGET_S: Final = 560
"""Seconds of a run; a machine is lent for ten minutes at a time."""


def of_run(number: int) -> list[Section]:
    """Return the sections of a run, in order."""
    by_name = {section.name: section for section in SECTIONS}
    return [by_name[name] for name in RUNS[number]]
