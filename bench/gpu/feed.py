"""The rate at which threads read samples and bring them to the device, without training."""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from common.data.prefetch import read_batches
from cosmoflow.data import dataset as cosmoflow_data
from deepcam.data import dataset as deepcam_data
from gpu import inputs
from gpu.cases import Bench
from gpu.networks import NETWORKS
from oc20.data import dataset as oc20_data


def readers(bench: Bench) -> None:
    """Measure how fast each kind of file is read, by several numbers of threads."""
    for network, format in (("cosmoflow", "tfrecord"), ("oc20", "compact"), ("deepcam", "npy")):
        for workers in bench.size((14, 8, 4), (2,)):
            rate(bench, network, format, workers)


def rate(bench: Bench, network: str, format: str, workers: int) -> None:
    """Measure the samples per second that arrive on the device."""
    with bench.case("feed", network=network, format=format, workers=workers) as row:
        batch = bench.size(NETWORKS[network].batch, 2)
        folder = inputs.folder(bench, network)
        with closing(batches(bench, network, folder, batch, format=format, workers=workers)) as source:
            for _ in range(bench.size(8, 1)):  # what was read ahead
                found = next(source)
            bench.clock.finish()
            count, begin = 0, time.perf_counter()
            while time.perf_counter() - begin < bench.size(2.0, 0.05):
                found = next(source)
                count += batch
            bench.clock.finish()
            row["per_s"] = count / (time.perf_counter() - begin)
        row["ms"] = 1e3 * batch / row["per_s"]
        assert found.indices is not None


def batches(bench: Bench, network: str, folder: Path, batch: int, **keys: Any) -> Generator[Any]:
    """Yield batches on the device without end, of a dataset with these keys of its configuration."""
    order = itertools.cycle(range(bench.size(32, 4)))

    def indices() -> Iterator[np.ndarray]:
        while True:
            yield np.array(list(itertools.islice(order, batch)))

    if network == "cosmoflow":
        side = bench.size(inputs.COSMOFLOW_SIDE, inputs.TINY_SIDE)
        config: Any = cosmoflow_data.DataConfig(folder, sample_shape=(side, side, side, 4), **keys)
        return read_batches(cosmoflow_data.Dataset(folder / "train", config), indices(), bench.device)
    if network == "deepcam":
        height, width = bench.size(inputs.DEEPCAM_SIDES, inputs.TINY_SIDES)
        config = deepcam_data.DataConfig(folder, height=height, width=width, **keys)
        return read_batches(deepcam_data.Dataset(folder / "train", config), indices(), bench.device)
    config = oc20_data.DataConfig(folder, **keys)
    return oc20_data.load_batches(oc20_data.Dataset(folder / "train", config), indices(), bench.device)
