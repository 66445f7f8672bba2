r"""Measure one GPU in 15 minutes, in two parts; each section is a process of its own with a deadline.

    python bench/gpu.py --plan                         the sections of both parts: their seconds, what each decides
    python bench/gpu.py --part first -o results        at most 6 minutes: ceilings, CosmoFlow, OC20, mini problems
    python bench/gpu.py --part second -o results       at most 8 minutes: DeepCAM
    python bench/gpu.py --page results                 the rates, what options gain, what is right and what is missing

Both on the same machine, in the root of a clone. In `results` are then, in at most eight files, first.json and
second.json with what was measured, written as it comes; beside each its .log and its .profile.txt with the tables of
kernels; and machine.txt with the driver, versions and clocks. Send all of it back. A part that is started again does
only what is not done. Nothing is timed that is wrong: networks are first compared with references in float64
(bench/gpu_references). What is wrong is printed at once, and the rest goes on. docs/performance/gpu.md is the page of
the records gpu-*.json, by bench/performance_pages.py.

    python bench/gpu.py --sections variants product -o results       these, in this order, in results/sections.json
    python bench/gpu.py --part first --dry-run -o dry  on a CPU with tiny sizes; both parts take ten minutes
    python bench/gpu.py --make-references              make bench/gpu_references again, on a CPU

What to bring: a machine without a network needs Python with torch (a CUDA build, which brings Triton), numpy, scipy,
h5py, PyYAML, matplotlib, pytest, and the wheels that the following downloads (here for Python 3.12 on x86). What is
missing costs the sections that need it, not the others.

    python3 -m pip download --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d wheels \
        WHEELS
    python3 -m pip install -q --no-index --no-deps --no-compile --target /tmp/site wheels/*.whl
    export PYTHONPATH=/tmp/site

Exit status: 0 if all sections are done and right, 1 if not, 2 for wrong use.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# This tree, and before the folder of this file, whose modules have names of packages.
sys.path.insert(0, str(ROOT))

from gpu.results import ResultsError  # noqa: E402  (the path is set above)
from gpu.sections import (  # noqa: E402  (the path is set above)
    BUDGETS_S,
    LENT_S,
    PARTS,
    SECTIONS,
    START_S,
    Section,
    select_sections,
)

WHEELS = ("ase", "crc32c", "isal", "lmdb", "mlperf-logging", "msgspec", "tqdm")


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").replace("WHEELS", " ".join(pinned_wheels())),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tasks = parser.add_mutually_exclusive_group(required=True)
    tasks.add_argument("--part", choices=list(PARTS), help="measure the sections of this part")
    names = [section.name for section in SECTIONS]
    tasks.add_argument("--sections", nargs="+", choices=names, metavar="NAME", help="measure these, in this order")
    tasks.add_argument("--plan", action="store_true", help="print the sections, their seconds and what they decide")
    tasks.add_argument(
        "--page", type=Path, nargs="+", metavar="FILE", help="print the page of these results, or of DIR"
    )
    tasks.add_argument("--make-references", action="store_true", help="write bench/gpu_references")
    tasks.add_argument("--section", help=argparse.SUPPRESS)  # a process of this command
    parser.add_argument("-o", "--out", type=Path, metavar="DIR", help="the folder of the results")
    parser.add_argument("--dry-run", action="store_true", help="on a CPU with tiny sizes")
    parser.add_argument("--again", action="store_true", help="also what is done already")
    parser.add_argument("--work", type=Path, help="folder for data, kept for the next part; default: build/gpu")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="end after so long, instead of the part's time")
    arguments = parser.parse_args()
    if arguments.plan:
        print_plan()
        return 0
    if arguments.page is not None:
        from gpu.page import page, result_files  # not needed to measure

        try:
            print(page(result_files(arguments.page)), end="")
        except ResultsError as error:
            parser.error(str(error))
        return 0
    if arguments.make_references:
        from gpu.references import make

        make()
        return 0
    if arguments.out is None:
        parser.error("-o DIR is missing: the folder of the results")
    arguments.out = arguments.out.absolute()  # sections run in another folder
    if arguments.section:
        from gpu.child import serve

        return serve(arguments)
    from gpu.runner import Runner

    if arguments.out.exists() and not arguments.out.is_dir():
        parser.error(f"-o {arguments.out} is a file; expected a folder for the results")
    try:
        return Runner(arguments).run()
    except ResultsError as error:
        parser.error(str(error))


def print_plan() -> None:
    """Print the sections of each part, then those in none, with their seconds: expected, and at most."""
    for part, names in PARTS.items():
        sections = select_sections(names)
        expected = sum(section.seconds for section in sections)
        print(f"part {part}: {expected} s expected, at most {BUDGETS_S[part]} s together")
        print_sections(sections)
    most = START_S + sum(BUDGETS_S.values())
    print(f"at most {most} s of the {LENT_S} s for which a machine is lent, with {START_S} s for its start")
    print("in no part: --sections NAME...")
    planned = {name for names in PARTS.values() for name in names}
    print_sections([section for section in SECTIONS if section.name not in planned])


def print_sections(sections: list[Section]) -> None:
    """Print a line for each section, and one for what it decides."""
    for section in sections:
        print(f"  {section.name:<20} {section.seconds:>4} {section.limit_s:>4} s  {section.about}")
        print(f"{'':<35}decides: {section.decides}")


def pinned_wheels() -> list[str]:
    """Return the packages that a GPU machine may lack, with the versions that the suite is tested with."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    return [line for line in lines if line.partition("==")[0] in WHEELS]


if __name__ == "__main__":
    sys.exit(main())
