"""The command `python -m submission.compare`: two results of a benchmark side by side."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence

from compliance.benchmarks import REFERENCES
from compliance.engine import Options, check_paths
from compliance.formats.words import clean
from compliance.model.layout import STRONG, WEAK
from compliance.model.run import Run
from submission.compare.comparison import Side, compare
from submission.compare.formats import FORMATS, UNLIMITED

EXAMPLES = """\
A and B are result folders, submissions, folders of runs, or single logs.

examples:
  python -m submission.compare runs/mine runs/theirs
  python -m submission.compare Mine/results/x/strong/deepcam Theirs/results/y/strong/deepcam
  python -m submission.compare Mine/ Theirs/ --benchmark oc20     one benchmark of two submissions
  python -m submission.compare fast.txt slow.txt                  two logs: where did the time go?
  python -m submission.compare Mine/ Theirs/ --format markdown >> notes.md

It ends with what B has to change to train with A's hyperparameters: arguments of a training command where both have
logs of this suite, else keys of the log. It judges nothing: python -m compliance.check does.

exit status: 0 compared, 2 wrong use, such as no benchmark that both have
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        for path in (given.a, given.b):
            if not os.path.lexists(path):
                parser.error(f"no such file or folder: {path}")
        comparisons = [compare(*pair) for pair in pairs(given.a, given.b, given.benchmark)]
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else UNLIMITED
        text = FORMATS[given.format](comparisons, width)
        # Names in logs may hold characters that the terminal's encoding lacks.
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except ValueError as error:
        parser.error(clean(error))
    except BrokenPipeError:
        # The reader of the output (head, less) has gone: no error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m submission.compare",
        description="Show two results of a benchmark side by side: hyperparameters, convergence, time, system, score.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", metavar="A", help="a result, a submission, a folder of runs, or a log")
    parser.add_argument("b", metavar="B", help="what to compare it with")
    parser.add_argument("--benchmark", choices=sorted(REFERENCES), help="only this one (default: all that both have)")
    parser.add_argument("--format", choices=tuple(FORMATS), default="table", help="default: table")
    return parser


# -- which results ----------------------------------------------------------------------------------------


def pairs(a: str, b: str, benchmark: str | None = None) -> list[tuple[str, Side, Side]]:
    """Return (benchmark, A, B) for each benchmark that both paths have: those of the same scaling, else the only ones.

    Raises ValueError if there is none, or a path has several results to choose from.
    """
    of_a, of_b = _results(a), _results(b)
    common = [name for name in REFERENCES if name in of_a and name in of_b and benchmark in (None, name)]
    if not common:
        held = "; ".join(f"{path} holds {', '.join(of) or 'none'}" for path, of in ((a, of_a), (b, of_b)))
        wanted = f"results of {benchmark}" if benchmark else "results of one benchmark"
        raise ValueError(f"expected {wanted} on both sides: {held}. python -m compliance.check says what the logs are")
    return [
        (name, _only(of_a[name], a, name, scaling), _only(of_b[name], b, name, scaling))
        for name in common
        for scaling in _scalings(of_a[name], of_b[name])
    ]


def _results(path: str) -> dict[str, list[Side]]:
    """Return the results below a path by benchmark; logs that form no result are one together."""
    report = check_paths([path], Options(allow_mini=True, progress=sys.stderr.isatty()))
    found: dict[str, list[Side]] = {}
    for results in report.sets:
        if results.benchmark and results.runs:
            found.setdefault(results.benchmark, []).append(Side(results.folder, results.runs, results))
    members = {id(run) for results in report.sets for run in (*results.runs, *results.pruned)}
    alone: dict[str, list[Run]] = {}
    for run in report.runs:
        if run.benchmark and id(run) not in members:
            alone.setdefault(run.benchmark, []).append(run)
    for name, runs in alone.items():
        found.setdefault(name, []).append(Side(path, runs))
    return found


def _scalings(a: list[Side], b: list[Side]) -> list[str]:
    """Return the scalings that both sides have; "" for any if they have none in common."""
    both = {side.scaling for side in a} & {side.scaling for side in b}
    return [scaling for scaling in (STRONG, WEAK) if scaling in both] or [""]


def _only(sides: list[Side], path: str, benchmark: str, scaling: str) -> Side:
    """Return the one side of a scaling."""
    fitting = [side for side in sides if side.scaling == (scaling or side.scaling)]
    if len(fitting) > 1:
        folders = ", ".join(side.path for side in fitting)
        raise ValueError(f"{path} holds {len(fitting)} results of {benchmark}; name the folder of one: {folders}")
    return fitting[0]


if __name__ == "__main__":
    sys.exit(main())
