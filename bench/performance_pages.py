"""Write the pages of docs/performance from the records that the scripts keep.

python bench/performance_pages.py            all pages
python bench/performance_pages.py --check    exit 1, and name the pages that their records do not give
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import records
from records import PERFORMANCE, RECORDS, read_record

# This tree, and before the folder of this file, whose modules have names of packages.
sys.path.insert(0, str(records.ROOT))

import accept
import feed
import gpu.page
import laws
import measure
import mini_runs
import numbers_page
import packed
import parity.rows
import scale_page
import spatial
import table

from bench import cosmoflow, deepcam, oc20

GPU_RESULTS: Final = ("first", "second", "third", "h100", "h100-again", "h100-third")
"""In the order in which they were measured: what was measured last is shown."""
BENCHMARKS: Final = {"cosmoflow": cosmoflow, "deepcam": deepcam, "oc20": oc20}


def make_pages() -> dict[Path, str]:
    """Return the text of each page."""
    results = [RECORDS / f"gpu-{part}.json" for part in GPU_RESULTS]
    summaries = [read_record(f"mini-{name}") for name in BENCHMARKS]
    parts = [(benchmark.PAGE, read_record(name)) for name, benchmark in BENCHMARKS.items()]
    return {
        PERFORMANCE / "README.md": numbers_page.page(results),
        PERFORMANCE / "gpu.md": gpu.page.page(results),
        PERFORMANCE / "laws.md": laws.page(read_record("laws")),
        PERFORMANCE / "scale.md": scale_page.write_page(read_record("scale")),
        RECORDS / "accept.md": accept.page(read_record("accept")),
        RECORDS / "feed.md": feed.page(read_record("feed")),
        RECORDS / "measure.md": measure.page(read_record("measure")),
        RECORDS / "mini.md": mini_runs.page(summaries),
        RECORDS / "packed.md": packed.page(read_record("packed")),
        RECORDS / "parity.md": parity.rows.page(read_record("parity")),
        RECORDS / "spatial.md": spatial.page(read_record("spatial")),
        RECORDS / "training.md": table.write_page(parts),
    }


def main() -> int:
    """Write the pages, or check them; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is not of its records")
    check = parser.parse_args().check
    pages = make_pages()
    other = [path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    strange = sorted(set(PERFORMANCE.rglob("*.md")) - set(pages))
    for path in other:
        print(path.relative_to(records.ROOT))
        if not check:
            path.write_text(pages[path], encoding="utf-8")
    for path in strange:
        print(f"{path.relative_to(records.ROOT)}: no record gives it")
    return 1 if strange or (check and other) else 0


if __name__ == "__main__":
    sys.exit(main())
