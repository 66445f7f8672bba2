"""Readers of CosmoFlow's records, ours and those of others, for `bench/data.py`, each run by the Python that has it.

    PYTHON bench/data_readers.py READER {gzip,raw} FOLDER THREADS PASSES

Prints as JSON the CPU seconds (user + system) and seconds for PASSES × the records of the folder, in batches of four
with int16 voxels in memory, after a first pass that is not measured but gives a checksum of what was read.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

BATCH = 4
SIDE = 128
Reader = Callable[[list[str], bool, int], Iterator[Any]]
"""Files, whether they are gzipped, threads -> batches of arrays, or single ones."""


def ours(files: list[str], gzipped: bool, threads: int, verify_crc: bool = False) -> Iterator[Any]:
    import numpy as np
    import torch

    from common.data.prefetch import read_batches
    from cosmoflow.data.dataset import DataConfig, Dataset

    folder = Path(files[0]).parent
    dataset = Dataset(folder, DataConfig(folder, workers=threads, verify_crc=verify_crc))
    numbers = dict(dataset.files())
    order = np.array([numbers[f"{folder.name}/{Path(file).name}"] for file in files])
    steps = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    for batch in read_batches(dataset, steps, torch.device("cpu")):
        yield batch.x.numpy()


def ours_verified(files: list[str], gzipped: bool, threads: int) -> Iterator[Any]:
    return ours(files, gzipped, threads, verify_crc=True)


def tfrecord(files: list[str], gzipped: bool, threads: int) -> Iterator[Any]:
    """Read by the package of this name on PyPI, which has no threads."""
    import numpy as np
    from tfrecord.reader import tfrecord_loader

    description = {"x": "byte", "y": "float"}
    for file in files:
        for sample in tfrecord_loader(file, None, description, compression_type="gzip" if gzipped else None):
            yield np.frombuffer(sample["x"], np.int16).reshape(SIDE, SIDE, SIDE, 4)


def dali(files: list[str], gzipped: bool, threads: int) -> Iterator[Any]:
    """NVIDIA DALI on a CPU; it has no reader for gzipped records."""
    import tempfile

    from nvidia.dali import fn, types
    from nvidia.dali import tfrecord as features
    from nvidia.dali.pipeline import Pipeline

    with tempfile.NamedTemporaryFile("w", suffix=".idx") as index:
        index.write(f"0 {os.path.getsize(files[0])}\n")
        index.flush()
        pipeline = Pipeline(batch_size=BATCH, num_threads=threads, device_id=None, prefetch_queue_depth=2)
        with pipeline:
            read = fn.readers.tfrecord(
                path=files,
                index_path=[index.name] * len(files),
                features={
                    "x": features.FixedLenFeature((), features.string, ""),
                    "y": features.FixedLenFeature([4], features.float32, 0.0),
                },
            )
            voxels = fn.reinterpret(read["x"], dtype=types.INT16, shape=(SIDE, SIDE, SIDE, 4))
            pipeline.set_outputs(voxels, read["y"])
        pipeline.build()
        for _ in range(len(files) // BATCH):
            yield pipeline.run()[0].as_array()


def tf_data(files: list[str], gzipped: bool, threads: int) -> Iterator[Any]:
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    features = {"x": tf.io.FixedLenFeature([], tf.string), "y": tf.io.FixedLenFeature([4], tf.float32)}

    def parse(record: Any) -> Any:
        sample = tf.io.parse_single_example(record, features)
        return tf.reshape(tf.io.decode_raw(sample["x"], tf.int16), (SIDE, SIDE, SIDE, 4)), sample["y"]

    records = tf.data.TFRecordDataset(files, "GZIP" if gzipped else "", num_parallel_reads=threads)
    for voxels, _ in records.map(parse, num_parallel_calls=threads).batch(BATCH).prefetch(2):
        yield voxels


READERS: dict[str, tuple[Reader, str]] = {
    "ours": (ours, "isal"),
    "ours_verified": (ours_verified, "crc32c"),
    "tfrecord": (tfrecord, "tfrecord"),
    "dali": (dali, "nvidia.dali"),
    "tf_data": (tf_data, "tensorflow"),
}
"""With each reader the module whose version is worth knowing."""


def main() -> None:
    name, kind, folder, threads, passes = sys.argv[1:]
    files = sorted(str(path) for path in Path(folder).iterdir())
    (read, module), gzipped = READERS[name], kind == "gzip"
    import numpy as np  # each Python has its own

    checksum = sum(int(np.asarray(array).sum(dtype=np.int64)) for array in read(files, gzipped, int(threads)))
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in read(files * int(passes), gzipped, int(threads)):
        pass
    result = {
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.perf_counter() - wall,
        "records": len(files) * int(passes),
        "checksum": checksum,
        "module": module,
        "version": getattr(importlib.import_module(module), "__version__", None) or metadata.version(module),
    }
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
