"""The facts of OC20: predict the forces on the atoms of a catalyst surface with an adsorbate (DimeNet++).

Sources: hpc_training_rules.adoc (v3.0, 15 May 2023), mlcommons/hpc open_catalyst/, Chanussot et al. 2021
(arXiv:2010.09990).
"""

from dataclasses import replace

from common.reference import (
    ABOVE_ZERO,
    AMOUNT,
    ANY,
    COUNT,
    HYPERPARAMETERS,
    MINI,
    NOT_NEGATIVE,
    SHARE,
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

ROUNDS = since("1.0")
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
"""Mean absolute error of the forces on free atoms, in eV per angstrom, also of the mini problem."""
ENERGY_MEAN_EV = -0.7554450631141663
ENERGY_STD_EV = 2.887317180633545
"""Of the benchmark's training frames (mlcommons/hpc open_catalyst)."""

REFERENCE = Reference(
    name="oc20",
    rounds=ROUNDS,
    target=TARGET,
    runs=5,
    dataset=Dataset(
        train_samples=dict.fromkeys(ROUNDS, (2_000_000,)),
        eval_samples=dict.fromkeys(ROUNDS, (999_866,)),
        source="S2EF 2M and its validation split",
        counts_checked=False,
    ),
    settings=(
        Setting("global_batch_size", COUNT, ABOVE_ZERO),
        Setting("opt_name", one_of("AdamW"), one_of("AdamW")),
        Setting("opt_base_learning_rate", number("> 0", lambda value: value > 0), NOT_NEGATIVE),
        Setting("opt_learning_rate_warmup_steps", AMOUNT, NOT_NEGATIVE),
        Setting("opt_learning_rate_warmup_factor", SHARE, NOT_NEGATIVE),
        Setting("opt_learning_rate_decay_boundary_steps", list_of(COUNT), ANY),
        Setting("opt_learning_rate_decay_factor", each(SHARE), ANY),
    ),
    epoch_unit="epochs",
    points="oc20/rcps.yaml",
    cite=HYPERPARAMETERS,
    trained_by="oc20.settings",
    parameters=dict.fromkeys(ROUNDS, 1_810_182),
    example=ExampleRun(epochs=26, settings=dict.fromkeys(ROUNDS, EXAMPLE)),
    staging=("staging.mode=memory",),
)

MINIS = (
    replace(
        mini_of(REFERENCE, MINI, TARGET.value, (2_400, 320), source="generated surfaces of 13 or 14 atoms"),
        baseline=0.0056,
        constant=0.46,  # no force at all
        data_sha256=("7e5b871d0886e291a2b6be7af2beae06f98cde8c2b59044d3c04d306e16e7343",),
    ),
)
