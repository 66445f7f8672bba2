"""The peer of `bench/cosmoflow.py`: the published network in Keras on TensorFlow, trained as the reference trains it.

    PYTHON bench/cosmoflow_keras.py CASE

A step is log(1 + counts), forward, backward and SGD with momentum, by `Model.train_on_batch`. XLA is off: on a CPU it
made these steps ten times slower.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from workers import given_case, serve, took


def network(case: Any) -> Any:
    """Return the network by the table of layers: block by block convolution, LeakyReLU, pooling; three dense layers."""
    layers = keras.layers
    stack = [keras.Input((case.side, case.side, case.side, 4))]
    for layer in range(case.layers):
        stack.append(layers.Conv3D(case.channels << layer, 3, padding="same"))
        stack += [layers.LeakyReLU(0.3), layers.MaxPooling3D(2)]
    stack.append(layers.Flatten())
    for features in (128, 64):
        stack += [layers.Dense(features), layers.LeakyReLU(0.3), layers.Dropout(0.5)]
    stack += [layers.Dense(4, activation="tanh"), layers.Rescaling(1.2, dtype="float32")]
    return keras.Sequential(stack)


def main() -> None:
    case = given_case()
    tf.config.threading.set_intra_op_parallelism_threads(case.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1 if case.threads == 1 else 2)
    if case.dtype == "bf16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = network(case)
    model.compile(keras.optimizers.SGD(0.001, momentum=0.9), "mse", jit_compile=False)
    rng = np.random.default_rng(0)
    counts = tf.constant(rng.poisson(1.0, (case.batch, case.side, case.side, case.side, 4)).astype(np.int16))
    y = tf.constant(rng.uniform(-1, 1, (case.batch, 4)).astype(np.float32))

    def step() -> None:
        model.train_on_batch(tf.math.log(tf.cast(counts, tf.float32) + 1), y)

    def facts() -> dict[str, Any]:
        versions = {"tensorflow": tf.__version__, "keras": keras.__version__}
        return {"parameters": model.count_params(), "versions": versions}

    serve(case, step, facts, lambda steps: took(step, steps))


if __name__ == "__main__":
    main()
