"""The facts of New Benchmark: predict the diffusivity of a plate from its temperature.

Sources: name the rules, papers and reference code that these facts are from.
"""

from common.reference import (
    ABOVE_ZERO,
    AMOUNT,
    ANY,
    CLOSED_READING,
    CLOSED_RUN,
    COUNT,
    LOGGED_RUN,
    MINI,
    NOT_NEGATIVE,
    Closed,
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

ROUNDS = since("3.0")
"""The rounds of MLPerf HPC that have this benchmark."""

EXAMPLE = {
    "global_batch_size": 64,
    "opt_name": "AdamW",
    "opt_base_learning_rate": 0.004,
    "opt_learning_rate_warmup_epochs": 1,
    "opt_learning_rate_warmup_factor": 2.0,
    "opt_learning_rate_decay_boundary_epochs": [6],
    "opt_learning_rate_decay_factor": 0.3,
}

TARGET = Target("eval_error", 0.05, lower_is_better=True)
TRAIN_SAMPLES = dict.fromkeys(ROUNDS, (65_536,))
EVAL_SAMPLES = dict.fromkeys(ROUNDS, (8_192,))
RULES = "newbenchmark/README.md"

CLOSED = (
    *CLOSED_RUN,
    *CLOSED_READING,
    *closed_samples(TRAIN_SAMPLES, EVAL_SAMPLES),
    Closed("train.target", null_or(equals(TARGET.value)), RULES),
    *fixed(RULES, {"data.side": 64, "model.channels": 16, "model.layers": 3}),
    *fixed(RULES, {"optim.name": "adamw", "optim.weight_decay": 0.0, "optim.betas": [0.9, 0.999], "optim.eps": 1e-8}),
    *free(RULES, "optim.momentum", "optim.max_grad_norm"),  # adamw has neither
    *fixed(RULES, {"schedule.kind": "piecewise"}),
    *free(RULES, "schedule.base_lr", "schedule.scaling", "schedule.base_batch_size"),
    *free(RULES, "schedule.warmup_epochs", "schedule.decay", "schedule.cosine_epochs"),
)
"""What the closed division asks of each key of the configuration: one value, a condition, or nothing."""

PARAMETERS = dict.fromkeys(ROUNDS, 4_817)
"""Trainable parameters of the closed division's network."""
LOGGED = LOGGED_RUN | {
    "gradient_accumulation_steps": of("train.accumulation"),
    "opt_learning_rate_warmup_epochs": of("schedule.warmup_epochs"),
}
"""Keys of the log that follow from the configuration; the checker compares both."""

REFERENCE = Reference(
    name="newbenchmark",
    rounds=ROUNDS,
    target=TARGET,
    runs=5,
    dataset=Dataset(
        train_samples=TRAIN_SAMPLES,
        eval_samples=EVAL_SAMPLES,
        source="generated plates of 64 x 64 cells",
        counts_checked=False,
    ),
    settings=(
        Setting("global_batch_size", COUNT, ABOVE_ZERO),
        Setting("opt_name", one_of("AdamW"), one_of("AdamW")),
        Setting("opt_base_learning_rate", AMOUNT, NOT_NEGATIVE),
        Setting("opt_learning_rate_warmup_epochs", AMOUNT, NOT_NEGATIVE),
        Setting("opt_learning_rate_warmup_factor", AMOUNT, NOT_NEGATIVE),
        Setting("opt_learning_rate_decay_boundary_epochs", list_of(COUNT), ANY),
        Setting("opt_learning_rate_decay_factor", each(number("with 0 < v < 1", lambda value: 0 < value < 1)), ANY),
    ),
    epoch_unit="epochs",
    points="newbenchmark/rcps.yaml",
    cite=RULES,
    closed=CLOSED,
    logged=LOGGED,
    parameters=PARAMETERS,
    example=ExampleRun(epochs=10, settings=dict.fromkeys(ROUNDS, EXAMPLE)),
    staging=("staging.mode=memory",),
)

MINI_TARGET = 0.065
"""Mean absolute error on the validation plates, in decades of the diffusivity; predicting the mean scores 0.5."""
MINIS = (mini_of(REFERENCE, MINI, MINI_TARGET, (1_024, 128), source="generated plates of 32 x 32 cells"),)
