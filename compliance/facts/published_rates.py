"""The fastest training among published results: what plausibility notes compare with.

Written by `python bench/published_rates.py -o compliance/facts/published_rates.py`; do not edit.
"""

from typing import Final, NamedTuple


class PublishedRate(NamedTuple):
    """Of one benchmark: samples per second of the fastest run, and of the fastest run per accelerator.

    to_own_records: the highest ratio of a run's rate to the highest throughput that it logs of itself; at least 1.
    result, result_per_accelerator: whose runs these are.
    """

    total: float
    per_accelerator: float
    to_own_records: float
    result: str
    result_per_accelerator: str


PUBLISHED: Final[dict[str, PublishedRate]] = {
    "cosmoflow": PublishedRate(
        56930.0,
        124.3,
        1.0,
        "v2.0/NVIDIA/dgxa100_n64_pytorch/strong/cosmoflow",
        "v2.0/NVIDIA/dgxa100_n512_pytorch/weak/cosmoflow",
    ),
    "deepcam": PublishedRate(
        34070.0,
        37.54,
        1.0,
        "v2.0/NVIDIA/dgxa100_n256_pytorch/strong/deepcam",
        "v2.0/NVIDIA/dgxa100_n512_pytorch/weak/deepcam",
    ),
    "oc20": PublishedRate(
        52080.0,
        101.7,
        13.22,
        "v2.0/NVIDIA/dgxa100_n64_pytorch/strong/oc20",
        "v2.0/NVIDIA/dgxa100_n64_pytorch/strong/oc20",
    ),
    "openfold": PublishedRate(
        11.51,
        0.1671,
        1.0,
        "v3.0/TACC/lonestar6-pytorch/strong/openfold",
        "v3.0/Clemson/18xR750-2xA100-PCIe-80GB/strong/openfold",
    ),
}
