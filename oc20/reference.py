"""The facts of OC20: predict the forces on the atoms of a catalyst surface with an adsorbate (DimeNet++).

Sources: hpc_training_rules.adoc (v3.0, 15 May 2023), mlcommons/hpc open_catalyst/, Chanussot et al. 2021
(arXiv:2010.09990).
"""

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

ROUNDS = since("1.0")
POSITIVE = number("> 0", lambda value: value > 0)
SHARE = number("with 0 <= v <= 1", lambda value: 0 <= value <= 1)

EXAMPLE = {
    "global_batch_size": 1024,
    "opt_name": "AdamW",
    "opt_base_learning_rate": 0.0012,
    "opt_learning_rate_warmup_steps": 7816,
    "opt_learning_rate_warmup_factor": 0.2,
    "opt_learning_rate_decay_boundary_steps": [31264, 46896],
    "opt_learning_rate_decay_factor": 0.1,
}

TARGET = Target("eval_error", 0.036, lower_is_better=True)
TRAIN_SAMPLES = dict.fromkeys(ROUNDS, (2_000_000,))
EVAL_SAMPLES = dict.fromkeys(ROUNDS, (999_866,))
HYPERPARAMETERS = "hpc_training_rules.adoc#hyperparameters-and-optimizer"
ENERGY_MEAN_EV = -0.7554450631141663
ENERGY_STD_EV = 2.887317180633545
"""Of the benchmark's training frames (mlcommons/hpc open_catalyst)."""

CLOSED = (
    *CLOSED_RUN,
    *CLOSED_READING,
    *free("training_rules.adoc#data-state-at-start-of-run", "data.format"),
    *closed_samples(TRAIN_SAMPLES, EVAL_SAMPLES),
    Closed("train.target", null_or(equals(TARGET.value)), "hpc_training_rules.adoc#benchmarks"),
    *fixed(
        "training_rules.adoc#preprocessing-during-the-run",
        {"data.energy_mean": ENERGY_MEAN_EV, "data.energy_std": ENERGY_STD_EV},
    ),
    *free("training_rules.adoc#training-data-order", "data.balance"),
    *fixed(
        "training_rules.adoc#graph-definition",
        {
            "model.hidden": 192,
            "model.blocks": 3,
            "model.radial": 6,
            "model.spherical": 7,
            "model.cutoff": 6.0,
            "model.interaction": 64,
            "model.basis": 8,
            "model.out": 192,
            "model.before_skip": 1,
            "model.after_skip": 2,
            "model.output_layers": 3,
            "model.envelope_exponent": 5,
            "model.detach_angles": True,
        },
    ),
    *free("training_rules.adoc#graph-execution", "model.kernels", "data.buckets"),
    *fixed(
        HYPERPARAMETERS,
        {"optim.name": "adamw", "optim.weight_decay": 0.01, "optim.betas": [0.9, 0.999], "optim.eps": 1e-8},
    ),
    *free(HYPERPARAMETERS, "optim.momentum", "optim.max_grad_norm"),  # adamw has neither
    *free(HYPERPARAMETERS, "schedule.base_lr", "schedule.warmup_steps", "schedule.boundaries"),
    Closed("schedule.warmup_factor", SHARE, HYPERPARAMETERS, example=0.2),
    Closed("schedule.decay_factor", SHARE, HYPERPARAMETERS, example=0.1),
)
PARAMETERS = dict.fromkeys(ROUNDS, 1_810_182)
LOGGED = LOGGED_RUN | {
    "gradient_accumulation_steps": of("train.accumulation"),
    "opt_weight_decay": of("optim.weight_decay"),
    "opt_base_learning_rate": of("schedule.base_lr"),
    "opt_learning_rate_warmup_steps": of("schedule.warmup_steps"),
    "opt_learning_rate_warmup_factor": of("schedule.warmup_factor"),
    "opt_learning_rate_decay_boundary_steps": of("schedule.boundaries"),
    "opt_learning_rate_decay_factor": of("schedule.decay_factor"),
}

REFERENCE = Reference(
    name="oc20",
    rounds=ROUNDS,
    target=TARGET,
    runs=5,
    dataset=Dataset(
        train_samples=TRAIN_SAMPLES,
        eval_samples=EVAL_SAMPLES,
        source="S2EF 2M and its validation split",
        counts_checked=False,
    ),
    settings=(
        Setting("global_batch_size", COUNT, ABOVE_ZERO),
        Setting("opt_name", one_of("AdamW"), one_of("AdamW")),
        Setting("opt_base_learning_rate", POSITIVE, NOT_NEGATIVE),
        Setting("opt_learning_rate_warmup_steps", AMOUNT, NOT_NEGATIVE),
        Setting("opt_learning_rate_warmup_factor", SHARE, NOT_NEGATIVE),
        Setting("opt_learning_rate_decay_boundary_steps", list_of(COUNT), ANY),
        Setting("opt_learning_rate_decay_factor", each(SHARE), ANY),
    ),
    epoch_unit="epochs",
    points="oc20/rcps.yaml",
    cite=HYPERPARAMETERS,
    closed=CLOSED,
    logged=LOGGED,
    parameters=PARAMETERS,
    example=ExampleRun(epochs=26, settings=dict.fromkeys(ROUNDS, EXAMPLE)),
    staging=("staging.mode=memory",),
)

MINI_TARGET = 0.036
"""Mean absolute error of the forces on free atoms, in eV per angstrom; no force at all has 0.47."""
MINIS = (
    replace(
        mini_of(REFERENCE, MINI, MINI_TARGET, (2_400, 320), source="generated surfaces of 13 or 14 atoms"),
        baseline=0.155,
    ),
)
