"""Find the fastest training among the published results, in samples per second: in total and per accelerator.

    python bench/published_rates.py                                      checks ../shared/corpus, shows the table
    python bench/published_rates.py -o compliance/published_rates.json   writes it

The plausibility notes (SET14) compare with this table.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from checker import ROOT
from published import write_page

from common.reference import FULL
from common.values import is_number
from compliance.benchmarks import REFERENCES, reference_of
from compliance.logs.log import read_log
from compliance.logs.run import benchmark_of
from compliance.logs.timeline import samples_per_second

TABLE = ROOT / "compliance" / "published_rates.json"
Rate = tuple[float, str]


def table(folder: Path) -> str:
    """Return the text of the table of the results below a folder."""
    found: dict[str, list[tuple[Rate, Rate]]] = defaultdict(list)
    for benchmark, *rates in measured(folder):
        found[benchmark].append(tuple(rates))
    lines = []
    for benchmark in filter(found.__contains__, REFERENCES):
        fastest = [max(column) for column in zip(*found[benchmark], strict=True)]
        entry = [*(float(f"{rate:.4g}") for rate, _ in fastest), *(name for _, name in fastest)]
        lines.append(f' "{benchmark}": {json.dumps(entry)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def measured(folder: Path) -> Iterator[tuple[str, Rate, Rate]]:
    """Yield of each log its benchmark, rate and rate per accelerator."""
    for path in sorted(folder.rglob("result_*.txt*")):
        log = read_log(os.fspath(path))
        benchmark = benchmark_of(log)
        reference = reference_of(benchmark, FULL)
        rate = samples_per_second(log, reference) if reference else None
        if benchmark is None or rate is None:
            continue
        result = "/".join(part for part in path.relative_to(folder).parent.parts if part != "results")
        nodes, each = log.value("number_of_nodes"), log.value("accelerators_per_node")
        scale = nodes * each if is_number(nodes) and is_number(each) else 0
        yield benchmark, (rate, result), (rate / scale if scale else 0, result)


if __name__ == "__main__":
    sys.exit(write_page(__doc__, table))
