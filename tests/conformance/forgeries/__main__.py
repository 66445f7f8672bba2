"""Make one forgery again, write its files into a folder, and show what the checker says of it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tests.conformance.forgeries.families import FAMILIES, forge, stock

parser = argparse.ArgumentParser(prog="python -m tests.conformance.forgeries", description=__doc__)
parser.add_argument("family", choices=FAMILIES, metavar="FAMILY", help="a name in tests/conformance/test_forgeries.py")
parser.add_argument("number", type=int)
parser.add_argument("--corpus", type=Path, help="the folder with the extracted published logs (v0.7, v1.0, …)")
parser.add_argument("-o", "--output", type=Path, default=Path("forgery"), help="folder to write")


def main() -> None:
    """Run the command."""
    arguments = parser.parse_args()
    forged = forge(arguments.family, arguments.number, stock(arguments.corpus))
    folder, against = forged.tree.write(arguments.output)
    print(f"{forged.family} {forged.number} of {forged.base}: {forged.verdict}\nfiles are in {folder}")
    if against:
        print(f"the originals are in {against}")
    for finding in forged.found:
        place = os.path.basename(finding.path)
        mark = "*" if finding.rule in forged.new else " "
        print(f"{mark} {finding.severity} {finding.rule} {place}:{finding.line} {finding.message}")


if __name__ == "__main__":
    main()
