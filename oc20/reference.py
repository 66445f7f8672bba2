"""The facts of OC20: predict the forces on the atoms of a catalyst surface with an adsorbate (DimeNet++).

Sources: hpc_training_rules.adoc (v3.0, 15 May 2023), mlcommons/hpc open_catalyst/, Chanussot et al. 2021
(arXiv:2010.09990).
"""

from common.reference import (
    ABOVE_ZERO,
    AMOUNT,
    ANY,
    COUNT,
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

REFERENCE = Reference(
    name="oc20",
    rounds=ROUNDS,
    target=Target("eval_error", 0.036, lower_is_better=True),
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
        Setting("opt_base_learning_rate", AMOUNT, NOT_NEGATIVE),
        Setting("opt_learning_rate_warmup_steps", AMOUNT, NOT_NEGATIVE),
        Setting(
            "opt_learning_rate_warmup_factor",
            number("with 0 <= v <= 1", lambda value: 0 <= value <= 1),
            NOT_NEGATIVE,
        ),
        Setting("opt_learning_rate_decay_boundary_steps", list_of(COUNT), ANY),
        Setting(
            "opt_learning_rate_decay_factor",
            each(number("with 0 <= v <= 1", lambda value: 0 <= value <= 1)),
            ANY,
        ),
    ),
    epoch_unit="epochs",
    points="oc20/rcps.yaml",
    cite="hpc_training_rules.adoc#hyperparameters-and-optimizer",
    example=ExampleRun(epochs=26, settings=dict.fromkeys(ROUNDS, EXAMPLE)),
    staging=("staging.mode=memory",),
)

MINI_TARGET = 0.036
"""Mean absolute error of the forces on free atoms, in eV per angstrom; no force at all has 0.47."""
MINI = mini_of(REFERENCE, MINI_TARGET, 2_400, 320, source="generated surfaces of 13 or 14 atoms")
