"""Make result logs, good and bad, for the examples of the rules, the tests and the demo.

`log()` gives the log of a valid run of any benchmark, round and division; each method changes one thing and returns
the log.
"""

from __future__ import annotations

import copy
import gzip
import json
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Self

from common.reference import FULL
from common.settings.keys import find_rows_of
from common.version import DISTRIBUTION, VERSION
from compliance.benchmarks import reference_of

START_MS = {"0.7": 1_600_000_000_000, "1.0": 1_631_000_000_000, "2.0": 1_663_000_000_000, "3.0": 1_694_000_000_000}
EPOCH_MS = 200_000


def varied(*what: int | str) -> float:
    """Return a number from 0 to 1 that looks drawn by chance, and is the same for the same arguments."""
    return Random(repr(what)).random()


def make_record(key: str, value: Any, time_ms: float, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record as the benchmarks log it."""
    ends = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}
    return {
        "namespace": "",
        "time_ms": time_ms,
        "event_type": ends.get(key.rpartition("_")[2], "POINT_IN_TIME"),
        "key": key,
        "value": value,
        "metadata": {"file": "train.py", "lineno": 100 + len(key), **metadata},
    }


class SampleRecords:
    """The records of a file. prefixed: what precedes each line; edits: of the line of a key's first record."""

    records: list[dict[str, Any]]
    prefixed: bytes = b""
    edits: Sequence[tuple[str, Callable[[bytes], bytes]]] = ()

    def records_of(self, key: str) -> list[dict[str, Any]]:
        """Return the records of a key, in order."""
        return [record for record in self.records if record.get("key") == key]

    def drop(self, key: str, which: int | None = None) -> Self:
        """Remove all records of a key, or one of them (from 0; -1 is the last)."""
        if which is None:
            self.records = [record for record in self.records if record.get("key") != key]
        else:
            del self.records[self._record_index(key, which)]
        return self

    def _record_index(self, key: str, which: int = 0) -> int:
        return [at for at, record in enumerate(self.records) if record.get("key") == key][which]

    def bytes(self) -> bytes:
        """Return the file's contents."""
        lines = [self.prefixed + b":::MLLOG " + json.dumps(record).encode() for record in self.records]
        for key, edit in self.edits:
            at = self._record_index(key)
            lines[at] = edit(lines[at])
        return b"".join(line + b"\n" for line in lines)


class SampleLog(SampleRecords):
    """The records of one run, to be changed and written; every method that changes it returns self."""

    def __init__(  # noqa: PLR0913  (what tells one run from another)
        self,
        benchmark: str = "cosmoflow",
        round_: str = "3.0",
        division: str = "closed",
        run: int = 0,
        epochs: int | None = None,
        settings: dict[str, Any] | None = None,
        variant: str = FULL,
    ) -> None:
        self.benchmark, self.round, self.division, self.run = benchmark, round_, division, run
        reference = reference_of(benchmark, variant)
        assert reference, f"{benchmark} has no problem {variant}"
        self.reference, example = reference, reference.example
        self.clock_ms = START_MS[round_] + run * 10_000_019
        self.records = []
        self._write_header({**example.settings[round_], **(settings or {})})
        self._write_run(epochs or example.epochs)

    def _write_header(self, settings: dict[str, Any]) -> None:
        header: list[tuple[str, Any]] = [
            ("init_start", None),
            ("cache_clear", None),
            ("submission_benchmark", self.benchmark),
            ("submission_org", "Example University"),
            ("submission_division", self.division),
            ("submission_status", "onprem"),
            ("submission_platform", "example_n64"),
        ]
        if self.round != "0.7":
            header += [("seed", 1000 + self.run), ("number_of_nodes", 16), ("accelerators_per_node", 4)]
        header += settings.items()
        if self.reference.variant != FULL:
            header.append(("dataset_variant", self.reference.variant))
        train_samples, eval_samples = self.reference.dataset.train_samples, self.reference.dataset.eval_samples
        header += [("train_samples", train_samples[self.round][0]), ("eval_samples", eval_samples[self.round][0])]
        for key, value in header:
            self._add_record(key, value)
        self._add_record("init_stop", None, step_ms=10_000)

    def _write_run(self, epochs: int) -> None:
        target = self.reference.target
        samples = 40 * (self.records_of("global_batch_size") or [{"value": 1}])[0]["value"]
        self._add_record("run_start", None)
        for epoch in range(1, epochs + 1):
            number = epoch * samples if self.reference.epoch_unit == "samples" else epoch
            distance = (epochs - epoch) / epochs
            quality = target.value * (1 + distance) if target.lower_is_better else target.value - 0.3 * distance
            quality -= 1e-4 if target.lower_is_better and epoch == epochs else 0
            own = (self.benchmark, self.round, self.run, epoch)
            chance, eval_chance = varied(*own), varied(*own, "eval")
            quality *= 1 + (3e-3 if target.lower_is_better == (epoch < epochs) else -3e-3) * chance
            self._add_record("epoch_start", None, epoch_num=number)
            self._add_record("epoch_stop", None, epoch_num=number, step_ms=EPOCH_MS + int(600 * (chance - 0.5)))
            self._add_record("eval_start", None, epoch_num=number)
            self._add_record("eval_stop", None, epoch_num=number, step_ms=8_000 + int(80 * (eval_chance - 0.5)))
            self._add_record(target.key, quality, epoch_num=number)
        self._add_record("run_stop", None, status="success")

    def _add_record(self, key: str, value: Any, step_ms: int = 3, **metadata: Any) -> None:
        self.clock_ms += step_ms
        self.records.append(make_record(key, value, self.clock_ms, metadata))

    # -- finding and changing -------------------------------------------------------------------------------

    def set(self, key: str, value: Any) -> Self:
        """Change the value of the key's first record; add the key if it is not there."""
        if not self.records_of(key):
            self.add(key, value)
        self.records_of(key)[0]["value"] = value
        return self

    def add(self, key: str, value: Any, before: str = "init_stop", which: int = 0, **metadata: Any) -> Self:
        """Insert a record before one of a key (from 0), at its time."""
        at = self._record_index(before, which)
        self.records.insert(at, make_record(key, value, self.records[at]["time_ms"], metadata))
        return self

    def cut(self, key: str) -> Self:
        """Remove the first record of a key and all that follow, as when a run dies."""
        del self.records[self._record_index(key) :]
        return self

    def double(self, key: str, which: int = 0, value: Any = ...) -> Self:
        """Repeat a record right after itself, with the same or another value."""
        at = self._record_index(key, which)
        again = copy.deepcopy(self.records[at])
        if value is not ...:
            again["value"] = value
        self.records.insert(at + 1, again)
        return self

    def move(self, key: str, before: str = "", after: str = "") -> Self:
        """Move the first record of a key right before or after the first of another; times stay in order."""
        record = self.records.pop(self._record_index(key))
        at = self._record_index(before or after)
        record["time_ms"] = self.records[at]["time_ms"]
        self.records.insert(at if before else at + 1, record)
        return self

    def meta(self, key: str, name: str, value: Any, which: int = 0) -> Self:
        """Set a field of the metadata; None removes it."""
        metadata = self.records[self._record_index(key, which)]["metadata"]
        metadata.pop(name, None)
        if value is not None:
            metadata[name] = value
        return self

    def field(self, key: str, name: str, value: Any, which: int = -1) -> Self:
        """Set a field of the record itself."""
        self.records[self._record_index(key, which)][name] = value
        return self

    def shift(self, key: str, by_ms: int) -> Self:
        """Move the time of the key's last record."""
        self.records[self._record_index(key, -1)]["time_ms"] += by_ms
        return self

    def times(self, change: Callable[[int], float]) -> Self:
        """Change every time."""
        for record in self.records:
            record["time_ms"] = change(record["time_ms"])
        return self

    # -- larger changes -------------------------------------------------------------------------------------

    def evaluation(self, epoch: int, value: Any) -> Self:
        """Change the result of the epoch's evaluation (from 1; 0 is the last)."""
        self.records[self._record_index(self.reference.target.key, epoch - 1)]["value"] = value
        return self

    def last_evaluation(self, value: Any) -> Self:
        """Change the result of the last evaluation."""
        return self.evaluation(0, value)

    def add_evaluation(self, value: Any, after: str) -> Self:
        """Insert an evaluation result, epoch 0 or one more than there are."""
        at = self._record_index(after)
        number = 0 if after == "run_start" else len(self.records_of("epoch_start")) + 1
        record = make_record(self.reference.target.key, value, self.records[at]["time_ms"], {"epoch_num": number})
        self.records.insert(at + 1, record)
        return self

    def stage(self, after: str, length_ms: int = 0) -> Self:
        """Insert a staging interval; all that follows comes later by its length."""
        at = self._record_index(after)
        time_ms = self.records[at]["time_ms"]
        for record in self.records[at + 1 :]:
            record["time_ms"] += length_ms
        ends = {"staging_start": time_ms, "staging_stop": time_ms + length_ms}
        self.records[at + 1 : at + 1] = [make_record(key, None, end_ms, {}) for key, end_ms in ends.items()]
        return self

    def blocks(self) -> Self:
        """Turn epochs into blocks of one epoch."""
        for record in self.records:
            if record["key"] in ("epoch_start", "epoch_stop"):
                record["key"] = record["key"].replace("epoch", "block")
                record["metadata"]["first_epoch_num"] = record["metadata"].pop("epoch_num")
                record["metadata"]["epoch_count"] = 1
        return self

    def renumber(self, first: int) -> Self:
        """Start counting epochs at another number."""
        return self.numbers(lambda number: number + first - 1)

    def numbers(self, change: Callable[[float], float], *keys: str) -> Self:
        """Change every epoch_num, or that of some keys."""
        for record in self.records:
            metadata = record["metadata"]
            if "epoch_num" in metadata and (not keys or record["key"] in keys):
                metadata["epoch_num"] = change(metadata["epoch_num"])
        return self

    def steps(self, per_epoch: int = 0) -> Self:
        """Log step_num, the number of training steps so far, with epochs and results; 0: as many as an epoch has."""
        each = per_epoch or self._steps_per_epoch()
        for record in self.records:
            epoch = record["metadata"].get("epoch_num")
            if record["key"] in ("epoch_start", "epoch_stop", self.reference.target.key):
                record["metadata"]["step_num"] = (epoch - (record["key"] == "epoch_start")) * each
        return self

    def throughput(self, samples_per_s: float = 0, step: int = 0) -> Self:
        """Log speed and steps of each epoch, as this suite does; 0: those that the epoch has."""
        samples = self.records_of("train_samples")[0]["value"]
        for start, stop in zip(self.records_of("epoch_start"), self.records_of("epoch_stop"), strict=True):
            rate = samples_per_s or samples * 1000 / (stop["time_ms"] - start["time_ms"])
            metadata = {"epoch_num": stop["metadata"]["epoch_num"], "step": step or self._steps_per_epoch()}
            stats = make_record("tracked_stats", {"throughput": rate}, stop["time_ms"], metadata)
            self.records.insert(self.records.index(stop) + 1, stats)
        return self

    def learning_rate(self, rate: float) -> Self:
        """Log a learning rate at the end of each epoch, with the epoch's other metadata."""
        for number, stop in enumerate(self.records_of("epoch_stop")):
            self.add("learning_rate", rate, "epoch_stop", number, **stop["metadata"])
        return self

    def _steps_per_epoch(self) -> int:
        samples, batch_size = (int(self.records_of(key)[0]["value"]) for key in ("train_samples", "global_batch_size"))
        return math.ceil(samples / batch_size)

    def shorten(self, epoch: int, time_ms: int) -> Self:
        """Let an epoch (from 1) take another time; all that follows comes earlier."""
        start, stop = self._record_index("epoch_start", epoch - 1), self._record_index("epoch_stop", epoch - 1)
        earlier = self.records[stop]["time_ms"] - self.records[start]["time_ms"] - time_ms
        for record in self.records[stop:]:
            record["time_ms"] -= earlier
        return self

    def drop_epoch(self, epoch: int) -> Self:
        """Remove all records of an epoch."""
        self.records = [r for r in self.records if r["metadata"].get("epoch_num") != epoch]
        return self

    def replace(self, run: int) -> Self:
        """Take over the records of another run."""
        self.records = SampleLog(self.benchmark, self.round, self.division, run, variant=self.reference.variant).records
        return self

    def twice(self) -> Self:
        """Append a second run to the first, as a restarted job does."""
        self.records = [*self.records, *self.replace(self.run + 1).records]
        return self

    # -- of this suite --------------------------------------------------------------------------------------

    def by_suite(self, changes: Mapping[str, Any] | None = None, version: str | None = VERSION) -> Self:
        """Add the records by which this suite's logs show what was trained.

        changes: of the configuration; `...` leaves a key out.
        """
        config: dict[str, Any] = {}
        existing = find_rows_of(self.reference, version)
        rows = [(row.key, row.allowed.example) for row in existing if self.round in row.rounds]
        own = {"submission.division": self.division, "submission.round": self.round, "variant": self.reference.variant}
        for key, value in ({**dict(rows), **own, **(changes or {})}).items():
            if value is ...:
                continue
            *sections, name = key.split(".")
            section = config
            for part in sections:
                section = section.setdefault(part, {})
            section[name] = copy.deepcopy(value)  # the facts stay as they are, whatever is done to the log
        provenance = {
            "versions": {DISTRIBUTION: version, "torch": "2.13.0"},
            "source_sha256": "5" * 64,
            "config": config,
        }
        self.add("provenance", provenance, before="submission_benchmark")
        if self.round in self.reference.parameters:
            self.add("number_of_parameters", self.reference.parameters[self.round])
        return self.set("dataset_variant", self.reference.variant)

    def provenance(self, **fields: Any) -> Self:
        """Change fields of the provenance; None removes one."""
        provenance = self.records_of("provenance")[0]["value"] | fields
        return self.set("provenance", {key: value for key, value in provenance.items() if value is not None})

    def versions(self, **versions: str | None) -> Self:
        """Change versions in the provenance."""
        return self.provenance(versions=self.records_of("provenance")[0]["value"]["versions"] | versions)

    # -- bytes ----------------------------------------------------------------------------------------------

    def raw(self, key: str, edit: Callable[[bytes], bytes]) -> Self:
        """Change the line of the key's first record as bytes."""
        self.edits = [*self.edits, (key, edit)]
        return self

    def prefix(self, text: bytes) -> Self:
        """Put a launcher's prefix before every line."""
        self.prefixed = text
        return self

    def text(self) -> str:
        """Return the file's contents as text."""
        return self.bytes().decode()

    def gzip(self) -> bytes:
        """Return the file's contents, compressed."""
        return gzip.compress(self.bytes(), mtime=0)
