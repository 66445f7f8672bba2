"""`python -m cosmoflow.convert_checkpoint IN OUT`: weights of the reference's CosmoFlow, in and out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from common.commands import convert
from common.commands.convert import Found, ReferenceFiles
from common.training.weights import Weights
from cosmoflow import keras_weights
from cosmoflow.train import BENCHMARK


def read_reference(path: Path, wanted: Mapping[str, Tensor]) -> Found:
    """Return the weights of a Keras model; their file says neither epochs nor configuration."""
    return Found(keras_weights.read_weights(path, wanted))


def write_reference(path: Path, weights: Weights, config: Any) -> None:
    """Write the weights for `load_weights` of the Keras model."""
    keras_weights.write_weights(path, weights.tensors)


FILES: Final = ReferenceFiles(
    endings=(".h5", ".hdf5"),
    code="the reference's CosmoFlow (mlcommons/hpc cosmoflow/, Keras 2)",
    note="""
Read are weights (`save_weights`) and whole models (checkpoint-NNN.h5). What is written for the reference has weights
alone: build the model there and call `model.load_weights("reference.h5")`.""",
    read=read_reference,
    write=write_reference,
)
main = partial(convert.main, BENCHMARK, FILES)

if __name__ == "__main__":
    sys.exit(main())
