"""The facts of New Benchmark: predict the diffusivity of a plate from its temperature.

Sources: name the rules, papers and reference code that these facts are from.
"""

from common.reference import (
    ABOVE_ZERO,
    AMOUNT,
    ANY,
    COUNT,
    MINI,
    NOT_NEGATIVE,
    Dataset,
    ExampleRun,
    Reference,
    Setting,
    Target,
    each,
    list_of,
    mini_of,
    number,
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
PARAMETERS = dict.fromkeys(ROUNDS, 4_817)
"""Trainable parameters of the closed division's network."""

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
    trained_by="newbenchmark.settings",
    parameters=PARAMETERS,
    example=ExampleRun(epochs=10, settings=dict.fromkeys(ROUNDS, EXAMPLE)),
    staging=("staging.mode=memory",),
)

MINI_TARGET = 0.065
"""Mean absolute error on the validation plates, in decades of the diffusivity; predicting the mean scores 0.5."""
MINIS = (mini_of(REFERENCE, MINI, MINI_TARGET, (1_024, 128), source="generated plates of 32 x 32 cells"),)
