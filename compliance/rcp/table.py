"""The file format of reference convergence points: read and checked, rendered, written atomically.

A table is a YAML file of one benchmark. Each point says how long several reference runs trained until
they met the quality target, in `unit` (epochs, or samples for openfold):

    benchmark: cosmoflow
    unit: epochs
    points:
    - name: cosmoflow_ref_64
      batch_size: 64
      epochs: [17, 18, 18]
      hyperparameters: {opt_name: SGD}
      rounds: ['1.0', '2.0', '3.0']     # optional: without it the point applies to every round
      variant: mini                     # optional: "full" unless said
      runs:                             # optional: which logs the numbers were read from
      - {file: a/result_0.txt, sha256: 0f..., epochs: 17}     # null: the run did not converge
        # and, where the log says it, `sources: 3c...`: the hash of the sources that made the run

Source of the numbers: rcps_*.json of mlperf-logging (rcp_checker/hpc_*).
"""

from __future__ import annotations

import math
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import replace

from common.files import write_whole_file
from common.reference import FULL, ROUNDS, VARIANTS
from common.tree import NAMED
from common.values import LARGEST, to_plain
from compliance.benchmarks import find_reference, names_in_words

DIGEST: Final = "^[0-9a-f]{64}$"
Name = Annotated[str, msgspec.Meta(pattern=r"\S")]
Digest = Annotated[str, msgspec.Meta(pattern=DIGEST)]
Amount = Annotated[float, msgspec.Meta(gt=0, le=LARGEST)]


class RecordedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One reference run: the log, its sha256, when it converged (None: it did not), and the hash of its sources."""

    file: Name
    sha256: Digest
    epochs: Amount | None
    sources: Digest | None = None


class RecordedPoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One point as in the file; `epochs` in the unit of the table, one for each converged run; no rounds: in all."""

    name: Name
    batch_size: Annotated[int, msgspec.Meta(ge=1)]
    epochs: tuple[Amount, ...]
    hyperparameters: dict[str, Any]
    rounds: tuple[str, ...] = ()
    variant: str = FULL
    runs: tuple[RecordedRun, ...] = ()

    def __post_init__(self) -> None:
        if not set(self.rounds) <= set(ROUNDS):
            raise ValueError(f"rounds: expected those of {', '.join(ROUNDS)}, in quotes; found {self.rounds}")
        if self.variant not in VARIANTS:
            raise ValueError(f"variant: expected {' or '.join(VARIANTS)}, found {self.variant!r}")
        if self.runs and sorted(self.epochs) != sorted(run.epochs for run in self.runs if run.epochs is not None):
            raise ValueError(f"epochs of {self.name}: differs from the epochs under 'runs'; make both agree")
        logged = self.hyperparameters.get("global_batch_size", self.batch_size)
        if logged != self.batch_size:
            raise ValueError(
                f"batch_size of {self.name}: {self.batch_size}, but hyperparameters.global_batch_size says {logged}; "
                "correct the wrong one"
            )


class RcpTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All points of one benchmark, no two for one batch size in a round, and the comment at the top of the file."""

    benchmark: str
    unit: Annotated[str, msgspec.Meta(pattern="^(epochs|samples)$")]
    entries: tuple[RecordedPoint, ...] = msgspec.field(name="points")
    header: str = ""

    def __post_init__(self) -> None:
        if find_reference(self.benchmark) is None:
            expected = f"{names_in_words()}, or a plug-in that can be used"
            raise ValueError(f"benchmark: expected {expected}; found {self.benchmark!r}")
        owner: dict[tuple[str, str, int], tuple[int, str]] = {}
        for number, entry in enumerate(self.entries, 1):
            for round_ in entry.rounds or ROUNDS:
                first = owner.setdefault((entry.variant, round_, entry.batch_size), (number, entry.name))
                if first[0] != number:
                    owned = f"{entry.batch_size} is taken in round {round_} ({entry.variant})"
                    by = f"point {first[0]} ({first[1]}); merge the two or give them different rounds"
                    raise ValueError(f"batch_size of point {number} ({entry.name}): {owned} by {by}")


def read_table(path: Path) -> RcpTable:
    """Return the checked content of a table file.

    Raises ValueError if the file cannot be read, is not YAML, or breaks the format.
    """
    import yaml  # here, because most uses of the checker never open a table

    try:
        with NAMED.open(path) as file:
            text = file.read().decode()
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        depth = 0
        for event in yaml.parse(text, Loader=loader):  # to load deep nesting takes stack, to show aliases memory
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > 20 or isinstance(event, yaml.AliasEvent):
                raise yaml.YAMLError("it is nested too deeply, or has aliases")
        document = yaml.load(text, Loader=loader)
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read ({error.strerror}); expected a table of convergence points"
        ) from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not a YAML table of convergence points ({reason:.200}). Correct it") from error
    try:
        table = msgspec.convert(document, RcpTable)
    except msgspec.ValidationError as error:
        raise ValueError(
            f"{path}: {error}. Correct it (points count from 0; the format: compliance/rcp/table.py)"
        ) from error
    header = "".join(takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True)))
    return replace(table, header=header)


def render(table: RcpTable) -> str:
    """Return the text of a table file; reading and rendering it again gives the same text.

    Comments are kept only at the top of the file.
    """
    import yaml

    content = msgspec.to_builtins(replace(table, header=""))
    for point in content["points"]:
        point["epochs"] = list(map(to_plain, point["epochs"]))
        for run in point.get("runs", ()):
            run["epochs"] = to_plain(run["epochs"])
    return table.header + yaml.safe_dump(content, default_flow_style=None, sort_keys=False, width=math.inf)


def write_table(path: Path, table: RcpTable) -> None:
    """Write the table to `path` in one step: readers see the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole_file(path, render(table), sync=True)
