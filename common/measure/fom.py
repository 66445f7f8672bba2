"""The figure of merit of a measurement, a training, or a job of several: one line for tools, fom.json for the rest.

docs/reference/fom.schema.json is the schema of the file.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from common.bad_json import load_json
from common.config import ConfigError, rebuild
from common.errors import UsageError
from common.file_kind import FIGURE, explain_kind
from common.files import write_whole_file
from common.measure.devices import Limits
from common.record import NODE_SCOPE
from common.reference import NoTarget, Target
from common.tree import ANYWHERE, RefusedFileError

NAME: Final = "fom.json"
FORMAT: Final = 1
"""Version of the file; it grows when a key changes its meaning or goes."""
MAX_BYTES: Final = 1 << 20
MOST: Final = 1e30
LOWEST: Final = {
    **dict.fromkeys(("samples_per_s", "median_step_ms"), 1e-06),
    **dict.fromkeys(("units", "batch", "flop_per_step", "memory_bytes"), 1.0),
    **dict.fromkeys(("quality", "qualities", "target", "loss"), -MOST),
}
"""The least value of a field, of others 0."""
SYNTHETIC: Final = "synthetic"
"""The data of a measurement that names none."""
ERRORS: Final = {"output_errors": "outputs", "gradient_errors": "gradients", "loss_errors": "losses"}
"""How far a precision is from float32, by field of a measurement."""
EXPONENTS: Final = {"deepcam": 10.0}
"""The n of VFLOPS: 10 for Extreme Weather in HPC AI500, whose counterpart DeepCAM is."""
N: Final = 5.0
"""The n of all other benchmarks: that of Image Classification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureOfMerit:
    """The result of a measurement or a training. kind: what it is of.

    samples_per_s: of all units, in the median. units: ranks, one for each accelerator, or processes on CPUs. batch:
    samples of a step, over all units. spread: standard deviation (ddof 1) by the median. network: of which variant.
    own_code: what computed in place of the suite's code, so that this is not the reference; None: nothing did.
    energy_j: of all nodes in the time of the steps, or from run_start to run_stop; None if it was not metered, or with
    gaps. energy_scope: what the meter includes. samples_per_j: samples trained. utilization: the rate of convolutions
    and products by the peak of all units (`common.measure.devices`) in peak_format, of the measured steps, or of
    training and evaluation from run_start to run_stop; None on devices whose peak is unknown. energy_source and what
    follows: see `common.measure.power.Energy`. The kinds of it also have the limits of the devices when the run ended.
    """

    kind: ClassVar[str]
    benchmark: str
    samples_per_s: float
    units: int
    batch: int
    dtype: Literal["fp32", "tf32", "bf16", "fp16"]
    spread: float
    network: str
    nodes: int
    device: str
    samples_per_s_per_unit: float
    date: str
    torch: str
    own_code: str | None = None
    energy_j: float | None = None
    energy_scope: str | None = None
    samples_per_j: float | None = None
    utilization: float | None = None
    peak_format: str | None = None
    energy_source: str | None = None
    energy_rate_hz: float | None = None
    energy_window_s: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, str) and not (value and value.isprintable()):
                raise ValueError(f"{name}: expected text that can be printed; got {value!r}")
            if value == ():
                raise ValueError(f"{name}: expected numbers; got none")
            for number in value if isinstance(value, tuple) else (value,):
                low = LOWEST.get(name, 0.0)
                if type(number) in (int, float) and not low <= number <= MOST:  # also for NaN
                    raise ValueError(f"{name}: expected a number from {low:g} to {MOST:g}; got {number!r:.20}")

    @property
    def line(self) -> str:
        """The line on standard output. Tools parse it: the order stays, and new pairs come at the end."""
        return (
            f"FOM {self.benchmark} samples/s {self.samples_per_s:.6g} units {self.units} batch {self.batch} "
            f"dtype {self.dtype} spread {self.spread:.3f}{self._further_pairs}"
        )

    @property
    def _further_pairs(self) -> str:
        """The pairs that follow; the energy is that of a meter of whole nodes."""
        if self.energy_scope != NODE_SCOPE or self.samples_per_j is None:
            return ""
        return f" joules {self.energy_j:.6g} samples/J {self.samples_per_j:.4g}"

    def write_file(self, path: Path) -> None:
        """Write the file; an earlier one is replaced."""
        content = {"format": FORMAT, "kind": self.kind, "mlperf_result": False, **asdict(self)}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole_file(path, json.dumps(content, indent=1) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Limits, FigureOfMerit):
    """The result of measured training steps; samples_per_s and spread are by their times.

    step_ms: of each measured step, on the slowest rank. wait_share: part of the time in which that rank waited for data
    that waited most. memory_bytes: the most that a rank used, of its accelerator or else of main memory. flop_per_step,
    flop_per_s: of all units, of the products and convolutions that are made, a multiply-add as two.
    table3_flop_per_step: the same as HPC AI500 counts, see `common.training.profile`. waiting_ms, computing_ms,
    communicating_ms, the bytes read, stored and reduced: medians or means over the steps, see
    `common.measure.meter.combine_ranks`. bytes_touched_per_step: of all units, see `common.measure.meter.count_bytes`.
    output_errors, gradient_errors, loss_errors: how far dtype is from float32, for each seed: relative norms for
    samples that were not trained on, and the mean distance of the loss curves by the fall of float32's. (0,) where
    dtype is float32 itself, None if not asked for. fp32_output_errors, fp32_gradient_errors: the same norms of float32
    with sums in another order.
    """

    kind: ClassVar = "measurement"
    removed: ClassVar = dict.fromkeys(("loss", "loss_fp32", "fidelity"), "0.3.0")
    step_ms: tuple[float, ...]
    median_step_ms: float
    warmup_steps: int
    wait_share: float
    waiting_ms: float
    computing_ms: float
    communicating_ms: float
    bytes_read_per_step: float | None
    stored_bytes_per_step: float | None
    bytes_reduced_per_step: float
    bytes_touched_per_step: int
    memory_bytes: int
    cpu_ms_per_step: float
    meter_cpu_share: float
    flop_per_step: float
    flop_per_s: float
    table3_flop_per_step: float
    data: str
    output_errors: tuple[float, ...] | None = None
    gradient_errors: tuple[float, ...] | None = None
    loss_errors: tuple[float, ...] | None = None
    fp32_output_errors: tuple[float, ...] | None = None
    fp32_gradient_errors: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRun(Limits, FigureOfMerit):
    """The result of a training; samples_per_s and spread are by the epochs, without their evaluations.

    minutes: from run_start to run_stop, as logged. quality: of the last evaluation. target: None for a run without.
    steps: of the optimizer. train_samples: of the training set. parameters: that are trained. loss: mean over the last
    epoch. flop_per_s, vflop_per_s: FLOPS and VFLOPS of HPC AI500 V3.0 (equations 6 and 7), without evaluations; None
    where the log does not state the operations of a sample, or the quality has no ratio to the benchmark's target.
    """

    kind: ClassVar = "training"
    epoch_samples_per_s: tuple[float, ...]
    minutes: float
    epochs: int
    quality: float
    target: float | None
    target_met: bool
    steps: int
    train_samples: int
    parameters: int
    loss: float
    epoch_train_s: tuple[float, ...]
    epoch_eval_s: tuple[float, ...]
    flop_per_s: float | None
    vflop_per_s: float | None

    @property
    def _further_pairs(self) -> str:
        energy = super(TrainedRun, self)._further_pairs
        return f" minutes {self.minutes:.4g} epochs {self.epochs} quality {self.quality:.6g}{energy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedEnsemble(Limits, FigureOfMerit):
    """The result of a job of several instances, in which some of them may have been trained after others.

    samples_per_s, flop_per_s and vflop_per_s (HPC AI500 V3.0, equations 4, 6 and 7): sums over the instances, or over
    as many as were trained at a time; units and batch are of these. spread: between instances. models: those counted.
    minutes: from the first start to the last stop of these. quality: their mean.
    """

    kind: ClassVar = "ensemble"
    models: int
    models_per_min: float
    minutes: float
    quality: float
    qualities: tuple[float, ...]
    flop_per_s: float | None
    vflop_per_s: float | None

    @property
    def _further_pairs(self) -> str:
        rates = {"flop/s": self.flop_per_s, "vflop/s": self.vflop_per_s}
        pairs = (f" {name} {rate:.6g}" for name, rate in rates.items() if rate is not None)
        return f" models {self.models} models/min {self.models_per_min:.4g}{''.join(pairs)}"


def find_valid_share(target: Target, quality: float, n: float) -> float | None:
    """Return VFLOPS / FLOPS, above 1 if the quality is better than the target; None where it is not above 0, or near.

    n: exponent of the ratio of both.
    """
    if quality > 0 and not isinstance(target, NoTarget):
        with suppress(OverflowError):
            share = math.pow(target.value / quality if target.lower_is_better else quality / target.value, n)
            return share if math.isfinite(share) else None
    return None


def read_measurement(path: Path) -> Measurement:
    """Return the measurement in a file; UsageError with file, key and what was expected if there is none."""
    expected = "expected the fom.json that `mlperf-hpc measure BENCHMARK` writes"
    try:
        data = ANYWHERE.read(str(path), MAX_BYTES)
    except RefusedFileError as error:
        files = " ".join(map(str, sorted({*path.glob("*.json"), *path.glob("*/*.json")})[:3])) if path.is_dir() else ""
        raise UsageError(f"{path} cannot be read: it {error.reason}{files and f'; name its files: {files}'}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; {expected}") from None
    if problem := explain_kind(data, FIGURE):
        raise UsageError(f"{path}: {problem}; `mlperf-hpc measure BENCHMARK` writes one")
    try:
        content: Any = load_json(data)
    except ValueError as error:
        raise UsageError(f"{path}: this is not JSON: {error}; {expected}") from None
    kind = content.pop("kind", None) if isinstance(content, dict) else None
    if kind != Measurement.kind:
        of_runs = f"; what a training gave shows `python -m submission.summary {path.parent} --runs`" if kind else ""
        raise UsageError(f"{path} has no measurement; {expected}{of_runs}")
    if (version := content.pop("format", None)) != FORMAT:
        raise UsageError(f"{path}: format is {str(version)[:20]!r}, this suite reads {FORMAT}; measure again")
    content.pop("mlperf_result", None)
    try:
        return rebuild(Measurement, content, str(path))
    except ConfigError as error:
        raise UsageError(f"{error}; {expected}") from None
