"""Measure training steps of DeepCAM, ours against the same network written plainly in PyTorch, in the same run.

    python bench/deepcam.py                                everything, about fifteen minutes on two cores
    python bench/deepcam.py --quick                        the mini problem's network only, under two minutes
    python bench/deepcam.py --full-size                    also a step at the published size, up to 16 GB of memory
    python bench/deepcam.py --device auto --local-batch 8  an accelerator, against its own ceilings
    python bench/deepcam.py --keep                         also keeps the record

A step starts from snapshots in memory as they lie in the files: normalisation, forward, weighted cross-entropy,
backward, AdamW (on an accelerator LAMB, as in the published runs). The peer (bench/deepcam_plain.py), contiguous in
NCHW, computes in the number format it is compared with, bf16 by torch's autocast. CPU seconds are user + system time of
all threads; the main figure is that of one thread, since others may use the machine. Both sides are warm before they
are measured, take turns, and the median of the turns counts. The share of the peak is that of a large matrix product in
the same number format, measured between the turns.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from comparison import ROOT, Comparison, Peer, parser, run, run_module
from table import Page
from workers import Case

PAGE = Page(
    title="DeepCAM",
    script="bench/deepcam.py",
    step="A step is normalisation, forward, weighted cross-entropy, backward and AdamW (on an accelerator LAMB).",
    peer="The peer is the same network written plainly in PyTorch: contiguous in NCHW, bf16 by torch's autocast, "
    "with the C library's own handling of freed memory.",
    bytes_per_sample=3 * 2.1e9,  # 2.1 GB of activations are written once and read twice
)
FULL_HEIGHT = 768


@dataclass(frozen=True, kw_only=True)
class DeepCAMCase(Case):
    """Snapshots of height x width x channels; `model` are the options of the network, by default the published one."""

    height: int = FULL_HEIGHT
    width: int = 1152
    channels: int = 16
    model: dict[str, Any] = field(default_factory=dict)
    optimizer: str = "adamw"

    @property
    def network(self) -> str:
        return f"{self.height} × {self.width}{', mini' if self.model else ''}"


def mini() -> DeepCAMCase:
    """Return the case of the mini problem, by its configuration."""
    config = yaml.safe_load((ROOT / "deepcam" / "mini.yaml").read_text(encoding="utf-8"))
    size = {side: config["data"][side] for side in ("height", "width")}
    return DeepCAMCase(**size, batch=config["train"]["global_batch_size"], model=config["model"])


def synthesize(folder: Path, case: Any, kind: str) -> None:
    """Generate snapshots in a folder: 8 of the published size, or enough for four batches."""
    hdf5 = folder.with_name("hdf5")
    if kind != "hdf5":
        run_module("deepcam.prepare", "convert", hdf5, folder, "--format", kind)
        return
    size = ["--height", case.height, "--width", case.width, "--train", 4 * case.batch, "--validation", 1, "--test", 1]
    preset = ["--preset", "full-size"] if case.height == FULL_HEIGHT else size
    run_module("deepcam.synthesize", hdf5, *preset)


def main() -> int:
    """Measure, print the tables; exit 1 if the peer needs less CPU time than ours somewhere."""
    arguments = parser(__doc__)
    arguments.add_argument("--full-size", action="store_true", help="also a step at the published size")
    arguments.add_argument(
        "--local-batch", type=int, nargs="+", default=[1, 2, 8, 16], metavar="N", help="batches on an accelerator"
    )
    given = arguments.parse_args()
    larger = () if given.quick else (DeepCAMCase(height=192, width=288, batch=2),)
    some = (mini(), *larger)
    comparison = Comparison(
        name="deepcam",
        page=PAGE,
        script="deepcam_measures.py",
        peer=Peer("deepcam_plain.py"),
        one_core=(*some, DeepCAMCase(alone=True)) if given.full_size else some,
        all_cores=() if given.quick else some,
        reading=some,
        accelerator=tuple(DeepCAMCase(batch=batch, optimizer="lamb") for batch in given.local_batch),
        kinds=("hdf5", "npy"),
        synthesize=synthesize,
    )
    return run(comparison, given)


if __name__ == "__main__":
    sys.exit(main())
