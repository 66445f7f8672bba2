"""The command behind every benchmark's `baselines.py`: what classical methods reach on the mini problem.

A benchmark gives `Baselines`; this file has the arguments, the table beside the target, and the file of numbers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from common.command import CommandParser, check_new, file_place, place, run_command
from common.config import section_of
from common.data.split import DatasetError
from common.datasets.manifest import NAME, read_manifest
from common.files import write_whole_file
from common.named_configs import find_config
from common.reference import FULL, MINI, Reference, Target

BASELINE_ERRORS: Final = (ValueError, OSError)
"""Errors that the user can fix, among them those of data; any other is a bug and shows a traceback."""

Say = Callable[[str], None]
"""Shows a line of progress, such as "ridge on spectra: 3 of 8 penalties"."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a method reaches.

    quality: on all validation samples, as the benchmark's evaluation computes it. note: a few words on what the method
    sees and how it is fitted. details: what was chosen on the training split, and other numbers, for the file; plain
    values.
    """

    name: str
    quality: float
    note: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Baselines:
    """The baselines of a benchmark's mini problems.

    name: of its package. references: the facts of its mini problems, with their targets, the current one first.
    fit: yields the baselines of a dataset, one after another as they are ready; they are fitted on the training split
        alone, and what they choose is chosen there too; it raises DatasetError, another ValueError or OSError for data
        that it cannot use.
    make_mini: generates the current mini dataset in a folder unless it exists; None: it must exist.
    """

    name: str
    references: tuple[Reference, ...]
    fit: Callable[[Path, Say], Iterator[Baseline]]
    make_mini: Callable[[Path, str], None] | None = None


def main(baselines: Baselines, argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    arguments = _build_parser(baselines).parse_args(argv)
    return run_command(lambda: _fit_baselines(baselines, arguments.data_dir, arguments.output), BASELINE_ERRORS)


def _fit_baselines(baselines: Baselines, data_dir: Path | None, output: Path | None) -> int:
    """Fit the baselines to the data of a folder, or to the mini dataset; return the exit status, 0."""
    if output is not None:
        check_new("-o", output)
    folder = data_dir or _find_mini_folder(baselines.name)
    if data_dir is None and baselines.make_mini and not (folder / NAME).exists():
        baselines.make_mini(folder, baselines.references[0].variant)
    variant, digest = _read_variant(baselines, folder)
    references = {reference.variant: reference for reference in baselines.references}
    target = references.get(variant, baselines.references[0]).target
    print(f"{baselines.name}: {variant} dataset in {folder}", flush=True)
    reached = []
    for baseline in baselines.fit(folder, _show_progress):
        _show_progress(f"{baseline.name}: {target.key} {baseline.quality:.4g}")
        reached.append(baseline)
    ranked = sorted(reached, key=lambda baseline: baseline.quality, reverse=target.lower_is_better)
    print("\n".join(_format_table(target, ranked)))
    if output is not None:
        content = {
            "benchmark": baselines.name,
            "variant": variant,
            "data_sha256": digest,
            "quality": target.key,
            "lower_is_better": target.lower_is_better,
            "target": target.value,
            "baselines": [asdict(baseline) for baseline in reached],
            "best": ranked[-1].name,
        }
        write_whole_file(output, json.dumps(content, indent=1) + "\n")
    return 0


def _read_variant(baselines: Baselines, folder: Path) -> tuple[str, str]:
    """Return the variant and the digest of the dataset in a folder; DatasetError if there is none, or the full one."""
    if not (folder / NAME).exists():
        raise DatasetError(
            f"{folder} has no dataset with a {NAME}; generate it by `python -m {baselines.name}.synthesize {folder}`"
        )
    manifest = read_manifest(folder / NAME)
    if manifest.benchmark != baselines.name or manifest.variant in (None, FULL):
        raise DatasetError(
            f"{folder / NAME}: this is the {manifest.variant or FULL} dataset of {manifest.benchmark}; expected data "
            f"that `python -m {baselines.name}.synthesize` generated"
        )
    return str(manifest.variant), manifest.compute_digest()


def _format_table(target: Target, rows: Sequence[Baseline]) -> Iterator[str]:
    """Yield the lines of the table of baselines, the best last, and whether that meets the target."""
    width = max(map(len, ("baseline", *(row.name for row in rows))))
    yield f"{'baseline':<{width}}  {target.key:>10}  method"
    for row in rows:
        yield f"{row.name:<{width}}  {row.quality:>10.4f}  {row.note}"
    yield f"{'target':<{width}}  {target.value:>10.4f}  {target.range_text}"
    best = rows[-1]
    verdict = "meets the target" if target.met(best.quality) else "misses the target"
    yield f"the best baseline, {best.name}, {verdict} by {abs(best.quality - target.value):.4f}"


def _show_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _find_mini_folder(name: str) -> Path:
    return Path(section_of(find_config(name, MINI), (), "data")["data_dir"])


def _build_parser(baselines: Baselines) -> CommandParser:
    name, target = baselines.name, baselines.references[0].target
    parser = CommandParser(
        prog=f"python -m {name}.baselines",
        description=f"""\
Show what classical methods reach on the mini problem of {name}, beside its target: {target.range_text}.
A mini problem is the full one's code, formats and rules on two cores, and no proof that a network is needed. The
methods are fitted on the training split alone, and choose there, too; the validation split only judges them.

  python -m {name}.baselines                           the mini dataset; it is generated if it is missing
  python -m {name}.baselines data/seed7                other data of the same form
  python -m {name}.baselines -o baselines.json         also as a file, with what was chosen""",
    )
    parser.add_argument(
        "data_dir",
        nargs="?",
        type=lambda text: None if text == MINI else place(text),
        metavar="mini|DATA_DIR",
        help=f"the dataset (default: mini, in {_find_mini_folder(name)})",
    )
    parser.add_argument("-o", "--output", type=file_place, metavar="FILE.json", help="also write the numbers to a file")
    return parser
