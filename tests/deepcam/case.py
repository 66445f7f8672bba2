"""What is DeepCAM's own in the tests that all benchmarks share."""

import torch

from deepcam.predictor import class_iou
from tests.case import Case


def judged(predictor, samples, index):
    sample = samples.read(index)
    classes_BHW = predictor(sample.x[None]).argmax(dim=1)
    return float(class_iou(classes_BHW, torch.from_numpy(sample.y[None])).mean()), 1


CASE = Case(
    name="deepcam",
    made="--height 48 --width 64 --size 3.5 --train 24 --validation 7 --test 1",
    config="""
output_dir: run
data: {data_dir: DATA, height: 48, width: 64, augment: symmetries, workers: 2}
model: {width: 0.125, middle_blocks: 1, output_stride: 8, aspp_rates: [1, 2]}
optim: {name: lamb, eps: 1.0e-6, weight_decay: 0.01}
schedule: {base_lr: 1.0e-4, warmup_steps: 2, milestones: [12], decay_rate: 0.5}
train: {epochs: 4, global_batch_size: 5, seed: 11}
precision: {dtype: fp32}
submission: {org: Example University, platform: test_n1}
""",
    quality="eval_accuracy",
    other_network="model.middle_blocks=2",
    judged=judged,
    met="0.001",
    files="data-*.h5",
    shared=("batchnorm_group_size=2",),
    wrong=(
        ("data.height=64", "(48, 64, 16)"),
        ("data.width=72", "width is 72; expected a multiple of 16"),
        ("batchnorm_group_size=2", "cannot form groups of 2"),
        ("train.accumulation=5", "set train.tail=drop"),
        ("data.format=npy", "set data.format"),
    ),
    staged=("data.cache=true",),
    full="--train 2 --validation 1 --test 1",
    closed=("train.global_batch_size=1",),
    learned=("schedule.base_lr=0.01",),
    small="--height 48 --width 72 --train 6 --validation 2 --test 1",
    wrong_options=(
        ("--width 143", "even width"),
        ("--size 9", "size must be from 1"),
        ("--size 1", "at most 190 km"),
        ("--train 0 --validation 0 --test 0", "at least one"),
    ),
)
