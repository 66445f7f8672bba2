"""Forged results that their runs or descriptions contradict: old ones, chosen ones, and those of other systems."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from tests.conformance.variants import forged_copies as copies
from tests.conformance.variants.bases import Submission
from tests.conformance.variants.forged_evidence import BASES, shrink
from tests.conformance.variants.logtext import EVALUATION_KEYS, LogText, take_arguments
from tests.conformance.variants.table import Case, Edit, Random, in_family, in_turn, of_each_log, together
from tests.conformance.variants.valid_submissions import number_runs

# -- G06: old runs ------------------------------------------------------------------------------------------------


@of_each_log
def run_later(log: LogText, rng: Random, days: int) -> None:
    """Move all times by days; seeds are left."""
    log.shift(days * copies.DAY_MS)


@of_each_log
def change_results(log: LogText, rng: Random) -> None:
    """Change all results by up to a thousandth."""
    copies.noise()(log, log, rng)


@of_each_log
def seed_by_clock(log: LogText, rng: Random) -> None:
    """Take the seed from the clock, as most tools do."""
    log.state("seed", str(int(log.timed[0].time) // 1000))


@take_arguments
def resubmit(package: Submission, rng: Random, edit: Edit) -> None:
    """Submit an old result as a new one; openfold's seeds are no clock readings, and become such first."""
    if package.benchmark == "openfold":
        seed_by_clock()(package, rng)
    edit(package, rng)


G06 = in_family(
    "G06",
    BASES | {"OC": "ANL oc20"},
    {
        f"{base}_{name}": (reason, resubmit(edit))
        for base in ("DC", "OC", "OF", "ND")
        for name, reason, edit in (
            ("40d", "40 days later", run_later(40)),
            ("400d", "400 days later", run_later(400)),
            ("370d_edited", "370 days later, and faster", in_turn(run_later(370), shrink(0.96), change_results())),
        )
    },
    subject=("seed",),
)

# -- G15: the description -----------------------------------------------------------------------------------------


@take_arguments
def described(package: Submission, rng: Random, **fields: Any) -> None:
    """Let the description say something else."""
    package.describe(package.read_description() | fields)


H100 = "NVIDIA H100-SXM5-80GB"
G15 = in_family(
    "G15",
    BASES,
    {
        "CN_a100": ("H100 on a platform of A100", described(accelerator_model_name=H100), "H100", "accelerator"),
        "CN_mi300": (
            "MI300X on a platform of A100",
            described(accelerator_model_name="AMD Instinct MI300X"),
            "MI300X",
            "accelerator",
        ),
        "DC_h100": ("H100 on a platform of A100", described(accelerator_model_name=H100), "H100", "accelerator"),
        "CF_gpu": (
            "four accelerators where the logs have none",
            described(accelerators_per_node="4", accelerator_model_name="NVIDIA V100-SXM2-16GB"),
            "accelerator",
        ),
        "CF_x86": (
            "Xeon on a platform of A64FX",
            described(host_processor_model_name="Intel Xeon Platinum 8280"),
            "A64FX",
            "processor",
        ),
        "OC_jax": ("JAX where the code is PyTorch's", described(framework="JAX 0.4.30"), "JAX", "framework"),
        "DC_preview": ("preview where the logs say onprem", described(status="preview"), "status"),
        "DC_research": ("research where the logs say onprem", described(status="research"), "status"),
        "DC_cloud": ("cloud where the logs say onprem", described(status="cloud"), "status"),
        "DC_open": ("open where the logs say closed", described(division="open"), "division"),
        "CN_nodes_128": ("128 nodes where the logs say 64", described(number_of_nodes="128"), "nodes"),
        "CN_nodes_desc": ("no processors", described(host_processors_per_node="0"), "processors"),
        "CN_storage": (
            "little memory and no storage",
            described(host_memory_capacity="16 GB", host_storage_capacity="0 GB"),
            "memory",
            "storage",
        ),
        "OF_old": (
            "versions older than the accelerators",
            described(framework="PyTorch 1.4.0", other_software_stack={"cuda_version": "9.0"}),
            "cuda",
            "framework",
            "PyTorch",
        ),
    },
)

# -- G16: chosen runs and evaluations -----------------------------------------------------------------------------


def leave_holes(texts: list[LogText], rng: Random) -> None:
    """Start each run when the one before stops, with a hole of one run behind each second one."""
    for at, (before, log) in enumerate(pairwise(texts)):
        stop_ms = before.timed[-1].time
        hole_ms = (stop_ms - before.timed[0].time) * (at % 2)
        log.shift(stop_ms + hole_ms + 1000 - log.timed[0].time)


@of_each_log
def evaluate_late(log: LogText, rng: Random, last: int) -> None:
    """Leave out all evaluations between the epoch at a position and the last one."""
    gone = log.numbers[last:-1]
    log.remove(line for number in gone for line in log.of_epoch(number, *EVALUATION_KEYS, log.target.key))


@of_each_log
def withhold_results(log: LogText, rng: Random) -> None:
    """Leave out the results of the three evaluations before the last one."""
    log.remove(log.results[-4:-1])


@of_each_log
def choose_best_of_five(log: LogText, rng: Random) -> None:
    """Write four worse results before that of the last evaluation."""
    best = log.results[-1]
    for later in range(4, 0, -1):
        worse = best.record["value"] * (1 + (1 if log.target.lower_is_better else -1) * later / 100)
        log.put_before(best.copy(), best).record["value"] = worse


def seed_in_thousands(package: Submission, rng: Random) -> None:
    """Let the seeds of the runs be a thousand apart."""
    for at, log in enumerate(package.texts()):
        log.state("seed", 6182 + 1000 * at)


TEN_OF_FOURTEEN = ("four numbers are missing", number_runs(0, 1, 3, 4, 6, 7, 9, 10, 12, 13), "number", "missing")
WITHHELD = ("results of three evaluations are withheld", withhold_results())
AVERAGES = ("five results of the last evaluation", choose_best_of_five())
G16 = [
    *in_family(
        "G16",
        BASES,
        {
            "CF_10_of_14": TEN_OF_FOURTEEN,
            "CN_10_of_14": TEN_OF_FOURTEEN,
            "CF_no_evaluations_after_10": ("not evaluated until the target is met", evaluate_late(10)),
            "OC_no_evaluations_after_5": ("not evaluated until the target is met", evaluate_late(5)),
            "CF_results_withheld": WITHHELD,
            "DC_results_withheld": WITHHELD,
            "OC_results_withheld": WITHHELD,
            "CF_best_of_5_averages": AVERAGES,
            "DC_best_of_5_averages": AVERAGES,
        },
        subject=("evaluat", "result"),
    ),
    *in_family(
        "G16",
        BASES,
        {
            "CF_pauses_of_one_run": ("a series with holes of one run", together(leave_holes)),
            "CN_pauses_of_one_run": ("a series with holes of one run", together(leave_holes)),
            "CF_seeds_1000_apart": ("seeds a thousand apart", seed_in_thousands),
        },
        accepted=("PASS", "WARN"),
    ),
]
CLAIMS: tuple[Case, ...] = (*G06, *G15, *G16)
"""Forged results that name what contradicts them, and some that only statistics can doubt."""
