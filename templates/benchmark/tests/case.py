"""What is New Benchmark's own in the tests that all benchmarks share."""

import numpy as np

from tests.case import Case


def judged(predictor, samples, index):
    fields_BHW, labels_B1 = samples.buffer(1, pinned=False)
    samples.read_into(index, (fields_BHW[0].numpy(), labels_B1[0].numpy()))
    errors = (predictor(fields_BHW) - labels_B1).numpy()
    return float(np.abs(errors).sum()), errors.size


CASE = Case(
    name="newbenchmark",
    made="--side 16 --train 24 --validation 7",
    config="""
output_dir: run
data: {data_dir: DATA, side: 16, workers: 2}
model: {channels: 4, layers: 2}
optim: {name: adamw}
schedule: {base_lr: 0.01, scaling: none, warmup_epochs: 1, decay: {2: 0.5}}
train: {epochs: 4, global_batch_size: 5, seed: 11}
precision: {dtype: fp32}
submission: {org: Example University, platform: test_n1}
""",
    quality="eval_error",
    other_network="model.channels=5",
    judged=judged,
    met="2",
    files="*_field.npy",
    wrong=(
        ("data.side=8", "is data.side right"),
        ("model.layers=0", "layers is 0; expected at least 1"),
    ),
    full="--train 2 --validation 1",
    small="--side 8 --train 4 --validation 2",
    wrong_options=(
        ("--side 7", "expected at least 8 cells"),
        ("--train 0 --validation 0", "at least one"),
    ),
)
