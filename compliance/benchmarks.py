"""The facts of all benchmarks; everything else asks here for names, rounds and facts.

OpenFold, a benchmark of round 3.0, has no package here: its facts are in this file. Sources:
hpc_training_rules.adoc (v3.0, 15 May 2023), mlcommons/hpc openfold/.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from functools import cache, lru_cache, partial
from importlib import import_module
from operator import eq
from types import ModuleType
from typing import Any, Final

from common.benchmarks import FACTS, PACKAGES, ROOT, Package, PluginError, find_package, import_facts, require_package
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
        *(Setting(key, equals(wanted), Check(repr(wanted), partial(eq, wanted))) for key, wanted in FIXED.items()),
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


def _import_own_facts(name: str) -> ModuleType:
    """Return the module with the facts of a benchmark; without its package, every command ends here, in one line."""
    try:
        return import_module(f"{name}.reference")
    except ModuleNotFoundError as error:
        if error.name not in (name, f"{name}.reference"):
            raise
    folder = os.path.join(ROOT, name)
    fix = (
        f"Python does not find {folder}: repeat `pip install --editable .`, or run from its parent folder"
        if os.path.exists(folder)
        else f"there is no {folder}: bring it back, or remove its line from that file"
    )
    sys.exit(f"error: common/benchmarks.py lists {name!r}, but {fix}")


_FACTS: Final = {name: _import_own_facts(name) for name in PACKAGES}

REFERENCES: Final[dict[str, Reference]] = {
    **{name: facts.REFERENCE for name, facts in _FACTS.items()},
    "openfold": REFERENCE,
}
"""The benchmarks of MLPerf HPC; `find_reference` also knows those from outside the suite."""
MINIS: Final[dict[str, tuple[Reference, ...]]] = {name: facts.MINIS for name, facts in _FACTS.items()}
"""The mini problems of the benchmarks that have some, the current one first."""
BROKEN: Final[dict[str, str]] = {}
"""Why plug-ins cannot be used that were asked for and failed, by name."""
JUDGED: Final[list[str]] = []
"""The files and folders that are judged: no plug-in is imported from there."""


def names_in_words() -> str:
    """Return all names as a choice: `a, b or c`."""
    *others, last = REFERENCES
    return f"{', '.join(others)} or {last}"


def benchmarks_of(round_: str) -> tuple[str, ...]:
    """Return the names of the benchmarks that a round has."""
    return tuple(name for name, reference in REFERENCES.items() if round_ in reference.rounds)


def find_plugin(benchmark: str | None) -> Package | None:
    """Return the package of a benchmark from outside the suite; None for one of the suite, and for none."""
    if benchmark is None or benchmark in REFERENCES or not benchmark.isidentifier():
        return None
    return find_package(benchmark)


def describe_plugin(benchmark: str | None) -> str:
    """Return what a benchmark from outside the suite is: `wave_speed of wave-speed 0.1.0: …`; "" for any other."""
    package = find_plugin(benchmark)
    return f"{package.name} of {package.origin}: not an MLPerf benchmark" if package else ""


def refuse_plugins_in(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Import no plug-in from these folders or from beside these files, as they are judged."""
    JUDGED[:] = [os.path.realpath(path) for path in paths]
    BROKEN.clear()
    for cached in (load_plugin, list_references, reference_of):
        cached.cache_clear()


def _find_judged(package: Package) -> str | None:
    """Return the judged file or folder that a plug-in, or the facts of its distribution, comes from; None if none."""
    home, folder, facts = (os.path.realpath(path) for path in (package.home, package.folder, package.folder / FACTS))
    around = os.path.join(home, "") if package.origin != str(package.home) else None  # metadata above what is judged
    for path in JUDGED:
        if around and path.startswith(around) and around.startswith(os.path.join(os.path.realpath("."), "")):
            return path
        if os.path.isdir(path):
            inside = any(part.startswith(os.path.join(path, "")) for part in (os.path.join(home, ""), folder, facts))
        else:
            inside = os.path.dirname(path) in (home, folder, os.path.dirname(folder))
        if inside:
            return path
    return None


@cache
def load_plugin(benchmark: str) -> tuple[Reference, ...]:
    """Return the facts of a benchmark from outside the suite, the full problem's first; PluginError if it is broken.

    Raises PluginError for an unknown benchmark, too.
    """
    package = require_package(benchmark)
    if judged := _find_judged(package):
        origin = f"benchmark {benchmark!r} of {package.origin}"
        raise PluginError(
            f"{origin} is in or beside {judged}, which is judged: its code is not run; install it elsewhere"
        )
    with redirect_stdout(sys.stderr):  # a report may be on standard output
        facts = import_facts(package)
    return (facts.REFERENCE, *facts.MINIS)


def require_references(benchmark: str) -> tuple[Reference, ...]:
    """Return the facts of a benchmark, the full problem's first; PluginError for an unknown or a broken one."""
    return list_references(benchmark) or load_plugin(benchmark)


def require_reference(benchmark: str) -> Reference:
    """Return the facts of a benchmark's full problem; PluginError for an unknown or a broken one."""
    return require_references(benchmark)[0]


@lru_cache(maxsize=256)
def list_references(benchmark: str | None) -> tuple[Reference, ...]:
    """Return the facts of a benchmark, the full problem's first; () for an unknown one and for a broken plug-in."""
    if benchmark in REFERENCES:
        return (REFERENCES[benchmark], *MINIS.get(benchmark, ()))
    if find_plugin(benchmark) is None:
        return ()
    try:
        return load_plugin(benchmark or "")
    except PluginError as error:
        BROKEN[benchmark or ""] = str(error)
        return ()


def read_name(value: object) -> str:
    """Return a logged name of a benchmark without blanks and in lower case; "" for what is no text."""
    return value.strip().lower() if isinstance(value, str) else ""


def find_reference(benchmark: str | None) -> Reference | None:
    """Return the facts of a benchmark's full problem; None for an unknown one and for a broken plug-in."""
    return next(iter(list_references(benchmark)), None)


def has_round(benchmark: str | None, round_: str) -> bool:
    """Tell whether a round has a benchmark of this name."""
    reference = find_reference(benchmark)
    return reference is not None and round_ in reference.rounds


@lru_cache(maxsize=256)  # asked many times for each log
def reference_of(benchmark: str | None, variant: str) -> Reference | None:
    """Return the facts of a benchmark's variant; None if there is no such benchmark, or no mini problem of it."""
    return next((reference for reference in list_references(benchmark) if reference.variant == variant), None)
