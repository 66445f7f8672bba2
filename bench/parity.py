"""Run the official code of a clone of mlcommons/hpc beside ours, and compare: parameters, outputs, gradients, and more.

    make parity-env                                                what the official code needs, once; 2 GB
    make parity HPC=~/hpc                                          all three benchmarks, about three minutes
    python bench/parity.py ~/hpc --only deepcam                    needs nothing but the clone
    python bench/parity.py ~/hpc --keep                            also keeps the record

The clone (https://github.com/mlcommons/hpc) is only read; nothing of it belongs in this tree. Each benchmark runs in a
process of its own, with up to 4 GB, on the CPU with one thread (OMP_NUM_THREADS overrides).

exit status: 0 all within their tolerance; 1 something is beyond, or failed; 2 wrong use; 3 something was not run
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import about
from parity.rows import Compared, page, told
from records import add_keep_option, keep_record

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BENCHMARKS = ("cosmoflow", "deepcam", "oc20")
USAGE = 2


def commit_of(clone: Path) -> str:
    """Return the commit that is checked out, and whether files of it are changed."""
    git = ["git", "--no-optional-locks", "-C", str(clone)]
    found = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    if found.returncode:
        return "unknown"
    parts = ("cosmoflow", "deepcam", "open_catalyst")
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no", "--", *(f"{part}/*.py" for part in parts)],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() + (" with changes" if changed.stdout.strip() else "")


def compared(benchmark: str, clone: Path, environment: Path) -> Compared | None:
    """Compare one benchmark in a process of its own; None if that failed."""
    usual = {"OMP_NUM_THREADS": "1"}
    # From the root: the folder of this file has modules with names of packages.
    needed = {"PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-m", f"parity.{benchmark}", str(clone), str(result), str(environment)]
        done = subprocess.run(command, cwd=ROOT, env=usual | os.environ | needed, check=False)
        if done.returncode or not result.exists():
            return None
        return Compared.read(result)


def main() -> int:
    """Compare, print the tables and write them; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path, metavar="HPC", help="folder of a clone of mlcommons/hpc")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=BENCHMARKS, metavar="NAME", help="benchmarks")
    parser.add_argument(
        "--environment", type=Path, default=ROOT / ".parity", metavar="FOLDER", help="what `make parity-env` made"
    )
    parser.add_argument(
        "-o",
        type=Path,
        default=ROOT / "runs" / "parity",
        metavar="NAME",
        help="write NAME.md and NAME.json (%(default)s)",
    )
    add_keep_option(parser)
    given = parser.parse_args()
    if not any((given.clone / part).is_dir() for part in ("cosmoflow", "deepcam", "open_catalyst")):
        print(f"error: {given.clone} is not a clone of mlcommons/hpc: it has no folder deepcam", file=sys.stderr)
        return USAGE
    clone, environment = given.clone.resolve(), given.environment.resolve()
    machine, commit = about(), commit_of(clone)
    results = {name: compared(name, clone, environment) for name in given.only}
    facts = {**machine, "hpc": commit, "benchmarks": [result.facts for result in results.values() if result]}
    text = page(facts)
    print(text)
    given.o.parent.mkdir(parents=True, exist_ok=True)
    given.o.with_suffix(".md").write_text(text, encoding="utf-8")
    given.o.with_suffix(".json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if given.keep:
        keep_record("parity", facts)
    return told(results)


if __name__ == "__main__":
    sys.exit(main())
