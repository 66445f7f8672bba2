"""The records of measurements: where they are kept, and how a script keeps its own."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PERFORMANCE: Final = ROOT / "docs" / "performance"
"""The page of numbers, and the pages that other documents name."""
RECORDS: Final = PERFORMANCE / "records"
"""The numbers of each script as JSON, and the longer pages that are made from them."""


def read_record(name: str) -> dict[str, Any]:
    """Return the record that is kept under a name."""
    return dict(json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8")))


def write_record(name: str, record: dict[str, Any]) -> None:
    """Keep a record; the pages stay as they are."""
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (RECORDS / f"{name}.json").write_text(text, encoding="utf-8")


def keep_record(name: str, record: dict[str, Any]) -> None:
    """Keep a record, and write the pages again."""
    write_record(name, record)
    subprocess.run([sys.executable, str(ROOT / "bench/performance_pages.py")], check=True)


def add_keep_option(parser: argparse.ArgumentParser) -> None:
    """Add the option by which a script keeps its record."""
    folder = RECORDS.relative_to(ROOT)
    parser.add_argument("--keep", action="store_true", help=f"keep the record in {folder}, and write the pages again")
