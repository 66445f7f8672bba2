"""The facts of OpenFold, a benchmark of round 3.0 without a package here.

Sources: hpc_training_rules.adoc (v3.0, 15 May 2023), mlcommons/hpc openfold/.
"""

from typing import Any

from common.reference import (
    ABOVE_ZERO,
    AMOUNT,
    COUNT,
    NOT_NEGATIVE,
    Check,
    Dataset,
    ExampleRun,
    Reference,
    Setting,
    Target,
    equals,
    one_of,
)

FIXED: dict[str, Any] = {
    "target_avg_lddt_ca_value": 0.8,
    "train_max_pdb_release_date": "2021-09-16",
    "val_min_cameo_submission_date": "2021-09-17",
    "val_max_cameo_submission_date": "2021-12-11",
    "val_max_sequence_length": 700,
    "val_every_iters": 40,
    "model_parameters_count": 93_229_082,
    "init_checkpoint_sha256sum": "b518be4677048f2c0f94889c91e2da73655a73b825a8aa7f8b6f5e580d8ffbed",
    "train_sequence_crop_size": 256,
    "num_recycling_iters": 3,
    "max_msa_clusters": 124,
    "max_extra_msa": 1024,
    "templates_enabled": True,
    "max_templates": 4,
    "fape_loss_weight": 1.0,
    "fape_loss_backbone_weight": 0.5,
    "fape_loss_sidechain_weight": 0.5,
    "supervised_chi_loss_weight": 1.0,
    "distogram_loss_weight": 0.3,
    "masked_msa_loss_weight": 2.0,
    "plddt_loss_weight": 0.01,
    "opt_name": "Adam",
    "opt_adam_beta_1": 0.9,
    "opt_adam_beta_2": 0.999,
    "opt_adam_epsilon": 1e-6,
    "opt_weight_decay": 0.0,
    "opt_amsgrad": False,
    "opt_gradient_clipping": True,
    "opt_gradient_clip_norm": 0.1,
    "swa_enabled": True,
    "swa_decay_rate": 0.9,
}
"""Keys that the closed division fixes, and their values."""


def _fixed_setting(key: str, wanted: Any) -> Setting:
    return Setting(key, equals(wanted), Check(repr(wanted), lambda value: value == wanted))


_LOADERS = one_of("InitialTrainingDataloaderPT", "InitialTrainingDataloaderPQ")

REFERENCE = Reference(
    name="openfold",
    rounds=("3.0",),
    target=Target("eval_accuracy", 0.8, lower_is_better=False),
    runs=10,
    dataset=Dataset(
        train_samples={"3.0": (594_595,)},
        eval_samples={"3.0": (180,)},
        source="PDB chains released until 2021-09-16; CAMEO targets 2021-09-17 to 2021-12-11",
        counts_checked=True,
    ),
    settings=(
        Setting("global_batch_size", COUNT, ABOVE_ZERO),
        *(_fixed_setting(key, wanted) for key, wanted in FIXED.items()),
        Setting("opt_base_learning_rate", AMOUNT, NOT_NEGATIVE),
        Setting("opt_learning_rate_warmup_init", AMOUNT, NOT_NEGATIVE),
        Setting("opt_learning_rate_warmup_steps", AMOUNT, NOT_NEGATIVE),
        Setting("initial_training_dataloader_type", _LOADERS, _LOADERS),
    ),
    epoch_unit="samples",
    points="compliance/rcp/rcps_openfold.yaml",
    cite="hpc_training_rules.adoc#hyperparameters-and-optimizer",
    example=ExampleRun(
        epochs=14,
        settings={
            "3.0": {
                "global_batch_size": 256,
                "gradient_accumulation_steps": 1,
                **FIXED,
                "opt_base_learning_rate": 0.001,
                "opt_learning_rate_warmup_init": 1e-5,
                "opt_learning_rate_warmup_steps": 0,
                "initial_training_dataloader_type": "InitialTrainingDataloaderPT",
            }
        },
    ),
)
