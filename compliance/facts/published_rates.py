"""The fastest training among published results: what plausibility notes compare with.

Written by `python bench/published_rates.py -o compliance/facts/published_rates.py`; do not edit.
"""

from typing import Final, NamedTuple


class PublishedRate(NamedTuple):
    """Of one benchmark: samples per second of the fastest run, and of the fastest run per accelerator.

    result, result_per_accelerator: whose runs these are.
    """

    total: float
    per_accelerator: float
    result: str
    result_per_accelerator: str


PUBLISHED: Final[dict[str, PublishedRate]] = {
    "cosmoflow": PublishedRate(
        56930.0,
        124.3,
        "v2.0/NVIDIA/dgxa100_n64_pytorch/strong/cosmoflow",
        "v2.0/NVIDIA/dgxa100_n512_pytorch/weak/cosmoflow",
    ),
    "deepcam": PublishedRate(
        34070.0,
        37.54,
        "v2.0/NVIDIA/dgxa100_n256_pytorch/strong/deepcam",
        "v2.0/NVIDIA/dgxa100_n512_pytorch/weak/deepcam",
    ),
    "oc20": PublishedRate(
        52080.0,
        101.7,
        "v2.0/NVIDIA/dgxa100_n64_pytorch/strong/oc20",
        "v2.0/NVIDIA/dgxa100_n64_pytorch/strong/oc20",
    ),
    "openfold": PublishedRate(
        11.51,
        0.1671,
        "v3.0/TACC/lonestar6-pytorch/strong/openfold",
        "v3.0/Clemson/18xR750-2xA100-PCIe-80GB/strong/openfold",
    ),
}
