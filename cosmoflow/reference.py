"""The facts of CosmoFlow: predict four cosmological parameters from a 3-D matter distribution.

Sources: hpc_training_rules.adoc (v3.0, 15 May 2023), mlcommons/hpc cosmoflow/, Farrell et al. 2021 (arXiv:2110.11466).
"""

import math
from dataclasses import replace

from common.reference import (
    ABOVE_ZERO,
    AMOUNT,
    ANY,
    CLOSED_READING,
    CLOSED_RUN,
    COUNT,
    LOGGED_RUN,
    MINI,
    MINI_2,
    NOT_NEGATIVE,
    ROUNDS,
    Check,
    Closed,
    Configuration,
    Dataset,
    ExampleRun,
    Reference,
    Setting,
    Target,
    closed_samples,
    each,
    equals,
    fixed,
    free,
    list_of,
    mini_of,
    null_or,
    number,
    of,
    one_of,
    since,
)

SETTINGS = (
    Setting("global_batch_size", COUNT, ABOVE_ZERO),
    Setting("opt_name", one_of("sgd", "SGD"), one_of("sgd", "SGD")),
    Setting("opt_base_learning_rate", AMOUNT, NOT_NEGATIVE),
    Setting("opt_learning_rate_warmup_epochs", AMOUNT, NOT_NEGATIVE),
    Setting("opt_learning_rate_warmup_factor", AMOUNT, NOT_NEGATIVE),
    Setting("opt_learning_rate_decay_boundary_epochs", list_of(COUNT), ANY),
    Setting("opt_learning_rate_decay_factor", each(number("with 0 < v < 1", lambda value: 0 < value < 1)), ANY),
    Setting(
        "dropout",
        number("with 0 <= v < 1", lambda value: 0 <= value < 1),
        Check("0 <= v < 1", lambda value: 0 <= value < 1),
        required=False,
        rounds=since("1.0"),
    ),
    Setting("opt_weight_decay", AMOUNT, NOT_NEGATIVE, required=False, rounds=since("1.0")),
    Setting("sgd_opt_momentum", equals(0.9), None, required=False, why="the rules fix the momentum"),
)

TARGET = Target("eval_error", 0.124, lower_is_better=True)
TRAIN_SAMPLES = {"0.7": (262_144,)} | dict.fromkeys(since("1.0"), (524_288,))
EVAL_SAMPLES = dict.fromkeys(ROUNDS, (65_536,))
HYPERPARAMETERS = "hpc_training_rules.adoc#hyperparameters-and-optimizer"
FACTORS = Check(
    "factors with 0 < v < 1", lambda value: all(int(epoch) >= 0 and 0 < value[epoch] < 1 for epoch in value)
)

CLOSED = (
    *CLOSED_RUN,
    *CLOSED_READING,
    *free("training_rules.adoc#data-state-at-start-of-run", "data.format"),
    *closed_samples(TRAIN_SAMPLES, EVAL_SAMPLES),
    Closed("train.target", null_or(equals(TARGET.value)), "hpc_training_rules.adoc#benchmarks"),
    *fixed("training_rules.adoc#data-representation", {"data.sample_shape": [128, 128, 128, 4]}),
    *fixed(
        "training_rules.adoc#preprocessing-during-the-run",
        {"data.apply_log": True, "data.shift": 0.0, "data.scale": 1.0, "data.augment": "none", "data.roll_step": 0},
    ),
    *free("training_rules.adoc#graph-execution", "data.pipeline", "data.verify_crc", "model.kernels"),
    *fixed(
        "training_rules.adoc#graph-definition",
        {"model.conv_size": 32, "model.conv_layers": 5, "model.fc1": 128, "model.fc2": 64},
    ),
    Closed("model.kernel_size", equals(2), "training_rules.adoc#graph-definition", rounds=("0.7",), example=2),
    Closed("model.kernel_size", equals(3), "training_rules.adoc#graph-definition", rounds=since("1.0"), example=3),
    Closed("model.dropout", number("with 0 <= v < 1", lambda value: 0 <= value < 1), HYPERPARAMETERS, example=0.0),
    Closed("model.l2", AMOUNT, HYPERPARAMETERS, example=0.01),
    *fixed(HYPERPARAMETERS, {"optim.name": "sgd", "optim.momentum": 0.9, "optim.weight_decay": 0.0}),
    *free(HYPERPARAMETERS, "optim.betas", "optim.eps", "optim.max_grad_norm"),  # sgd has none of them
    *fixed(HYPERPARAMETERS, {"schedule.kind": "piecewise"}),
    *free(HYPERPARAMETERS, "schedule.base_lr", "schedule.scaling", "schedule.base_batch_size"),
    *free(HYPERPARAMETERS, "schedule.warmup_epochs", "schedule.cosine_epochs"),  # piecewise has no cosine_epochs
    Closed("schedule.decay", FACTORS, HYPERPARAMETERS, example={"19": 0.5, "21": 0.25, "22": 0.125, "23": 0.0625}),
)
PARAMETERS = {"0.7": 5_597_604} | dict.fromkeys(since("1.0"), 8_907_556)
"""The kernels of round 0.7 have two voxels along an edge, later ones three."""


def peak(config: Configuration) -> float:
    """Return the peak learning rate divided by schedule.base_lr."""
    ratio = config("train.global_batch_size") / config("schedule.base_batch_size")
    return float({"linear": ratio, "sqrt": math.sqrt(ratio), "none": 1.0}[config("schedule.scaling")])


def boundaries(config: Configuration) -> list[int]:
    """Return the epochs after which the learning rate decays; in JSON they are text."""
    return sorted(map(int, config("schedule.decay")))


def factors(config: Configuration) -> list[float]:
    """Return the decay factors in the order of their epochs."""
    by_epoch = {int(epoch): factor for epoch, factor in config("schedule.decay").items()}
    return [by_epoch[epoch] for epoch in boundaries(config)]


LOGGED = LOGGED_RUN | {
    "gradient_accumulation_steps": of("train.accumulation"),
    "opt_base_learning_rate": lambda config: config("schedule.base_lr") * peak(config),
    "opt_learning_rate_warmup_epochs": of("schedule.warmup_epochs"),
    "opt_learning_rate_warmup_factor": peak,
    "opt_learning_rate_decay_boundary_epochs": boundaries,
    "opt_learning_rate_decay_factor": factors,
    "sgd_opt_momentum": of("optim.momentum"),
    "dropout": of("model.dropout"),
    "opt_weight_decay": lambda config: config("model.l2") or config("optim.weight_decay"),
}

FIRST_EXAMPLE = {
    "global_batch_size": 512,
    "opt_name": "sgd",
    "opt_base_learning_rate": 0.006,
    "opt_learning_rate_warmup_epochs": 6,
    "opt_learning_rate_warmup_factor": 4.0,
    "opt_learning_rate_decay_boundary_epochs": [19, 21, 22, 23],
    "opt_learning_rate_decay_factor": [0.5, 0.25, 0.125, 0.0625],
}

REFERENCE = Reference(
    name="cosmoflow",
    rounds=ROUNDS,
    target=TARGET,
    runs=10,
    dataset=Dataset(
        train_samples=TRAIN_SAMPLES,
        eval_samples=EVAL_SAMPLES,
        source="cosmoUniverse, 64 sub-volumes per universe (half of the training set in round 0.7)",
        counts_checked=False,
    ),
    settings=SETTINGS,
    epoch_unit="epochs",
    points="cosmoflow/rcps.yaml",
    cite=HYPERPARAMETERS,
    closed=CLOSED,
    logged=LOGGED,
    parameters=PARAMETERS,
    example=ExampleRun(
        epochs=25,
        settings={
            "0.7": FIRST_EXAMPLE,
            **dict.fromkeys(since("1.0"), FIRST_EXAMPLE | {"dropout": 0.0, "opt_weight_decay": 0.01}),
        },
    ),
    staging=("staging.mode=replicate", "staging.stage_dir=$TMPDIR/cosmoflow"),
)

MINIS = (
    replace(
        mini_of(REFERENCE, MINI_2, 0.1, (2_048, 256), source="generated universes with a drift, 32^3 voxels"),
        baseline=0.396,
    ),
    replace(
        mini_of(REFERENCE, MINI, 0.21, (2_048, 256), source="generated universes of flat LCDM, 32^3 voxels"),
        baseline=0.182,
    ),
)
"""The target is the mean absolute error on the validation universes; the best constant prediction has 0.5. The second
problem is that of the first generation, where spectra tell as much as the network."""
