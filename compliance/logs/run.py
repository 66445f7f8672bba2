"""What one log says about its run, in one record: submitter, system, times, convergence, settings.

Everything that asks what a log says reads this record: it is made once, from the one parse of the log, and handed
down. It is small and can be sent to another process.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from math import prod
from textwrap import shorten
from typing import Any, Final, TypeGuard, TypeVar

from msgspec import Struct

from common.ending import COMPLETED, Ending, stated_ending
from common.own_code import OWN_CODE, describe_codes, read_codes
from common.reference import FULL, NO_TARGET, OWN, TARGET_RECORD, VARIANTS, Reference, Setting, Target
from common.rounds import HPC
from common.tree import ANYWHERE
from common.values import as_count, is_number, to_plain
from common.version import DISTRIBUTION
from compliance.benchmarks import describe_plugin, find_reference, read_name, reference_of
from compliance.logs.course import Course, find_unit
from compliance.logs.fingerprint import NO_FINGERPRINT, Fingerprint, fingerprint
from compliance.logs.log import BENCHMARK, SETTINGS, STRUCTURE, SUBMISSION, Log, parse_log, read_log
from compliance.logs.official import official_convergence
from compliance.logs.record import Record
from compliance.logs.timeline import Phases, Timeline, clock, samples_per_second, staging_ms

PER_RUN: Final = "output_dir, train.seed and instances.first"
"""Keys in which the runs of one configuration differ; `RunDetails.configuration` lacks them."""
PROVENANCE: Final = "provenance"
BAGGING: Final = "bagging"
"""The key of a log that says how the training samples of a member of an ensemble were drawn."""
INIT_WEIGHTS: Final = "init_weights_sha256"
"""The key of a log with the digest of the weights from which the run started, if they were not random."""
SOURCES: Final = "source_sha256"
"""The key of the hash of the sources, in a provenance."""
DATA: Final = "data_sha256"
"""The key of the digest of the data's manifest, in a provenance."""
RANKS: Final = "number_of_ranks"
SEEDS_KEPT: Final = 10_000
"""Published logs have one; a log of all ranks may have one of each."""
MARKED: Final = (*STRUCTURE, BENCHMARK, "global_batch_size", "train_samples", "seed")
"""Keys of which it is compared what code wrote them."""
Shared = TypeVar("Shared", bound=Hashable)
LONGEST_NAME: Final = 100
NOT_HYPERPARAMETERS: Final = ("number_of_nodes", "accelerators_per_node", "train_samples", "eval_samples", "seed")
"""Settings in a log about machine and data, or drawn for each run."""
SETTING_KEYS: Final = tuple(dict.fromkeys(setting.key for setting in SETTINGS))


class Evaluation(Struct, frozen=True):
    """One evaluation that counts: its epoch_num (openfold: samples; None if it says none), result, time and line."""

    epoch: float | None
    value: float
    time_ms: float
    line: int


class RunDetails(Struct, frozen=True):
    """What only reports, comparisons and packages need of a log.

    evaluations: between the first epoch and run_stop, in file order; those without a number are left out.
    epoch_seconds: length of each whole epoch (of a log with blocks only: of a block, by its epoch_count).
    seconds: of init, staging, train, eval and rest; together the time of the run; empty if the log has no times.
    phases: length of its epochs and evaluations.
    hyperparameters: value of each setting of any benchmark, as logged first. provenance: what a log of this suite
    says of versions, sources, data and configuration; else empty. sample_means: sizes of a training sample on average,
    where such a log states them; flop_per_sample: operations for one of them. precision: the number format in which
    products are computed, "" if it is not stated. sharing: how many ranks share each sample; 1 unless such a log states
    more. last_steps: of the epoch that the last evaluation names, as a log of this suite states them.
    """

    evaluations: tuple[Evaluation, ...]
    epoch_seconds: tuple[float, ...]
    seconds: Mapping[str, float]
    phases: Phases
    hyperparameters: Mapping[str, Any]
    provenance: Mapping[str, Any]
    sample_means: Mapping[str, Any]
    flop_per_sample: Mapping[str, Any]
    precision: str
    sharing: int
    last_steps: float | None

    @property
    def samples_per_epoch(self) -> int | None:
        """Samples of the training set, as logged."""
        samples: Any = self.hyperparameters.get("train_samples")
        return int(samples) if is_number(samples) and samples > 0 else None

    @property
    def source_sha256(self) -> str | None:
        """The hash of the sources that made the run, see `common.provenance.source_hash`."""
        return text_of(self.provenance.get(SOURCES))

    @property
    def configuration(self) -> dict[str, Any] | None:
        """The resolved configuration without what differs between runs; None where the log does not tell it."""
        resolved = configuration(self.provenance)
        if resolved is None:
            return None
        shared = {key: value for key, value in resolved.items() if key != "output_dir"}
        for section, key, value in (("train", "seed", None), ("instances", "first", 0)):
            if isinstance(shared.get(section), dict):
                shared[section] = shared[section] | {key: value}
        return shared


class Run(Struct, frozen=True):
    """What one log says; `compliance.model.judging` adds how it was judged.

    path: of the log. benchmark: None if it is not a known one. variant: "full" or the name of a mini problem.
    submission: value of each submission_* key, as logged first. lines: where they, settings and provenance stand.
    start_ms, stop_ms: run_start and run_stop as the score uses them (milliseconds since 1970), None if absent.
    finished: there is a run_stop. status, ending: of the last one; ending is None if it states none. killed: without a
    run_stop, why it ended, in words; "" if nothing tells.
    staging_ms: time between staging_start and staging_stop records, in milliseconds; staging_outside_ms: the part of
    it that does not lie between run_start and run_stop, which round 3.0 allows: the score does not contain it.
    convergence: epoch_num (openfold: samples) of the last evaluation that counts, None if there is none;
    convergence_unit: what it counts, "epochs", "samples" or "tokens".
    epochs_trained: how many epochs started before run_stop, whatever their numbers; 0 if none is logged.
    converged: that evaluation meets the target and the run stopped with success.
    without_target: the run was trained without a target, so that it gives no result, whatever its evaluations are.
    keys: of all records. marks: of some keys, with file and line that wrote the first record. instance: which one of a
    throughput result it is, as the log says.
    samples_per_s: samples trained per second, by the times of the epochs; None if the log does not tell.
    official_convergence: what the official RCP checker reads, None for a run that it takes as not converged.
    seeds: (line, source file, source line, value) of the first seed records; seed_count: number of all.
    settings: value of each setting that the division requires, as logged first.
    software: of a log of this suite, what its run shares with those of its result, by name: hash of the sources,
    machine, ranks, data and versions; else empty.
    fingerprint: by which copies of the run are found. inflated_bytes: what was read of a compressed log.
    detailed: the details, None unless they were asked for.
    """

    path: str
    benchmark: str | None = None
    variant: str = FULL
    submission: Mapping[str, Any] = {}
    batch_size: Any = None
    nodes: Any = None
    accelerators_per_node: Any = None
    settings: Mapping[str, Any] = {}
    lines: Mapping[str, int] = {}
    seeds: Sequence[tuple[int, Any, Any, Any]] = ()
    seed_count: int = 0
    keys: frozenset[str] = frozenset()
    marks: tuple[tuple[str, str, int | None], ...] = ()
    instance: Any = None
    start_ms: float | None = None
    stop_ms: float | None = None
    staging_ms: float = 0.0
    staging_outside_ms: float = 0.0
    finished: bool = False
    killed: str = ""
    status: Any = None
    ending: Ending | None = None
    convergence: Any = None
    convergence_unit: str = "epochs"
    epochs_trained: float = 0
    converged: bool = False
    without_target: bool = False
    official_convergence: float | None = None
    samples_per_s: float | None = None
    software: Mapping[str, str] = {}
    fingerprint: Fingerprint = NO_FINGERPRINT
    inflated_bytes: int = 0
    detailed: RunDetails | None = None

    @property
    def details(self) -> RunDetails:
        """What reports and packages need; ValueError if the log was read without it."""
        if self.detailed is None:
            fix = "read it with compliance.check_logs(paths, details=True)"
            raise ValueError(f"{self.path} was read without details; {fix}")
        return self.detailed

    @property
    def organisation(self) -> str | None:
        """The organisation that submits, as the log says."""
        return text_of(self.submission.get("submission_org"))

    @property
    def platform(self) -> str | None:
        """The system, as the log says."""
        return text_of(self.submission.get("submission_platform"))

    @property
    def seed(self) -> Any:
        """The value of the first seed record, or None."""
        return self.seeds[0][-1] if self.seeds else None

    @property
    def mini(self) -> bool:
        """Whether it is a run on the mini problem, which is not an MLPerf result."""
        return self.variant != FULL

    @property
    def plugin(self) -> str:
        """Says that its benchmark is not MLPerf's, and where it comes from; "" for one of MLPerf's."""
        return describe_plugin(self.benchmark)

    @property
    def minutes(self) -> float | None:
        """Time to train in minutes, or None."""
        return None if self.start_ms is None or self.stop_ms is None else (self.stop_ms - self.start_ms) / 60 / 1000

    @property
    def staging_inside_ms(self) -> float:
        """The part of the staging that the time to train contains, in milliseconds."""
        return self.staging_ms - self.staging_outside_ms

    @property
    def scale(self) -> int | None:
        """Accelerators of the run, or nodes on a system without accelerators; None if the log does not say."""
        nodes, each = as_count(self.nodes), as_count(self.accelerators_per_node)
        return None if nodes is None or each is None else nodes * max(each, 1)


# -- from a log --------------------------------------------------------------------------------------------


def extract_run(
    log: Log,
    benchmark: str | None,
    reference: Reference | None,
    settings: Iterable[Setting] = (),
    details: bool = False,
) -> Run:
    """Return what a log says; never raises on damaged logs.

    benchmark: of which it is; reference: the facts of that, without which no evaluation counts. settings: those of its
    division, of which the ones that identify a result are kept. details: look for what reports and packages need, too.
    """
    start_ms, stop_ms = (time_ms if is_number(time_ms) else None for time_ms in clock(log))
    staged_ms, staged_outside_ms = staging_ms(log, start_ms, stop_ms)
    submission = {key: record for key in SUBMISSION if (record := log.first(key))}
    identity = {setting.key: record for setting in settings if setting.identity and (record := log.first(setting.key))}
    software = _read_software(log)
    evidence = submission | identity
    evidence |= {key: log[key][0] for key in ("number_of_nodes", PROVENANCE) if log[key]}
    if not software:
        evidence.pop(PROVENANCE, None)
    stop = log.last("run_stop")
    convergence, converged = _read_convergence(log, reference) if reference else (None, False)
    without_target = log.derive(find_completion) is not None
    return Run(
        log.path,
        benchmark,
        variant_of(log),
        submission={key: record.value for key, record in submission.items()},
        batch_size=log.value("global_batch_size"),
        nodes=log.value("number_of_nodes"),
        accelerators_per_node=log.value("accelerators_per_node"),
        settings={key: record.value for key, record in identity.items()},
        lines={key: record.line for key, record in evidence.items()},
        seeds=[(r.line, r.meta("file"), r.meta("lineno"), r.value) for r in log["seed"][:SEEDS_KEPT]],
        seed_count=len(log["seed"]),
        keys=_share(frozenset((*log.records, *log.others))),
        marks=_share(tuple((key, *read_mark(log.records[key][0])) for key in MARKED if key in log.records)),
        instance=_read_instance(log),
        start_ms=start_ms,
        stop_ms=stop_ms,
        staging_ms=staged_ms,
        staging_outside_ms=staged_outside_ms,
        finished=stop is not None,
        killed=log.end.cause.text if log.end and not stop else "",
        status=stop.meta("status") if stop else None,
        ending=stated_ending(stop.metadata) if stop else None,
        convergence=convergence,
        convergence_unit=find_unit(log, reference),
        epochs_trained=log.derive(Course, reference.target.key).trained if reference else 0,
        converged=converged and not without_target,
        without_target=without_target,
        official_convergence=log.derive(official_convergence),
        samples_per_s=samples_per_second(log, reference) if reference else None,
        software=software,
        fingerprint=fingerprint(log),
        inflated_bytes=log.inflated_bytes,
        detailed=_extract_details(log, reference) if details else None,
    )


def read_run(path: str) -> Run:
    """Return what a log says of itself, with details, not judged by any rule; never raises, as `read_log`."""
    return _by_its_own_words(read_log(path, ANYWHERE))


def parse_run(data: bytes, path: str) -> Run:
    """Return what the log with these bytes says of itself, as `read_run` does. path: for messages."""
    return _by_its_own_words(parse_log(data, path))


def _by_its_own_words(log: Log) -> Run:
    benchmark = benchmark_of(log)
    return extract_run(log, benchmark, reference_of(benchmark, variant_of(log)), details=True)


def benchmark_of(log: Log) -> str | None:
    """Return the benchmark that a log names, whatever the letter case; None if it is not a known one."""
    name = read_name(log.value(BENCHMARK))
    return name if find_reference(name) else None


def variant_of(log: Log) -> str:
    """Return which problem the log is about: a mini one, or OWN data, if any of its records says so."""
    values = [record.value for record in log["dataset_variant"]]
    return next((variant for variant in (*VARIANTS, OWN) if variant != FULL and variant in values), FULL)


def is_resumed(log: Log) -> bool:
    """Tell whether this suite says that the run went on from a checkpoint; other values are not its own."""
    return any(record.value is None for record in log["run_resumed"])


def is_bagged(log: Log) -> bool:
    """Tell whether the run says that it trained on samples drawn for an ensemble, which SET15 reports."""
    return any(record.value not in (None, "none") for record in log[BAGGING])


def find_completion(log: Log) -> Record | None:
    """Return the record that says that a run was trained without a target; None if it had one."""
    stated = (record for record in log[TARGET_RECORD] if record.value == NO_TARGET)
    stops = (stop for stop in log["run_stop"] if stop.meta("ended") == COMPLETED)
    trains = ((record, (configuration(record.value) or {}).get("train")) for record in log[PROVENANCE])
    configured = (record for record, train in trains if isinstance(train, dict) and train.get("target") == NO_TARGET)
    return next(chain(stated, stops, configured), None)


def configuration(provenance: Any) -> dict[str, Any] | None:
    """Return the configuration in a provenance, whoever claims to have written it; None if it has none."""
    config = provenance.get("config") if isinstance(provenance, dict) else None
    return config if isinstance(config, dict) else None


def names_suite(provenance: Any) -> TypeGuard[dict[str, Any]]:
    """Tell whether a provenance states a version of this suite."""
    versions = provenance.get("versions") if isinstance(provenance, dict) else None
    return isinstance(versions, dict) and DISTRIBUTION in versions


def read_suite_version(provenance: Any) -> Any:
    """Return the version of this suite that a provenance states; None if it states none."""
    return provenance["versions"][DISTRIBUTION] if names_suite(provenance) else None


def describe_own_code(provenance: Any) -> str:
    """Return what a provenance says of code that computed in place of the suite's; "" if there is none."""
    try:
        text = describe_codes(read_codes(provenance.get(OWN_CODE) if isinstance(provenance, dict) else None))
    except ValueError:
        text = "unknown code"
    return shorten(text, LONGEST_NAME - len(OWN_CODE), placeholder=" …")


def read_mark(record: Record) -> tuple[str, int | None]:
    """Return the end of the file's path, and the line, that wrote a record."""
    fields = record.metadata
    file, line = (fields.get("file"), fields.get("lineno")) if isinstance(fields, dict) else (None, None)
    return file[-LONGEST_NAME:] if type(file) is str else "", line if type(line) is int else None


@lru_cache(maxsize=1000)
def _share(facts: Shared) -> Shared:
    """Return one object for the equal facts of many logs, which is sent to another process once."""
    return facts


def _read_instance(log: Log) -> Any:
    """Return the number that a log gives its instance of a throughput result."""
    named, start = log.others.get("instance_id"), log.first("epoch_start")
    if named or start is None:
        return named[0].value if named else None
    return next((start.meta(name) for name in ("instance", "instance_id") if start.meta(name) is not None), None)


def _read_software(log: Log) -> dict[str, str]:
    """Return the ranks, and what a log of this suite says of code, machine, data and versions, the first of many."""
    provenance, ranks = log.value(PROVENANCE), log.value(RANKS)
    if not names_suite(provenance):
        return {RANKS: str(to_plain(ranks))} if is_number(ranks) else {}
    versions, host = provenance["versions"], provenance.get("host")
    stated = {name: provenance.get(name) for name in (SOURCES, DATA)} | {DISTRIBUTION: versions[DISTRIBUTION]}
    if isinstance(host, dict):
        stated |= {f"host.{name}": host.get(name) for name in ("cpu", "cores", "machine")}
    stated |= {RANKS: ranks, OWN_CODE: describe_own_code(provenance) or None, **versions}
    texts = [
        (name, str(to_plain(value))) for name, value in stated.items() if isinstance(value, str) or is_number(value)
    ]
    return dict(islice((pair for pair in texts if len("".join(pair)) <= LONGEST_NAME), 20))


def text_of(value: Any) -> str | None:
    """Return the text that a value is, without blanks around it, or None."""
    return value.strip() or None if isinstance(value, str) else None


def _extract_details(log: Log, reference: Reference | None) -> RunDetails:
    provenance, means, flop = (log.value(key) for key in (PROVENANCE, "sample_means", "flop_per_sample"))
    timeline = Timeline(log, by_number=reference is None or reference.usage == HPC)
    evaluations = tuple(_read_evaluations(log, reference.target)) if reference else ()
    own_keys = [setting.key for setting in reference.settings] if reference else []
    last = log.rates.get(evaluations[-1].epoch) if evaluations and evaluations[-1].epoch is not None else None
    return RunDetails(
        evaluations,
        tuple(timeline.epoch_seconds()),
        timeline.seconds_by_part(),
        timeline.phases(),
        {key: log.value(key) for key in dict.fromkeys((*SETTING_KEYS, *own_keys)) if log[key]},
        provenance if isinstance(provenance, dict) else {},
        means if isinstance(means, dict) else {},
        flop if isinstance(flop, dict) else {},
        text_of(log.value("precision")) or "",
        _sharing_ranks(log.value("spatial_extents")),
        last.step if last and is_number(last.step) and last.step > 0 else None,
    )


def _sharing_ranks(extents: Any) -> int:
    """Return how many ranks share a sample by the extents of their grid of up to three axes; 1 for no such grid."""
    is_grid = isinstance(extents, list) and 0 < len(extents) <= 3
    return prod(extents) if is_grid and all(type(n) is int and 0 < n <= 1 << 16 for n in extents) else 1


# -- convergence -------------------------------------------------------------------------------------------


def _read_evaluations(log: Log, target: Target) -> Iterator[Evaluation]:
    for record in log.derive(Course, target.key).counted:
        if is_number(record.value) and is_number(record.time_ms):
            epoch = log.position(record)
            yield Evaluation(epoch if is_number(epoch) else None, record.value, record.time_ms, record.line)


def _read_convergence(log: Log, reference: Reference) -> tuple[Any, bool]:
    """Return epoch_num of the last evaluation that counts, and whether the run reached the target there."""
    counted = log.derive(Course, reference.target.key).counted
    if not counted:
        return None, False
    last, stop = counted[-1], log.last("run_stop")
    epoch = log.position(last)
    succeeded = stop is not None and stop.meta("status") in ("success", None)
    return (epoch if is_number(epoch) else None), succeeded and reference.target.met(last.value)
