"""Write the operations of runs as a table with notes, JSON or CSV; the last two contain all fields."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Final

from common.command import clean
from common.version import VERSION
from compliance.formats.json import finite
from compliance.formats.words import plain
from submission.analysis.tables import number
from submission.cost.operations import Operations
from submission.text_table import TextTable, csv_text, plain_text

SCHEMA: Final = 1
"""Version of the JSON format; under the same number fields are only added, never changed or removed."""
NOTE_WIDTH: Final = 120
"""Characters per line of the notes where the output has no width."""
UNITS: Final = "on the units of the run (of a throughput result: of one instance)"
GIGA, TERA = 1e9, 1e12
HEADINGS: Final = (
    *(("log", ""), ("samples", "trained"), ("T_train", "min"), ("training", "TFLOPS"), ("sustained", "TFLOPS")),
    *(("quality", ""), ("target", ""), ("n", ""), ("valid", "TFLOPS"), ("no number because", "")),
)
TEXT: Final = ("log", "no number because")
CONVENTION: Final = (
    "FLOP: 1 multiply-add = 2, of convolutions and products alone, counted from the reference model at full size "
    "(submission/analysis/cost/workloads.yaml); an open result may have trained another model"
)
NOTES: Final = (
    CONVENTION,
    "training: FLOP of training * samples trained / T_train, the time of epochs without evaluations",
    "sustained: FLOP of training and evaluation / (run_stop - run_start)",
    "valid: VFLOPS = training * (achieved / target)^n, target / achieved where lower is better; as published, a "
    "quality better than the target makes it larger than training",
)
GRAPH_NOTE: Final = (
    "oc20: FLOP of the published algorithm with its list of triplets; this suite's network makes about a tenth less "
    "(fom.json states those made)"
)


def plain_costs(found: Sequence[Operations], width: int | None = None) -> str:
    """Return the table and its notes in lines of at most `width` characters; None: nothing is cut."""
    groups = tuple(map(_group, found))
    numeric = tuple(name not in TEXT for name, _ in HEADINGS)
    folder = os.path.commonpath([os.path.dirname(os.path.abspath(one.log)) for one in found])
    rows = tuple((clean(os.path.relpath(one.log, folder)), *_cells(one)) for one in found)
    title = f"FLOPS of runs below {clean(folder)}: floating point operations per second, {UNITS}"
    table = TextTable(title, HEADINGS, rows, numeric, groups).without_empty()
    remarks = sorted({note for one in found if (note := _note(one))})
    notes = [textwrap.fill(note, width or NOTE_WIDTH, subsequent_indent="  ") for note in (*NOTES, *remarks)]
    return "\n\n".join([plain_text(table, width), "\n".join(notes)]) + "\n"


def json_costs(found: Sequence[Operations]) -> str:
    """Return all fields as JSON, with a note; units are in their names or in the docstring of Operations."""
    runs = [asdict(one) | {"note": _note(one)} for one in found]
    document = {"schema": SCHEMA, "version": VERSION, "convention": CONVENTION, "runs": runs}
    return json.dumps(finite(document), indent=1) + "\n"


def csv_costs(found: Sequence[Operations]) -> str:
    """Return all fields as CSV with a note, a line for each log."""
    names = [field.name for field in fields(Operations)]
    return csv_text([*names, "note"], [[*(getattr(one, name) for name in names), _note(one)] for one in found])


def _note(one: Operations) -> str:
    """Return what must be known to compare the numbers of a run, "" if they need no explanation."""
    return GRAPH_NOTE if one.benchmark == "oc20" and one.flops is not None else ""


def _group(one: Operations) -> str:
    """Return the heading above the rows of a benchmark, with the FLOP of a sample if they are known."""
    name = f"{clean(one.benchmark) or 'unknown benchmark'}{' (mini)' if one.mini else ''}, round {one.round}"
    if one.training_flop is None or one.forward_flop is None:
        return name
    giga = [number(flop / GIGA) for flop in (one.training_flop, one.forward_flop)]
    return f"{name}: {giga[0]} GFLOP for a sample trained, {giga[1]} evaluated"


def _cells(one: Operations) -> tuple[str, ...]:
    """Return the cells of a run, without the name of its log."""
    rates = (one.flops, one.sustained_flops, one.vflops)
    training, sustained, valid = ("" if rate is None else number(rate / TERA) for rate in rates)
    return (
        "" if one.samples is None else plain(one.samples),
        number(one.train_minutes),
        training,
        sustained,
        number(one.quality),
        "" if one.target is None else f"{one.target:g}",
        "" if one.n is None else f"{one.n:g}",
        valid,
        one.reason,
    )
