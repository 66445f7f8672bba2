"""What is OC20's own in the tests that all benchmarks share."""

import numpy as np

from tests.case import Case


def judged(predictor, samples, index):
    frame = samples.read(index)
    _, forces_A3 = predictor([frame])
    errors = (forces_A3.numpy() - frame.force)[~frame.fixed]
    return float(np.abs(errors).sum()), errors.size


CASE = Case(
    name="oc20",
    made="--slab 2 2 2 --frames 1 --train 24 --validation 7",
    config="""
output_dir: run
data: {data_dir: DATA, workers: 2}
model: {hidden: 16, blocks: 1, radial: 4, spherical: 3, interaction: 8, basis: 4, out: 16}
optim: {name: adamw, weight_decay: 0.01}
schedule: {base_lr: 0.003, warmup_steps: 4, boundaries: [15]}
train: {epochs: 4, global_batch_size: 5, seed: 11}
precision: {dtype: fp32}
submission: {org: Example University, platform: test_n1}
""",
    recorded=("data.buckets=on",),
    quality="eval_error",
    other_network="model.hidden=24",
    judged=judged,
    met="2",
    files="*.lmdb",
    wrong=(
        ("data.format=compact", "set data.format"),
        ("model.kernels=triton", "model.kernels is triton, which needs"),
        ("schedule.warmup_factor=2", "warmup_factor is 2.0; expected 0 to 1"),
        ("train.global_batch_size=0", "expected at least 1"),
    ),
    full="--train 1 --validation 1 --frames 2",
    small="--slab 2 2 2 --train 4 --validation 2 --frames 2",
    wrong_options=(
        ("--slab 1 2 3", "at least 2 x 2 atoms"),
        ("--train 0 --validation 0", "at least one"),
        ("--frames 0", "--frames: expected a whole number of at least 1"),
        ("--format xyz", "invalid choice"),
    ),
)
