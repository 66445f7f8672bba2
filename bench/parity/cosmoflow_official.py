"""The official side of `bench/parity/cosmoflow.py`, in TensorFlow's own environment.

    PYTHON bench/parity/cosmoflow_official.py CLONE FOLDER

Reads `tasks.json` and files of FOLDER and writes there what the official code makes of them. Replaced: Horovod and
wandb by stand-ins for one process; in float64, and where gradients are compared, the pooling by a maximum over each
cube, since TensorFlow has no pooling in float64 on a CPU, and gives its gradient to each value within an absolute 1e-5
of the greatest. `prepare.py` calls a method that numpy no longer has, under its newer name.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

POOLED = "MaximumOfCubes"


def stand_ins() -> None:
    """Put what Horovod has to offer to one process where the official code imports it."""
    alone = ModuleType("horovod.tensorflow.keras")
    alone.rank, alone.size = lambda: 0, lambda: 1
    alone.allreduce = lambda values, name=None: values
    names = ("horovod", "horovod.tensorflow")
    sys.modules |= {**{name: ModuleType(name) for name in names}, alone.__name__: alone}
    sys.modules["horovod.tensorflow"].keras = alone
    sys.modules["horovod"].tensorflow = sys.modules["horovod.tensorflow"]


class MaximumOfCubes(tf_keras.layers.Layer):
    """Pooling by 2 in all directions."""

    def __init__(self, pool_size: int) -> None:
        super().__init__()

    def call(self, x_BDHWC: Any) -> Any:
        x_BDHWC = tf.maximum(x_BDHWC[:, 0::2], x_BDHWC[:, 1::2])
        x_BDHWC = tf.maximum(x_BDHWC[:, :, 0::2], x_BDHWC[:, :, 1::2])
        return tf.maximum(x_BDHWC[:, :, :, 0::2], x_BDHWC[:, :, :, 1::2])


def network(task: dict[str, Any]) -> Any:
    """Return the official network with weights that Keras draws."""
    from models import cosmoflow

    tf_keras.backend.set_floatx(task["dtype"])
    tf_keras.utils.set_random_seed(task["seed"])
    setattr(cosmoflow.layers, POOLED, MaximumOfCubes)
    side = task["side"]
    return cosmoflow.build_model(
        (side, side, side, 4),
        4,
        kernel_size=task["kernel"],
        l2=task["l2"],
        dropout=0.0,
        pooling_type="MaxPool3D" if task["pooling"] == "official" else POOLED,
    )


def trained(task: dict[str, Any], folder: Path) -> dict[str, np.ndarray]:
    """Return weights, predictions, losses, gradients, and weights after steps at changing rates, by name."""
    from utils import optimizers

    given = np.load(folder / f"{task['name']}-given.npz")
    model = network(task)
    x, y = given["x"].astype(task["dtype"]), given["y"].astype(task["dtype"])
    found = {f"weights-{i:02d}": value for i, value in enumerate(model.get_weights())}
    with tf.GradientTape() as tape:
        predicted = model(x, training=True)
        error = tf.reduce_mean(tf.square(predicted - y))
        loss = error + (tf.add_n(model.losses) if task["l2"] else 0)
    found |= {"predicted": predicted.numpy(), "loss": np.array(float(loss)), "error": np.array(float(error))}
    found["mae"] = np.array(float(tf.reduce_mean(tf.abs(predicted - y))))
    if task["steps"]:
        gradients = tape.gradient(loss, model.trainable_variables)
        found |= {f"gradient-{i:02d}": value.numpy() for i, value in enumerate(gradients)}
        model.compile(optimizers.get_optimizer("SGD", learning_rate=0.0, momentum=0.9), loss="mse")
        for rate in task["steps"]:
            model.optimizer.learning_rate.assign(rate)
            model.train_on_batch(x, y)
        found |= {f"after-{i:02d}": value for i, value in enumerate(model.get_weights())}
    return found


def rates(cases: list[dict[str, Any]]) -> list[list[float]]:
    """Return the learning rates of the official schedule."""
    from utils import optimizers

    found = []
    for case in cases:
        epochs = case.pop("epochs")
        case["decay_schedule"] = {int(epoch): factor for epoch, factor in case["decay_schedule"].items()}
        rate = optimizers.get_lr_schedule(**case)
        found.append([float(rate(epoch)) for epoch in range(epochs)])
    return found


def written(folder: Path, side: int) -> None:
    """Cut the universe of `raw/` into samples of this side, gzipped and not, by the official preparation."""
    import prepare

    class Named(np.ndarray):
        """An array with the method that numpy had."""

        def tostring(self) -> bytes:
            return self.tobytes()

    read = prepare.read_hdf5
    prepare.read_hdf5 = lambda path: (read(path)[0].view(Named), read(path)[1])
    for kind in ("gzip", "none"):
        target = folder / f"official-{kind}"
        target.mkdir()
        for path in sorted((folder / "raw").rglob("*.hdf5")):
            prepare.process_file(str(path), str(target), side, write_tfrecord=True, compression=kind == "gzip")


def read(folder: Path, side: int) -> dict[str, np.ndarray]:
    """Return what the official pipeline makes of our files, with both normalisations."""
    from data import cosmo

    found = {}
    shape = (side, side, side, 4)
    for name, compression, apply_log in (("gzip", "GZIP", True), ("none", None, False)):
        files = folder / f"ours-{name}"
        count = len(list(files.glob("*.tfrecord")))
        made, _ = cosmo.construct_dataset(
            str(files), count, 1, 1, shape, apply_log=apply_log, compression=compression, shuffle=False
        )
        pairs = [(x.numpy()[0], y.numpy()[0]) for x, y in made]
        found |= {f"{name}-x": np.stack([x for x, _ in pairs]), f"{name}-y": np.stack([y for _, y in pairs])}
    return found


def main() -> None:
    clone, folder = map(Path, sys.argv[1:])
    sys.path.insert(0, str(clone / "cosmoflow"))
    stand_ins()
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tasks = SimpleNamespace(**json.loads((folder / "tasks.json").read_text()))
    for task in tasks.networks:
        np.savez(folder / f"{task['name']}-official.npz", **trained(task, folder))
        tf_keras.backend.clear_session()
    written(folder, tasks.side)
    np.savez(folder / "read-official.npz", **read(folder, tasks.side))
    versions = {"tensorflow": tf.__version__, "tf_keras": tf_keras.__version__}
    (folder / "rates.json").write_text(json.dumps({"rates": rates(tasks.rates), "versions": versions}))


if __name__ == "__main__":
    main()
