"""What is CosmoFlow's own in the tests that all benchmarks share."""

import numpy as np

from tests.case import Case


def judged(predictor, samples, index):
    sample = samples.read(index)
    errors = predictor(sample.x[None]).numpy() - sample.y
    return float(np.abs(errors).sum()), errors.size


CASE = Case(
    name="cosmoflow",
    made="--grid 16 --particles 16 --train 24 --validation 7",
    config="""
output_dir: run
data: {data_dir: DATA, sample_shape: [16, 16, 16, 4], augment: symmetries, roll_step: 1, workers: 2}
model: {conv_size: 4, conv_layers: 3, fc1: 16, fc2: 8, dropout: 0.0, l2: 0.001}
schedule: {base_lr: 0.01, scaling: none, warmup_epochs: 1, decay: {2: 0.5}}
train: {epochs: 4, global_batch_size: 5, seed: 11}
precision: {dtype: fp32}
submission: {org: Example University, platform: test_n1}
""",
    quality="eval_error",
    other_network="model.fc1=17",
    judged=judged,
    met="0.9",
    files="*.tfrecord",
    wrong=(
        ("data.sample_shape=[32, 32, 32, 4]", "data.sample_shape is 32"),
        ("model.kernels=fused", "model.kernels is fused, which needs"),
        ("model.conv_layers=5", "override 'model.conv_layers=5': data.sample_shape is [16, 16, 16, 4], too small"),
    ),
    staged=("staging.inflate=true", "data.verify_crc=true"),
    full="--train 2 --validation 1",
    small="--grid 8 --particles 8 --train 4 --validation 2",
    wrong_options=(
        ("--particles 7", "even number of particles"),
        ("--length -5", "length_mpc_h must be positive"),
        ("--train 0 --validation 0", "at least one"),
        ("--format hdf5 --compress gzip", "raw universes cannot be compressed"),
    ),
)
