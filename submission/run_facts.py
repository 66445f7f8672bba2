"""What a result log says of where it comes from: who submits it, and the sources, settings and data that made it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Final

from compliance.benchmarks import REFERENCES
from compliance.logs.log import Log, parse_log
from compliance.model.run import variant_of

SUITE: Final = "mlperf-hpc-suite"
"""The distribution that logs made by this suite name among their versions."""
PER_RUN: Final = "output_dir and train.seed"
"""What the runs of one configuration differ in; `Lineage.configuration` lacks it."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The facts of one log; None where it does not tell.

    benchmark: a known one, else "". finished: there is a run_stop. provenance: the record of this suite's logs
    (versions, source_sha256 and so on), {} in others. configuration: resolved, without what differs between runs.
    data: variant, digest of their manifest, number of samples, and the folder as far as the log names it.
    """

    benchmark: str
    organisation: str | None
    platform: str | None
    finished: bool
    seed: Any = None
    provenance: dict[str, Any] = field(default_factory=dict)
    configuration: dict[str, Any] | None = None
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        """Whether a program of this suite wrote the log."""
        versions = self.provenance.get("versions")
        return isinstance(versions, dict) and SUITE in versions

    @property
    def source_sha256(self) -> str | None:
        """The hash over the sources that made the run, see `common.provenance.source_hash`."""
        return text_of(self.provenance.get("source_sha256"))


def read_lineage(data: bytes, path: str) -> Lineage:
    """Return what the log with these bytes says; never raises on damaged logs. path: for messages."""
    log = parse_log(data, path)
    provenance = log.value("provenance")
    provenance = provenance if isinstance(provenance, dict) else {}
    resolved = provenance.get("config")
    benchmark = (text_of(log.value("submission_benchmark")) or "").lower()
    return Lineage(
        benchmark if benchmark in REFERENCES else "",
        text_of(log.value("submission_org")),
        text_of(log.value("submission_platform")),
        bool(log["run_stop"]),
        log.value("seed"),
        provenance,
        _shared_part(resolved) if isinstance(resolved, dict) else None,
        _data(log, provenance),
    )


def text_of(value: Any) -> str | None:
    """Return the text that a value is, without blanks around it, or None."""
    return value.strip() or None if isinstance(value, str) else None


def digest(tree: Any) -> str:
    """Return the SHA-256 over plain values, whatever the order of their members."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def _shared_part(resolved: dict[str, Any]) -> dict[str, Any]:
    shared = {key: value for key, value in resolved.items() if key != "output_dir"}
    if isinstance(shared.get("train"), dict):
        shared["train"] = shared["train"] | {"seed": None}
    return shared


def _data(log: Log, provenance: dict[str, Any]) -> dict[str, Any]:
    resolved = provenance.get("config")
    section = resolved.get("data") if isinstance(resolved, dict) else None
    return {
        "variant": variant_of(log),
        "sha256": text_of(provenance.get("data_sha256")),
        "data_dir": text_of(section.get("data_dir")) if isinstance(section, dict) else None,
        "train_samples": log.value("train_samples"),
        "eval_samples": log.value("eval_samples"),
    }
