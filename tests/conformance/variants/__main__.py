"""Make cases again, and show what the checker says of those that it judges wrongly."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from tests.conformance.variants import (
    forged_claims,
    forged_copies,
    forged_course,
    forged_descriptions,
    forged_evidence,
    forged_results,
    table,
    valid_forms,
    valid_table,
)
from tests.conformance.variants.bases import Stock

TABLES: dict[str, Iterable[table.Case]] = {
    "clock": forged_course.CLOCK,
    "numbering": forged_course.NUMBERING,
    "results": (*forged_results.RESULTS, *forged_results.UNSEEN),
    "seeds": forged_results.SEEDS,
    "copies": (*forged_copies.CASES, *forged_copies.UNSEEN),
    "packages": forged_descriptions.PACKAGES,
    "evidence": forged_evidence.EVIDENCE,
    "claims": forged_claims.CLAIMS,
    "forms": valid_forms.FORMS,
    "variations": valid_table.VARIATIONS,
    **valid_table.GROUPS,
}
parser = argparse.ArgumentParser(prog="python -m tests.conformance.variants", description=__doc__)
parser.add_argument("names", nargs="+", metavar="NAME", help=f"cases, their families or groups: {', '.join(TABLES)}")
parser.add_argument("--number", type=int, default=0, help="which of the cases of that name (default: %(default)s)")
parser.add_argument("--corpus", type=Path, help="the folder with the extracted published logs (v0.7, v1.0, …)")
parser.add_argument("--all", action="store_true", help="show those that it judges rightly, too")
parser.add_argument("-o", "--output", type=Path, help="write the files into a folder of each case")


def main() -> None:
    """Run the command."""
    arguments = parser.parse_args()
    stock = Stock(arguments.corpus)
    chosen = [
        case
        for group, cases in TABLES.items()
        for case in cases
        if {group, case.name, case.name.split()[0]} & {*arguments.names}
    ]
    wrong = 0
    for case in chosen:
        judgement = table.judge(case, arguments.number, stock)
        wrong += not judgement.is_right
        if arguments.all or not judgement.is_right:
            print(judgement)
        if arguments.output:
            judgement.submission.write(arguments.output / case.name)
    print(f"{len(chosen)} cases, {wrong} judged wrongly")


if __name__ == "__main__":
    main()
