r"""Measure one GPU: three runs of at most ten minutes, in sections, each a process of its own with a deadline.

    python bench/gpu.py --list                         the sections, with seconds, what is expected and decided
    python bench/gpu.py --run 1 -o run1.json           what is there: ceilings, right or wrong, layers, steps
    python bench/gpu.py --run 2 -o run2.json           the variants
    python bench/gpu.py --run 3 -o run3.json           the product: trainer with files, evaluation, counters
    python bench/gpu.py --run 1 -o run1.json --sections ceilings right --again
    python bench/gpu.py --dry-run -o dry.json          all sections on a CPU with tiny sizes; two minutes
    python bench/gpu.py --page run1.json run2.json run3.json > docs/performance/gpu.md
    python bench/gpu.py --make-references              make bench/gpu_references again, on a CPU

A machine without a network needs Python 3.12 with torch, Triton, numpy, scipy, h5py, PyYAML and matplotlib. What else
is needed comes along as wheels in the repository's folder:

    python3 -m pip download --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d wheels \
        WHEELS
    python3 -m pip install -q --no-index --no-deps --no-compile --target /tmp/site wheels/*.whl
    export PYTHONPATH=/tmp/site

OUT.json is written after each section, with what a section has measured up to the end of its time; a run that is
started again does only what is not done. Beside it: OUT.log, and OUT.profile.txt with the tables of kernels. Nothing is
timed that is wrong: networks are first compared with references in float64 (bench/gpu_references). Exit status: 0 if
all sections are done and right, 1 if not, 2 for wrong use.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# This tree, and before the folder of this file, whose modules have names of packages.
sys.path.insert(0, str(ROOT))

from gpu.sections import SECTIONS, of_run  # noqa: E402  (the path is set above)

WHEELS = ("ase", "crc32c", "isal", "lmdb", "mlperf-logging", "msgspec", "tqdm")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").replace("WHEELS", " ".join(wheels())),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", type=int, choices=(1, 2, 3), help="measure the sections of this run")
    what.add_argument("--dry-run", action="store_true", help="all sections on a CPU with tiny sizes")
    what.add_argument("--list", action="store_true", help="print the sections")
    what.add_argument("--page", type=Path, nargs="*", metavar="OUT.json", help="print the page of these results")
    what.add_argument("--make-references", action="store_true", help="write bench/gpu_references")
    what.add_argument("--section", help=argparse.SUPPRESS)  # a process of this command
    parser.add_argument("-o", "--out", type=Path, metavar="OUT.json", help="the results")
    parser.add_argument("--sections", nargs="+", choices=[one.name for one in SECTIONS], metavar="NAME", default=None)
    parser.add_argument("--again", action="store_true", help="also what is done already")
    parser.add_argument("--work", type=Path, help="folder for data of the run; default: a temporary one")
    parser.add_argument("--dry-run-section", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="end the run after so long (560)")
    given = parser.parse_args()
    if given.list:
        for number in (1, 2, 3):
            print(f"Run {number}, {sum(one.seconds for one in of_run(number))} s")
            for one in of_run(number):
                print(f"  {one.name:<19} {one.seconds:>4} s  {one.expected}\n{'':>28}{one.decision}")
        return 0
    if given.page is not None:
        from gpu.page import page  # not needed to measure

        print(page(given.page), end="")
        return 0
    if given.make_references:
        from gpu.references import make

        make()
        return 0
    if given.out is None:
        parser.error("-o OUT.json is missing")
    given.out = given.out.absolute()  # sections run in another folder
    if given.section:
        from gpu.child import serve

        return serve(given)
    from gpu.runner import Runner

    return Runner(given).run()


def wheels() -> list[str]:
    """Return the packages that a GPU machine may lack, with the versions that the suite is tested with."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    return [line for line in lines if line.partition("==")[0] in WHEELS]


if __name__ == "__main__":
    sys.exit(main())
