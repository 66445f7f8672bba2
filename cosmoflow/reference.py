"""The facts of CosmoFlow: predict four cosmological parameters from a 3-D matter distribution.

Sources: hpc_training_rules.adoc (v3.0, 15 May 2023), mlcommons/hpc cosmoflow/, Farrell et al. 2021 (arXiv:2110.11466).
"""

from dataclasses import replace

from common.reference import (
    ABOVE_ZERO,
    AMOUNT,
    ANY,
    COUNT,
    HYPERPARAMETERS,
    MINI,
    MINI_2,
    NOT_NEGATIVE,
    ROUNDS,
    Check,
    Dataset,
    ExampleRun,
    Reference,
    Setting,
    Target,
    each,
    equals,
    list_of,
    mini_of,
    number,
    one_of,
    since,
)

TARGET = Target("eval_error", 0.124, lower_is_better=True)

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
        train_samples={"0.7": (262_144,)} | dict.fromkeys(since("1.0"), (524_288,)),
        eval_samples=dict.fromkeys(ROUNDS, (65_536,)),
        source="cosmoUniverse, 64 sub-volumes per universe (half of the training set in round 0.7)",
        counts_checked=False,
    ),
    settings=(
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
    ),
    epoch_unit="epochs",
    points="cosmoflow/rcps.yaml",
    cite=HYPERPARAMETERS,
    trained_by="cosmoflow.settings",
    # The kernels of round 0.7 have two voxels along an edge, later ones three.
    parameters={"0.7": 5_597_604} | dict.fromkeys(since("1.0"), 8_907_556),
    example=ExampleRun(
        epochs=25,
        settings={
            "0.7": FIRST_EXAMPLE,
            **dict.fromkeys(since("1.0"), FIRST_EXAMPLE | {"dropout": 0.0, "opt_weight_decay": 0.01}),
        },
    ),
    staging=("staging.mode=replicate", "staging.stage_dir=$TMPDIR/cosmoflow"),
    constant=0.5,  # the labels are even from -1 to 1
)

MINIS = (
    replace(
        mini_of(REFERENCE, MINI_2, 0.1, (2_048, 256), source="generated universes with a drift, 32^3 voxels"),
        baseline=0.058,
        data_sha256=("92d1b24fd8fafa7daa6bfcfdb2025320371cffc291f6f847a34718060fa54f22",),
    ),
    replace(
        mini_of(REFERENCE, MINI, 0.21, (2_048, 256), source="generated universes of flat LCDM, 32^3 voxels"),
        baseline=0.182,
    ),
)
"""The target is the mean absolute error on the validation universes. The second problem is that of the first
generation, where spectra tell as much as the network."""
